"""graph.imx: nodes in slot order, each with its vector and neighbour list (docs/formats/graph.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.graph.codes import MAX_BYTES
from indexmill.formats.graph.nodes import NodeBlock, NodeFormat, check_block, pack_nodes, unpack_nodes
from indexmill.formats.pagefile.field_codes import DTYPE_CODES, METRIC_CODES, name_of
from indexmill.formats.pagefile.frame import MAX_STORED_DIM, PAGE_BYTES, corrupt, f64_from_bits
from indexmill.formats.pagefile.reader import KindFile, PageFile
from indexmill.formats.pagefile.writer import PageFileWriter

KIND = "GRPH"
#: Bytes of nodes converted to pages at a time.
BLOCK_BYTES = 1 << 20

#: Minimum and step of each component, float32 arrays of shape (dim,).
ScaleArrays = tuple[NDArray[np.float32], NDArray[np.float32]]


def write_graph(
    path: str | Path,
    node_format: NodeFormat,
    n_vertices: int,
    metric: str,
    blocks: Iterable[NodeBlock],
    max_norm: float = 0.0,
    scale: ScaleArrays | None = None,
) -> None:
    """Write graph.imx from blocks of nodes in slot order. Memory: one block and 4 MiB of pages.

    Parameters
    ----------
    n_vertices : int
        Total number of nodes of `blocks`.
    metric : {"l2", "ip", "cosine"}
    blocks : iterable of NodeBlock
        Of any size; entries of ``neighbours`` and ``codes`` beyond a node's degree are ignored.
    max_norm : float
        Largest Euclidean norm of an input vector, for metric ip.
    scale : tuple of two float32 arrays, shape (dim,), optional
        Minimum and step of each component, for sq16 and sq8 only.

    Raises
    ------
    ValueError
        If shapes, types, degrees or slots of a block are invalid, or the number of nodes differs.
    """
    if not 1 <= n_vertices < 2**32:
        raise ValueError(f"a graph has 1 to 2^32 - 1 vertices, not {n_vertices}")
    if (scale is None) == node_format.quantized:
        raise ValueError("a scale belongs to sq16 and sq8 nodes, and to no others")
    fields: dict[str, int | float] = {
        "n_vertices": n_vertices,
        "dim": node_format.dim,
        "dtype": DTYPE_CODES[node_format.dtype],
        "metric": METRIC_CODES[metric],
        "max_degree": node_format.max_degree,
        "node_bytes": node_format.node_bytes,
        "nodes_per_page": node_format.nodes_per_page,
        "pages_per_node": node_format.pages_per_node,
        "max_norm": float(max_norm),
    }
    if node_format.code_bytes:
        fields["code_bytes"] = node_format.code_bytes
    with PageFileWriter(path, KIND, fields) as file:
        with file.section("nodes") as section:
            first = 0
            for block in _whole_pages(node_format, n_vertices, blocks):
                section.write(pack_nodes(node_format, block, first))
                first += len(block)
        if scale is not None:
            minimum, step = (np.ascontiguousarray(part, dtype="<f4") for part in scale)
            if minimum.shape != (node_format.dim,) or step.shape != (node_format.dim,):
                raise ValueError(f"scale: shape ({node_format.dim},), not {minimum.shape} and {step.shape}")
            with file.section("scale") as section:
                section.write(minimum)
                section.write(step)


def _whole_pages(
    node_format: NodeFormat, n_vertices: int, blocks: Iterable[NodeBlock]
) -> Iterator[NodeBlock]:
    """Check blocks, and yield their nodes in blocks of whole pages, except the last one."""
    group = node_format.nodes_per_group
    most = max(group, BLOCK_BYTES // node_format.group_bytes * group)
    waiting: list[NodeBlock] = []
    n_waiting = done = 0
    for block in blocks:
        waiting.append(check_block(node_format, block, n_vertices, done))
        done += len(block)
        n_waiting += len(block)
        if n_waiting < most:
            continue
        joined = NodeBlock.concatenate(waiting)
        whole = n_waiting - n_waiting % group
        for first in range(0, whole, most):
            yield joined[first : min(first + most, whole)]
        waiting, n_waiting = [joined[whole:]], n_waiting - whole
    if done != n_vertices:
        raise ValueError(f"nodes: {done} given for {n_vertices} vertices")
    if n_waiting:
        yield NodeBlock.concatenate(waiting)


def _code_bytes(file: PageFile) -> int:
    return file.field("code_bytes", 1, MAX_BYTES) if "code_bytes" in file.fields else 0


class GraphFile(KindFile):
    """An opened graph.imx; pages are checked as they are read.

    Attributes
    ----------
    n_vertices : int
    node_format : NodeFormat
    metric : str
    max_norm : float
        Largest Euclidean norm of an input vector; 0 unless the metric is ip.

    Raises
    ------
    FormatError
        If the file is not an intact graph.imx.
    """

    kind = KIND

    def scale(self) -> ScaleArrays | None:
        """Return minimum and step, float32 (dim,), of sq16 and sq8 components; None for other types."""
        if not self.node_format.quantized:
            return None
        dim = self.node_format.dim
        both = self.file.array("scale", "<f4", 2, dim)
        return both[0], both[1]

    def read_nodes(self, first: int, count: int) -> NodeBlock:
        """Return the nodes of slots `first` to ``first + count``; entries beyond a node's degree are zero.

        Raises
        ------
        IndexError
            If there are fewer slots.
        CorruptFile
            If a page's CRC differs, a degree is above R or a neighbour is no slot.
        """
        if first < 0 or count < 0 or first + count > self.n_vertices:
            raise IndexError(f"{self.path}: {self.n_vertices} slots, not {first}..{first + count}")
        f = self.node_format
        group = first // f.nodes_per_group
        n_groups = -(-(first + count) // f.nodes_per_group) - group if count else 0
        pages = self.file.read_pages("nodes", group * f.pages_per_node, n_groups * f.pages_per_node)
        skip = first - group * f.nodes_per_group
        block = unpack_nodes(f, pages)[skip : skip + count]
        try:
            return check_block(f, block, self.n_vertices, first)
        except ValueError as error:
            page = 1 + group * f.pages_per_node
            raise corrupt(
                self.path, f"node from page {page} on", "degree and neighbours in range", error
            ) from error

    def read_all(self) -> NodeBlock:
        """Return all nodes. Memory: the whole file."""
        return self.read_nodes(0, self.n_vertices)

    def blocks(self) -> Iterator[NodeBlock]:
        """Yield all nodes in slot order in blocks of about 4 MiB."""
        f = self.node_format
        most = max(1, BLOCK_BYTES // f.group_bytes) * f.nodes_per_group
        for first in range(0, self.n_vertices, most):
            yield self.read_nodes(first, min(most, self.n_vertices - first))

    def _read_fields(self, file: PageFile) -> None:
        self.n_vertices = file.field("n_vertices", 1, 2**32 - 1)
        self.metric = name_of(METRIC_CODES, file.field("metric", 1, len(METRIC_CODES)))
        dtype = name_of(DTYPE_CODES, file.field("dtype", 1, len(DTYPE_CODES)))
        self.max_norm = f64_from_bits(file.field("max_norm"))
        dim, max_degree = file.field("dim", 1, MAX_STORED_DIM), file.field("max_degree")
        try:
            self.node_format = f = NodeFormat(dim, dtype, max_degree, _code_bytes(file))
        except ValueError as error:
            raise corrupt(self.path, "fields", "a node that can exist", error) from error
        for name in ("node_bytes", "nodes_per_page", "pages_per_node"):
            file.field(name, getattr(f, name), getattr(f, name))
        file.payload_bytes("nodes", f.n_pages(self.n_vertices) * PAGE_BYTES)
        if f.quantized:
            file.payload_bytes("scale", 8 * f.dim)
