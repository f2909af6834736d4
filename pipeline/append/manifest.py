"""The manifest of an extended index."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Any

from indexmill.formats.index.manifest import FileEntry, Manifest
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.layout.metrics import layout_metrics
from indexmill.pipeline.append.drift import drift_of
from indexmill.pipeline.append.files import Extended
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.graph.order import degree_facts
from indexmill.pipeline.mill.store import software_versions


def manifest_of(
    extended: Extended, parents: tuple[OpenedIndex, ...], build_id: str, files: tuple[FileEntry, ...]
) -> Manifest:
    """Return the manifest of the written files, without a certificate."""
    larger, graph = extended.larger, extended.graph
    layout = _layout(extended)
    direct = {parent.manifest.build_id for parent in parents}
    return Manifest(
        kind="graph",
        build_id=build_id,
        generation=1 + max(parent.manifest.generation for parent in parents),
        parents=tuple(parent.manifest.build_id for parent in parents),
        ancestors=tuple(sorted(frozenset().union(*(p.manifest.lineage for p in parents)) - direct)),
        parameters=dict(larger.manifest.parameters),
        input=_input(extended),
        software=software_versions(),
        layout=layout,
        graph=degree_facts(graph.degrees),
        drift=drift_of(larger, graph, layout["overlap_ratio"]),
        certificate=None,
        files=files,
    )


def _input(extended: Extended) -> dict[str, Any]:
    larger, addition = extended.larger, extended.addition
    old = str(larger.manifest.input.get("fingerprint"))
    prints = [old, addition.fingerprint] if extended.larger_first else [addition.fingerprint, old]
    joined = "".join(f"{fingerprint}\n" for fingerprint in prints)
    return {
        "n_vectors": larger.n + addition.n,
        "dim": larger.dim,
        "dtype": larger.input_dtype,
        "fingerprint": hashlib.sha256(joined.encode()).hexdigest(),
        **{key: value for key, value in larger.manifest.input.items() if key == "imported"},
    }


def _layout(extended: Extended) -> dict[str, Any]:
    larger, graph = extended.larger, extended.graph
    node, n = larger.space.node, len(extended.order)
    fill = n * node.node_bytes / (node.n_pages(n) * PAGE_BYTES)
    metrics = layout_metrics(
        graph.neighbours, graph.degrees, extended.order, max(node.nodes_per_page, 1), fill
    )
    rounded = {name: round(value, 6) for name, value in asdict(metrics).items()}
    return {"order": larger.order, **rounded}
