"""The manifest of an extended index."""

from __future__ import annotations

from typing import Any

from indexmill.formats.index.manifest import FileEntry, Manifest
from indexmill.layout.order import Adjacency
from indexmill.pipeline.append.drift import drift_of
from indexmill.pipeline.append.files import Extended
from indexmill.pipeline.generations.descent import descent_of, fingerprint_of
from indexmill.pipeline.generations.opened import labels_lost
from indexmill.pipeline.kinds.graph.order import degree_facts, layout_facts
from indexmill.pipeline.mill.store import software_versions


def manifest_of(
    extended: Extended, order: str, parents: tuple[Manifest, ...], build_id: str, files: tuple[FileEntry, ...]
) -> Manifest:
    """Return the manifest of the written files, without a certificate; `order` names the order of its layout."""
    larger, graph = extended.larger, extended.graph
    adjacency = Adjacency(graph.neighbours, graph.degrees)
    layout = layout_facts(adjacency, extended.order, larger.space.node)
    return Manifest(
        kind="graph",
        build_id=build_id,
        **descent_of(parents),
        parameters=dict(larger.manifest.parameters),
        input=_input(extended),
        software=software_versions(),
        layout={"order": order, **layout},
        graph={**degree_facts(graph.degrees), **larger.inherited, **labels_lost(larger.manifest, *parents)},
        drift=drift_of(extended, layout["overlap_ratio"], order),
        certificate=None,
        files=files,
    )


def _input(extended: Extended) -> dict[str, Any]:
    larger, addition = extended.larger, extended.addition
    return {
        "n_vectors": larger.n + addition.n,
        "dim": larger.dim,
        "dtype": larger.input_dtype,
        "fingerprint": fingerprint_of(*(part.fingerprint for part in extended.parts)),
        **{key: value for key, value in larger.manifest.input.items() if key == "imported"},
    }
