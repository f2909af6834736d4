"""Stages *pack* and *emit*: nodes sorted by slot, then the page-aligned files of an index.

Laying nodes out anew is an external sort: *pack* reads the vertices front to back and writes each as a record (slot;
node, code, and the exact vector if it is kept apart), *emit* sorts the records by slot into pages. Nothing is read at
random, and nothing but the maps between vertices and slots grows with the index.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.builders.quantize.scalar import Scale, fit_scale
from indexmill.formats.chunks.reader import Records
from indexmill.formats.chunks.writer import write_chunk
from indexmill.formats.errors import ConfigError
from indexmill.formats.graph.codes import Codebook, write_codes
from indexmill.formats.graph.entries import EntryVertices, write_entries
from indexmill.formats.graph.file import ScaleArrays, write_graph
from indexmill.formats.graph.navigation import NAVIGATION_NAME, Navigation, write_navigation
from indexmill.formats.graph.nodes import NodeBlock, NodeFormat
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.vectors import VECTORS_NAME, RowFormat, VectorsWriter, writing_vectors
from indexmill.pipeline.kinds.common.encode import load_codebook
from indexmill.pipeline.kinds.common.ingest import InputSummary, read_ids, read_summary
from indexmill.pipeline.kinds.common.record import seal
from indexmill.pipeline.kinds.graph.navigation import load_navigation
from indexmill.pipeline.kinds.graph.tasks import load_graph
from indexmill.pipeline.mill.external_sort import sorted_records

PACK_VERSION = 1
EMIT_VERSION = 4
#: Facts for run.json, in the directory of stage *emit*.
RUN_FACTS = "run-facts.json"
#: The format that was chosen, and what was tried, in the directory of stage *format*.
FORMAT_FACTS = "format.json"
#: Why a format that the job left open was not measured: a key of the manifest's facts about the graph.
UNMEASURED = "format_unmeasured"
#: Codes written at a time.
_BLOCK = 262_144


class EmitInputs(NamedTuple):
    """Directories of the stages that feed the files; `navigation` and `format` are None in a build without."""

    ingest: str
    cluster: str
    graph: str
    entries: str
    encode: str
    order: str
    navigation: str | None
    format: str | None = None


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


class NodeRecords(NamedTuple):
    """The nodes of an index on their way to their slots, as records of chunk files: key slot, value vertex.

    Attributes
    ----------
    node : NodeFormat
    n : int
        Slots of the index.
    code_bytes : int
    kept : RowFormat or None
        Exact vectors that are written apart.
    """

    node: NodeFormat
    n: int
    code_bytes: int
    kept: RowFormat | None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Packed type of a record's payload."""
        return np.dtype(
            [
                ("vector", self.node.element_dtype, (self.node.dim,)),
                ("neighbours", "<u4", (self.node.max_degree,)),
                ("degree", "<u4"),
                ("code", "u1", (self.code_bytes,)),
                *(
                    [("codes", "u1", (self.node.max_degree, self.node.code_bytes))]
                    if self.node.code_bytes
                    else []
                ),
                *([] if self.kept is None else [("exact", self.kept.element_dtype, (self.kept.dim,))]),
            ]
        )

    def write(
        self, out: str | Path, block: NodeBlock, codes: NDArray[np.uint8], exact: NDArray[Any] | None,
        slots: NDArray[np.uint32], vertices: NDArray[np.uint32], batch_bytes: int,
    ) -> None:  # fmt: skip
        """Write a chunk file.

        Parameters
        ----------
        block : NodeBlock
            Its neighbours are slots of the layout to come.
        codes : uint8 array, shape (m, M)
        exact : array, shape (m, dim), optional
            Vectors that are kept apart.
        slots, vertices : uint32 arrays, shape (m,)
        """
        nodes = np.empty(len(block), self.dtype)
        nodes["vector"] = block.vectors
        nodes["neighbours"] = block.neighbours
        nodes["degree"] = block.degrees
        nodes["code"] = codes
        if self.node.code_bytes:
            assert block.codes is not None
            nodes["codes"] = block.codes
        if exact is not None:
            nodes["exact"] = exact
        payload = nodes.view(np.uint8).reshape(len(nodes), -1)
        records = Records(np.ascontiguousarray(slots), vertices, payload)
        write_chunk(out, records, [0, self.n], batch_bytes=batch_bytes)

    def by_slot(
        self, chunks: list[str], buffer_bytes: int, codes_path: Path, exact: VectorsWriter | None, advance: Any,
    ) -> Iterator[NodeBlock]:  # fmt: skip
        """Yield the nodes of chunk files in slot order; write codes to `codes_path`, and exact vectors, on the way."""
        dtype = self.dtype
        with open(codes_path, "wb") as codes:
            for _, _, payload in sorted_records(chunks, 0, self.n, buffer_bytes=buffer_bytes):
                records = payload.reshape(-1).view(dtype)
                codes.write(np.ascontiguousarray(records["code"]).data)
                if exact is not None:
                    exact.write(records["exact"])
                yield NodeBlock(
                    np.ascontiguousarray(records["vector"]),
                    np.ascontiguousarray(records["neighbours"], np.uint32),
                    records["degree"],
                    records["codes"] if self.node.code_bytes else None,
                )
                if advance is not None:
                    advance(len(records))


def pack_task(
    inputs: EmitInputs, node: NodeFormat, kept: RowFormat | None, first: int, last: int, batch_bytes: int, out: str
) -> None:  # fmt: skip
    """Write the chunk file of vertices `first` to `last`: see `NodeRecords`."""
    slots = np.load(Path(inputs.order) / "slots.npy", mmap_mode="r")
    graph = load_graph(Path(inputs.graph))
    codes = np.load(Path(inputs.encode) / "codes.npy", mmap_mode="r")
    vectors = np.load(Path(inputs.ingest) / "vectors.npy", mmap_mode="r")[first:last]
    scale = _scale(read_summary(Path(inputs.ingest)), node)
    stored = vectors if scale is None else scale.encode(vectors)
    neighbours = graph.neighbours[first:last]
    neighbour_codes = codes[neighbours] if node.code_bytes else None
    block = NodeBlock(stored, slots[neighbours], graph.degrees[first:last], neighbour_codes)
    vertices = np.arange(first, last, dtype=np.uint32)
    records = NodeRecords(node, len(slots), codes.shape[1], kept)
    exact = None if kept is None else vectors
    records.write(out, block, codes[first:last], exact, slots[first:last], vertices, batch_bytes)


def emit_task(
    inputs: EmitInputs,
    chunks: list[str],
    node: NodeFormat,
    kept: RowFormat | None,
    metric: str,
    known: dict[str, str],
    buffer_bytes: int,
    out: str,
    threads: int,
    advance: Any = None,
) -> None:
    """Write ``graph.imx``, ``codes.imx`` and the other files of an index but its manifest, stamped.

    `known` are facts about the graph that no stage writes.
    """
    directory = Path(out)
    order = np.load(Path(inputs.order) / "order.npy", mmap_mode="r")
    slots = np.load(Path(inputs.order) / "slots.npy", mmap_mode="r")
    summary = read_summary(Path(inputs.ingest))
    codebook = load_codebook(Path(inputs.encode))
    scale = _scale(summary, node)
    records = NodeRecords(node, len(order), len(codebook.offsets) - 1, kept)
    write_pages(
        directory, chunks, records, codebook, metric, buffer_bytes, advance, max_norm=summary.max_norm,
        scale=None if scale is None else (scale.minimum, scale.step),
    )  # fmt: skip
    medoid = json.loads((Path(inputs.cluster) / "cluster.json").read_text())["medoid"]
    centroids = np.load(Path(inputs.entries) / "centroids.npy")
    vertices = slots[np.load(Path(inputs.entries) / "vertices.npy")]
    entries = EntryVertices(int(slots[medoid]), centroids, vertices)
    navigation = None if inputs.navigation is None else load_navigation(Path(inputs.navigation), slots)
    write_starts(directory, len(order), entries, navigation)
    ids = read_ids(Path(inputs.ingest))
    write_ids(directory / "ids.imx", order, None if ids is None else ids.take(pa.array(order)))
    facts = json.loads((Path(inputs.order) / "layout.json").read_text())
    run_facts = facts.pop("run")
    chosen = Path(inputs.format or inputs.ingest) / FORMAT_FACTS  # of a part, what was chosen for its set
    if inputs.format or chosen.exists():
        facts["graph"]["format"] = json.loads(chosen.read_text())
    facts["graph"] |= known
    seal(directory, facts, Path(inputs.ingest))
    (directory / RUN_FACTS).write_text(json.dumps(run_facts))  # after the seal: no file of the index


def write_pages(
    directory: Path, chunks: list[str], records: NodeRecords, codebook: Codebook, metric: str, buffer_bytes: int,
    advance: Any = None, *, max_norm: float, scale: ScaleArrays | None,
) -> None:  # fmt: skip
    """Sort chunk files of `records` into ``graph.imx``, ``codes.imx`` and, if they are kept, ``vectors.imx``.

    Memory: `buffer_bytes` for the sort, and about 16 MiB of nodes on their way to their pages.
    """
    codes_path, n, kept = directory / "codes.bin", records.n, records.kept
    with ExitStack() as stack:
        exact = None
        if kept is not None:
            exact = stack.enter_context(writing_vectors(directory / VECTORS_NAME, kept, n, metric, max_norm))
        nodes = records.by_slot(chunks, buffer_bytes, codes_path, exact, advance)
        write_graph(directory / "graph.imx", records.node, n, metric, nodes, max_norm=max_norm, scale=scale)
    codes = np.memmap(codes_path, np.uint8, "r", shape=(n, records.code_bytes))
    write_codes(directory / "codes.imx", codebook, n, (codes[at : at + _BLOCK] for at in range(0, n, _BLOCK)))
    codes_path.unlink()


def write_starts(directory: Path, n: int, entries: EntryVertices, navigation: Navigation | None) -> None:
    """Write what searches of `n` nodes start from: ``entries.imx``, and ``navigation.imx`` unless there is none."""
    write_entries(directory / "entries.imx", entries, n)
    if navigation is not None:
        write_navigation(directory / NAVIGATION_NAME, navigation, n)


def _scale(summary: InputSummary, node: NodeFormat) -> Scale | None:
    if node.dtype not in ("sq8", "sq16"):
        return None
    return fit_scale(np.array(summary.minimum), np.array(summary.maximum), int(node.dtype[2:]))
