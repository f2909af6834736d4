"""Stage *emit*: the page-aligned files of an index, in slot order, and a manifest without a certificate."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from indexmill.builders.scalar import Scale, fit_scale
from indexmill.formats.codes import write_codes
from indexmill.formats.entries import EntryVertices, write_entries
from indexmill.formats.errors import ConfigError
from indexmill.formats.graph import write_graph
from indexmill.formats.ids import write_ids
from indexmill.formats.manifest import seal_files
from indexmill.formats.navigation import NAVIGATION_NAME, write_navigation
from indexmill.formats.nodes import NodeBlock, NodeFormat
from indexmill.layout.order import invert
from indexmill.pipeline.encode import load_codebook
from indexmill.pipeline.graph import load_graph
from indexmill.pipeline.ingest import InputSummary, read_ids, read_summary
from indexmill.pipeline.navigation import load_navigation

VERSION = 2
#: What the stage tells the manifest; not part of the index.
RECORD = "emit.json"
#: Slots assembled at a time: 64 MiB of pages at 260 bytes a node.
_BLOCK = 262_144


class EmitInputs(NamedTuple):
    """Directories of the stages that feed the files; `navigation` is None in a build without."""

    ingest: str
    cluster: str
    graph: str
    entries: str
    encode: str
    order: str
    navigation: str | None


def node_format(dtype: str, dim: int, max_degree: int, node_dtype: str) -> NodeFormat:
    """Return the node of an index whose stored vectors have type `dtype`."""
    return NodeFormat(dim, dtype if node_dtype == "same" else node_dtype, max_degree)


def check_range(summary: InputSummary, node: NodeFormat) -> None:
    """Refuse float16 nodes for values that float16 cannot hold.

    Raises
    ------
    ConfigError
        Naming the component and its value.
    """
    extremes = np.maximum(np.abs(summary.minimum), np.abs(summary.maximum))
    if node.dtype == "float16" and extremes.max() > np.finfo(np.float16).max:
        j = int(extremes.argmax())
        raise ConfigError(
            f"node_dtype: float16 holds at most 65504, but component {j} reaches {extremes[j]:g}; use sq16, sq8 or same"
        )


def emit_task(
    inputs: EmitInputs, node: NodeFormat, metric: str, out: str, threads: int, advance: Any = None
) -> None:
    """Write ``graph.imx``, ``codes.imx`` and the other files of an index but its manifest, stamped."""
    directory = Path(out)
    order = np.load(Path(inputs.order) / "order.npy")
    summary = read_summary(Path(inputs.ingest))
    slots = invert(order)
    scale = None
    if node.dtype in ("sq8", "sq16"):
        scale = fit_scale(np.array(summary.minimum), np.array(summary.maximum), int(node.dtype[2:]))
    write_graph(
        directory / "graph.imx",
        node,
        len(order),
        metric,
        _nodes(inputs, node, order, slots, scale, advance),
        max_norm=summary.max_norm,
        scale=None if scale is None else (scale.minimum, scale.step),
    )
    codes = np.load(Path(inputs.encode) / "codes.npy", mmap_mode="r")
    blocks = (codes[order[first : first + _BLOCK]] for first in range(0, len(order), _BLOCK))
    write_codes(directory / "codes.imx", load_codebook(Path(inputs.encode)), len(order), blocks)
    medoid = json.loads((Path(inputs.cluster) / "cluster.json").read_text())["medoid"]
    centroids = np.load(Path(inputs.entries) / "centroids.npy")
    vertices = slots[np.load(Path(inputs.entries) / "vertices.npy")]
    write_entries(
        directory / "entries.imx", EntryVertices(int(slots[medoid]), centroids, vertices), len(order)
    )
    if inputs.navigation is not None:
        navigation = load_navigation(Path(inputs.navigation), slots)
        write_navigation(directory / NAVIGATION_NAME, navigation, len(order))
    ids = read_ids(Path(inputs.ingest))
    write_ids(directory / "ids.imx", order, None if ids is None else ids.take(pa.array(order)))
    metadata = Path(inputs.ingest) / "metadata.parquet"
    if metadata.exists():
        shutil.copyfile(metadata, directory / metadata.name)
    _seal(directory)


def _seal(directory: Path) -> None:
    """Write the build id into every page file, and the id and the list of files into `RECORD`."""
    names = [p.name for p in directory.iterdir() if p.suffix in (".imx", ".parquet")]
    identity, files = seal_files(directory, names)
    (directory / RECORD).write_text(
        json.dumps({"build_id": identity, "files": [asdict(file) for file in files]})
    )


def _nodes(
    inputs: EmitInputs, node: NodeFormat, order: Any, slots: Any, scale: Scale | None, advance: Any
) -> Iterator[NodeBlock]:
    vectors = np.load(Path(inputs.ingest) / "vectors.npy", mmap_mode="r")
    graph = load_graph(Path(inputs.graph))
    for first in range(0, len(order), _BLOCK):
        chosen = order[first : first + _BLOCK]
        rows = vectors[chosen]
        if scale is not None:
            rows = scale.encode(rows)
        elif node.dtype == "float16":
            rows = rows.astype(np.float16)
        yield NodeBlock(rows, slots[graph.neighbours[chosen]], graph.degrees[chosen])
        if advance is not None:
            advance(len(chosen))
