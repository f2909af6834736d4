"""Sizes of tasks, record batches and shards within the memory of a build; `pipeline.kinds.graph.memory` adds them up.

Memory means anonymous memory of all our processes on one machine; files that are read through the page cache do
not count, the system takes those pages back when it needs them. Everything is bounded by a part of the budget,
except what grows with the number of vectors: the maps between vertices and slots, star packing, and the codes that
every search of the finished index holds too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from indexmill.builders.partition.build import partitioned_bytes
from indexmill.builders.partition.carve import LEAF_MOST
from indexmill.builders.vamana.build import list_capacity
from indexmill.formats.graph.nodes import NodeFormat
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.layout.portfolio import USES_POINTS
from indexmill.pipeline.execution.limits import MOST_NARROW
from indexmill.pipeline.kinds.graph.regions.memory import Room, most_scratch
from indexmill.pipeline.spec import BUILDERS_OF_ALL_TYPES, Parameters

#: Kept out of shards and tasks: the interpreter with numba, Arrow and scikit-learn, and what compiling kernels takes
#: the first time a build runs on a machine.
FIXED_BYTES = 256 << 20
#: Work space of BLAS in each thread after the first; of kernels, in each.
THREAD_BYTES = 8 << 20
#: A graph smaller than this is not worth a shard.
LEAST_SHARD = 1024
_LEAST_TASK, _MOST_TASK = 8 << 20, 4 << 30
#: Record batches of a chunk file: small ones cost messages, large ones buffers of the merge.
_LEAST_BATCH, _MOST_BATCH = 4 << 10, 1 << 20
#: Most buffers of a merge, and what a record batch takes beside its columns.
_MOST_MERGE, _MESSAGE_BYTES = 128 << 20, 8 << 10
#: Tasks of a stage at least, where there are enough vectors: workers finish together.
_LEAST_TASKS, _LEAST_ROWS = 8, 32_768
#: Samples, centroids, page headers: scratch space that does not grow with the input.
_SCRATCH_SLACK = 256 << 20


@dataclass(frozen=True)
class Shape:
    """What memory depends on.

    Attributes
    ----------
    n, dim : int
        Stored vectors and their components.
    dtype : numpy dtype
        Type the vectors are stored in.
    id_bytes : float
        Of a user id, about; 0 where there are none.
    parameters : Parameters
    region_bytes : int, optional
        What a task may hold of a graph that the partition builder makes region by region.
    """

    n: int
    dim: int
    dtype: np.dtype[np.generic]
    id_bytes: float
    parameters: Parameters
    region_bytes: int | None = None

    @property
    def row_bytes(self) -> int:
        """A stored vector."""
        return self.dim * self.dtype.itemsize

    @property
    def comparable_bytes(self) -> int:
        """A vector whose components can be computed with (`builders.distances.comparable`)."""
        return self.dim * (1 if self.dtype.itemsize == 1 else 4)

    @property
    def is_comparable(self) -> bool:
        """Whether that is a vector as it is stored."""
        return self.comparable_bytes == self.row_bytes and self.dtype.kind != "i"

    @property
    def takes_all_types(self) -> bool:
        """Whether the builder takes vectors as they are stored; else it takes comparable ones."""
        return self.parameters.builder in BUILDERS_OF_ALL_TYPES

    @property
    def taken_bytes(self) -> int:
        """A vector as the builder takes it."""
        return self.row_bytes if self.takes_all_types else self.comparable_bytes

    @property
    def searched_bytes(self) -> int:
        """A vector as searches compare it while they build."""
        return self.dim if self.parameters.build_codes == "sq8" else self.taken_bytes

    @property
    def is_converted(self) -> bool:
        """Whether the builder or the order takes vectors in another type than they are stored in."""
        wanted = not self.takes_all_types or self.parameters.order in USES_POINTS
        return wanted and not self.is_comparable

    def room(self, memory: int) -> Room:
        """What the tasks of a region may hold, `region_bytes` of a budget of `memory`."""
        assert self.region_bytes is not None
        row, p = self.comparable_bytes, self.parameters
        return Room(self.region_bytes, merge_bytes(memory), row, p.max_degree, p.saturate, room_step(memory))


def task_bytes(memory: int) -> int:
    """Return the memory of one narrow task; workers, which must not decide bytes, have no part in it."""
    return int(np.clip((memory - FIXED_BYTES) // MOST_NARROW, _LEAST_TASK, _MOST_TASK))


def task_bounds(n: int, bytes_a_row: int, memory: int, align: int = 1) -> list[int]:
    """Return the bounds of tasks that each hold `bytes_a_row` for every row of theirs.

    All but the last are multiples of `align`, for tasks whose results depend on where blocks of rows begin.
    """
    tasks = max(-(-n * bytes_a_row // task_bytes(memory)), min(_LEAST_TASKS, n // _LEAST_ROWS), 1)
    return sorted({*(n * t // tasks // align * align for t in range(tasks)), n})


def narrow_tasks(n: int, bytes_a_row: int, memory: int) -> tuple[int, int]:
    """Return the rows of a narrow task, and how many tasks there are."""
    tasks = len(task_bounds(n, bytes_a_row, memory)) - 1
    return -(-n // tasks), tasks


class Narrow(NamedTuple):
    """A stage of narrow tasks, which run beside each other as far as they fit.

    Attributes
    ----------
    tasks : int
    bytes : int
        What a task takes, at most, beside the work space of its thread.
    """

    tasks: int
    bytes: int

    def fitting(self, memory: int, workers: int, processes: int) -> int:
        """Return how many tasks fit at once beside the work space of all threads: one, if none does.

        Parameters
        ----------
        processes : int
            Bytes that worker processes take without vectors.
        """
        return max((memory - FIXED_BYTES - processes - workers * THREAD_BYTES) // self.bytes, 1)

    def peak(self, memory: int, workers: int, processes: int) -> int:
        """Return what those take that run at once."""
        return min(workers, self.tasks, MOST_NARROW, self.fitting(memory, workers, processes)) * self.bytes


def room_step(memory: int) -> int:
    """Return what the memory of a region is a multiple of.

    Coarse, so that a killed build finds its files although it goes on with a few workers more or fewer.
    """
    return (memory - FIXED_BYTES) // 16


def merge_bytes(memory: int) -> int:
    """Return the buffers of one merge: more than this reads no faster."""
    return min(task_bytes(memory), _MOST_MERGE)


def batch_bytes(chunks: int, payload_bytes: int, memory: int) -> int:
    """Return the size of record batches such that half of `merge_bytes` merges `chunks` files.

    A merge holds a batch of each file and three more, and 48 bytes a record beside it (`pipeline.mill.external_sort`).
    """
    record = 8 + payload_bytes
    most = merge_bytes(memory) // 2 - (chunks + 3) * _MESSAGE_BYTES
    return int(np.clip(most * record // ((record + 48) * (chunks + 4)), _LEAST_BATCH, _MOST_BATCH))


def unite_row_bytes(shape: Shape) -> int:
    """Return what one vertex takes while the lists of shards are united: those it has, twice, and the one it gets."""
    p = shape.parameters
    return int((2 * (1 + p.overlap) + 1) * p.max_degree * 4) + 16


def built_bytes(m: int, shape: Shape) -> int:
    """Return what building the graph of `m` vectors in one piece takes."""
    p = shape.parameters
    if p.builder == "partition":
        return partitioned_bytes(m, shape.comparable_bytes, p.max_degree, p.saturate)
    coded = shape.dim * (p.build_codes == "sq8")
    return graph_bytes(m, shape.row_bytes + coded, p.max_degree)


def leaf_work_bytes(shape: Shape) -> int:
    """Return the work space of a thread that compares leaves, their rows included; 0 for a builder without leaves."""
    if shape.parameters.builder != "partition":
        return 0
    return THREAD_BYTES + LEAF_MOST * shape.comparable_bytes


def graph_bytes(m: int, row_bytes: int, max_degree: int) -> int:
    """Return what inserting `m` vectors of `row_bytes` bytes into a graph in one piece takes."""
    batch = max_degree // 4 + 1  # edges of the vertices that are inserted at a time
    return m * (row_bytes + 4 * list_capacity(max_degree) + 16 + batch)


def shard_bytes(m: int, shape: Shape, memory: int) -> int:
    """Return what building a shard of `m` vectors takes: collected, made comparable if the builder wants it, built.

    Their keys and vector ids stay to the end.
    """
    collecting = m * shape.row_bytes + merge_bytes(memory) // 4
    converted = not (shape.takes_all_types or shape.is_comparable)
    converting = m * (shape.row_bytes + shape.comparable_bytes) * converted
    return 8 * m + max(collecting, converting, built_bytes(m, shape))


def scratch_bound(shape: Shape) -> int:
    """Return the most bytes that the work directory of a graph build may take: about fanout * input + 2 * output.

    Fanout is 2 for a build in shards, 11 region by region, where candidates and edges of vertices come on top
    (`region_needs.most_scratch`), and 1 otherwise. A type that the builder or the order does not take (int8, float16)
    is input twice, as it is and converted. Codes, and the maps between vertices and slots, lie beside their copies in
    the output until that is finished; samples, which do not grow with the input, come on top.
    """
    fanout = 2 if shape.parameters.shard_vectors is not None else 1
    vector = fanout * shape.row_bytes + shape.comparable_bytes * shape.is_converted
    if shape.region_bytes is not None:
        vector += most_scratch(shape.comparable_bytes, shape.parameters.max_degree, shape.parameters.saturate)
    sample = min(shape.parameters.sample_vectors, shape.n) * shape.row_bytes
    beside = shape.parameters.pq_bytes + 16
    return shape.n * (vector + beside) + 2 * output_bytes(shape) + sample + _SCRATCH_SLACK


def node_format(shape: Shape) -> NodeFormat:
    """Return the node of the index that is built."""
    dtype = shape.parameters.node_dtype
    return NodeFormat(shape.dim, str(shape.dtype) if dtype == "same" else dtype, shape.parameters.max_degree)


def output_bytes(shape: Shape) -> int:
    """Return about how large the index will be: nodes on their pages, codes, ids."""
    pages = node_format(shape).n_pages(shape.n)
    codes = shape.n * shape.parameters.pq_bytes + rotation_bytes(shape)
    return pages * (PAGE_BYTES + 4) + codes + shape.n * (4 + int(2 * shape.id_bytes))


def rotation_bytes(shape: Shape) -> int:
    """Return what the rotation of codes takes, in memory and in a file."""
    return 4 * shape.dim**2 if shape.parameters.pq_rotation == "opq" else 0


def shard_size(shape: Shape, memory: int) -> int:
    """Return how many vectors a shard may hold within `memory` bytes: all, or as few as none worth building."""
    room = memory - FIXED_BYTES
    if built_bytes(shape.n, shape) <= room:
        return shape.n
    if shard_bytes(LEAST_SHARD, shape, memory) > room:
        return 0
    low, high = LEAST_SHARD, shape.n + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if shard_bytes(middle, shape, memory) <= room else (low, middle)
    return low
