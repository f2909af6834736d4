"""Shape of a graph build: numbers of its vectors, and bytes of the graph in one piece, as a shard, and in files.

`pipeline.kinds.graph.size` chooses the shape for a job; this file reads no job.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from indexmill.builders.partition.build import FANOUTS, Fanouts, partitioned_bytes
from indexmill.builders.partition.carve import LEAF_MOST
from indexmill.builders.quantize.pq import N_CENTRES
from indexmill.builders.vamana.build import list_capacity
from indexmill.builders.vamana.entries import n_entries
from indexmill.builders.vamana.navigation import NAVIGATION_VAMANA, navigation_size
from indexmill.formats.graph.nodes import NodeFormat
from indexmill.formats.index.vectors import RowFormat
from indexmill.layout.portfolio import USES_POINTS
from indexmill.pipeline.bisection import greatest
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, THREAD_BYTES, sort_buffer_bytes
from indexmill.pipeline.kinds.common.shape import Shape
from indexmill.pipeline.kinds.graph.parameters import TAKEN_TYPES, Parameters
from indexmill.pipeline.kinds.graph.regions.cut import SampledCells
from indexmill.pipeline.kinds.graph.regions.memory import Allowance

#: Bytes of a checksum, one a page.
_CHECKSUM_BYTES = 4
#: Nearest vectors of a query of a sample that are linked.
ASKED_NEAREST = 20
#: Queries of a sample that are compared with vectors at a time.
QUERY_BLOCK = 8192
#: A graph smaller than this is not worth a shard.
LEAST_SHARD = 1024


@dataclass(frozen=True)
class GraphShape(Shape):
    """Vectors, and how a graph of them is built.

    Attributes
    ----------
    parameters : Parameters
    region_bytes : int, optional
        Memory of a task where the partition builder makes the graph region by region.
    n_asked : int
        Queries of a sample that shapes the graph; 0 without one.
    label_column : str, optional
        The metadata column of labels that edges stay within.
    label_row_bytes : float
        About how many bytes a row its different values take.
    label_share : float
        About the share of the vectors that have the label of a vector.
    fanouts : (int, int)
        Leaders that a vector goes to on each level, where the partition builder makes the graph.
    by_codes : bool
        Whether the partition builder makes a graph in one piece from byte codes of float vectors
        (`builders.partition.coded`), within the same memory.
    cells : SampledCells, optional
        What a sample foretells of regions.
    """

    parameters: Parameters
    region_bytes: int | None = None
    n_asked: int = 0
    label_column: str | None = None
    label_row_bytes: float = 0.0
    label_share: float = 0.0
    fanouts: Fanouts = FANOUTS
    by_codes: bool = False
    cells: SampledCells | None = field(default=None, compare=False)

    @property
    def comparable_bytes(self) -> int:
        """Bytes of a vector in a type that kernels compute with (`builders.distances.comparable`)."""
        return self.dim * (1 if self.dtype.itemsize == 1 else 4)

    @property
    def is_comparable(self) -> bool:
        """Whether vectors are stored in such a type."""
        return self.comparable_bytes == self.row_bytes and self.dtype.kind != "i"

    @property
    def is_taken(self) -> bool:
        """Whether the builder takes vectors as they are stored; else it takes comparable ones."""
        return self.dtype.name in TAKEN_TYPES[self.parameters.builder]

    @property
    def taken_bytes(self) -> int:
        """Bytes of a vector as the builder takes it."""
        return self.row_bytes if self.is_taken else self.comparable_bytes

    @property
    def searched_bytes(self) -> int:
        """Bytes of a vector as the searches of a build compare it."""
        return self.dim if self.parameters.build_codes == "sq8" else self.taken_bytes

    @property
    def is_converted(self) -> bool:
        """Whether vectors are converted for the builder or for the order."""
        ordered = self.parameters.order in USES_POINTS and not self.is_comparable
        return ordered or not self.is_taken

    @property
    def node(self) -> NodeFormat:
        """The node of the index that is built."""
        p = self.parameters
        dtype = str(self.dtype) if p.node_dtype == "same" else p.node_dtype
        return NodeFormat(self.dim, dtype, p.max_degree, node_code_bytes(p, self.dim, p.pq_bytes))

    @property
    def kept(self) -> RowFormat | None:
        """The exact vectors that are kept apart from the nodes, if they are."""
        return RowFormat(self.dim, str(self.dtype)) if self.parameters.keep_vectors else None

    @property
    def kept_bytes(self) -> int:
        """Bytes of one of them; 0 if they are not kept."""
        return 0 if self.kept is None else self.row_bytes

    @property
    def kept_pages(self) -> int:
        """Pages of all of them."""
        return 0 if self.kept is None else self.kept.n_pages(self.n)

    @property
    def record_bytes(self) -> int:
        """Bytes of a vertex on its way to its page: node, code, and the exact vector if it is kept."""
        return self.node.node_bytes + self.parameters.pq_bytes + self.kept_bytes

    @property
    def rotation_bytes(self) -> int:
        """Bytes of the rotation of codes, in memory and in a file."""
        return 4 * self.dim**2 if self.parameters.pq_rotation == "opq" else 0

    @property
    def all_codes_bytes(self) -> int:
        """Bytes of the codes of all vectors, in memory and in a file."""
        return self.n * min(self.parameters.pq_bytes, self.dim)

    @property
    def codebook_bytes(self) -> int:
        """Bytes of the centres of codes and of their rotation, likewise."""
        return N_CENTRES * 4 * self.dim + self.rotation_bytes

    @property
    def entries_bytes(self) -> int:
        """Bytes of the entry vertices, likewise."""
        return n_entries(self.parameters.entries, self.n) * 4 * (self.dim + 1)

    @property
    def navigation_bytes(self) -> int:
        """Bytes of the navigation graph, likewise."""
        return navigation_size(self.parameters.navigation, self.n) * 4 * (NAVIGATION_VAMANA.max_degree + 2)

    @property
    def held_bytes(self) -> int:
        """Bytes that searches of the index hold, beside the cache of nodes."""
        shared = self.codebook_bytes + self.entries_bytes + self.navigation_bytes
        if self.parameters.codes_on_page:  # blocks of nodes have checksums of their own
            return shared
        return shared + _CHECKSUM_BYTES * (self.kept_pages + self.node.n_pages(self.n)) + self.all_codes_bytes

    @property
    def drawn(self) -> int:
        """Vectors of the training sample."""
        return min(self.parameters.sample_vectors, self.n)

    @property
    def asked_nearest(self) -> int:
        """Nearest vectors of each query of a sample."""
        return min(ASKED_NEAREST, self.n)

    def allowance(self, memory: int) -> Allowance:
        """Return the memory of the tasks of a region, `region_bytes` of a budget of `memory`."""
        assert self.region_bytes is not None
        row, p = self.taken_bytes, self.parameters
        return Allowance(
            self.region_bytes,
            sort_buffer_bytes(memory),
            row,
            p.max_degree,
            p.saturate,
            allowance_step(memory),
            self.fanouts,
        )


def node_code_bytes(p: Parameters, dim: int, pq_bytes: int) -> int:
    """Return the bytes that a node takes for each neighbour's code of `pq_bytes`: none where codes are in memory."""
    if not p.codes_on_page:
        return 0
    return min(pq_bytes, dim)


def allowance_step(memory: int) -> int:
    """Return the step that the memory of a region is a multiple of.

    The step is coarse, so that a killed build that resumes with a few workers more or fewer finds its files.
    """
    return (memory - FIXED_BYTES) // 16


def unite_row_bytes(shape: GraphShape) -> int:
    """Return the memory of a vertex while lists are united: its lists from shards, twice, and the united one."""
    p = shape.parameters
    return int((2 * (1 + p.overlap) + 1) * p.max_degree * 4) + 16


def built_bytes(m: int, shape: GraphShape) -> int:
    """Return the memory of building the graph of `m` vectors in one piece."""
    p = shape.parameters
    if p.builder == "partition":
        return partitioned_bytes(m, shape.taken_bytes, p.max_degree, p.saturate, shape.fanouts)
    coded = shape.dim * (p.build_codes == "sq8")
    return graph_bytes(m, shape.row_bytes + coded, p.max_degree)


def leaf_work_bytes(shape: GraphShape) -> int:
    """Return the work space of a thread that compares leaves, their rows included; 0 for a builder without leaves."""
    if shape.parameters.builder != "partition":
        return 0
    return leaf_bytes(shape.comparable_bytes)


def leaf_bytes(row_bytes: int) -> int:
    """Return the work space of a thread that compares leaves of rows of `row_bytes` bytes."""
    return THREAD_BYTES + LEAF_MOST * row_bytes


def graph_bytes(m: int, row_bytes: int, max_degree: int) -> int:
    """Return the memory of inserting `m` vectors of `row_bytes` bytes into a graph in one piece."""
    batch = max_degree // 4 + 1  # edges of the vertices that are inserted at a time
    return m * (row_bytes + 4 * list_capacity(max_degree) + 16 + batch)


def shard_bytes(m: int, shape: GraphShape, memory: int) -> int:
    """Return the memory of a shard of `m` vectors while they are collected, converted if the builder asks, and built.

    Keys and vector ids stay in memory to the end.
    """
    collecting = m * shape.row_bytes + sort_buffer_bytes(memory) // 4
    converting = 0 if shape.is_taken else m * (shape.row_bytes + shape.taken_bytes)
    return 8 * m + max(collecting, converting, built_bytes(m, shape))


def shard_size(shape: GraphShape, memory: int) -> int:
    """Return the most vectors of a shard within `memory` bytes, at most all; 0 if no shard is worth building."""
    available = memory - FIXED_BYTES
    if built_bytes(shape.n, shape) <= available:
        return shape.n
    if shard_bytes(LEAST_SHARD, shape, memory) > available:
        return 0
    return greatest(lambda m: shard_bytes(m, shape, memory) <= available, LEAST_SHARD, shape.n + 1)
