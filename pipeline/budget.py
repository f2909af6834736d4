"""What a build needs in memory: the one place where bytes are counted, for the build and for its plan.

Memory means anonymous memory of all our processes on one machine; files that are read through the page cache do
not count, the system takes those pages back when it needs them. Everything is bounded by a part of the budget,
except what grows with the number of vectors: the maps between vertices and slots, star packing, and the codes that
every search of the finished index holds too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from indexmill.builders.navigation import NAVIGATION_VAMANA, navigation_size
from indexmill.builders.vamana import list_capacity
from indexmill.formats.errors import BudgetError
from indexmill.formats.frame import PAGE_BYTES
from indexmill.formats.nodes import NodeFormat
from indexmill.pipeline.spec import Parameters

#: The interpreter, numba, Arrow and scikit-learn with what they allocate while they work.
FIXED_BYTES = 256 << 20
#: A Ray worker process with the same loaded.
RAY_WORKER_BYTES = 200 << 20
#: A graph smaller than this is not worth a shard.
_LEAST_SHARD = 1024
#: Narrow tasks that fit the budget beside each other.
_TASKS_AT_ONCE = 8
_LEAST_TASK, _MOST_TASK = 8 << 20, 512 << 20
#: Record batches of a chunk file: small ones cost messages, large ones buffers of the merge.
_LEAST_BATCH, _MOST_BATCH = 16 << 10, 1 << 20
#: Tasks of a stage at least, where there are enough vectors: workers finish together.
_LEAST_TASKS, _LEAST_ROWS = 8, 32_768
#: Bytes a vertex takes while stars are packed (`layout.star`) and merged (`layout.ffd`).
_STAR_BYTES = 32
#: Samples, centroids, page headers: scratch space that does not grow with the input.
_SCRATCH_SLACK = 256 << 20
#: Bytes an id takes while duplicates are looked for and while ids are put in slot order.
_ID_BYTES = 64


@dataclass(frozen=True)
class Shape:
    """What memory depends on.

    Attributes
    ----------
    n, dim : int
        Stored vectors and their components.
    dtype : numpy dtype
        Type the vectors are stored in.
    has_ids : bool
    parameters : Parameters
    """

    n: int
    dim: int
    dtype: np.dtype[np.generic]
    has_ids: bool
    parameters: Parameters

    @property
    def row_bytes(self) -> int:
        """A stored vector."""
        return self.dim * self.dtype.itemsize

    @property
    def comparable_bytes(self) -> int:
        """A vector as the kernels compare it (`builders.distances.comparable`)."""
        return self.dim * (1 if self.dtype.itemsize == 1 else 4)


def task_bytes(memory: int) -> int:
    """Return the memory of one narrow task; workers, which must not decide bytes, have no part in it."""
    return int(np.clip((memory - FIXED_BYTES) // _TASKS_AT_ONCE, _LEAST_TASK, _MOST_TASK))


def task_bounds(n: int, bytes_a_row: int, memory: int) -> list[int]:
    """Return the bounds of tasks that each hold `bytes_a_row` for every row of theirs."""
    tasks = max(-(-n * bytes_a_row // task_bytes(memory)), min(_LEAST_TASKS, n // _LEAST_ROWS), 1)
    return [n * t // tasks for t in range(tasks + 1)]


def batch_bytes(chunks: int, memory: int) -> int:
    """Return the size of record batches such that half a narrow task's memory merges `chunks` files."""
    return int(np.clip(task_bytes(memory) // (4 * chunks + 12), _LEAST_BATCH, _MOST_BATCH))


def unite_row_bytes(shape: Shape) -> int:
    """Return what one vertex takes while the lists of shards are united: those it has, twice, and the one it gets."""
    p = shape.parameters
    return int((2 * (1 + p.overlap) + 1) * p.max_degree * 4) + 16


def graph_bytes(m: int, shape: Shape, max_degree: int, sharded: bool) -> int:
    """Return what building the graph of `m` vectors takes."""
    batch = max_degree // 4 + 1  # edges of the vertices that are inserted at a time
    each = shape.comparable_bytes + 4 * list_capacity(max_degree) + 16 + batch
    if sharded:
        each += 4 + (shape.row_bytes if shape.row_bytes != shape.comparable_bytes else 0)
    return m * each


def stage_bytes(shape: Shape, memory: int, workers: int) -> dict[str, int]:
    """Return the predicted peak memory of every stage, less `FIXED_BYTES`.

    Parameters
    ----------
    memory : int
        The budget, which sizes tasks and shards.
    """
    p, n = shape.parameters, shape.n
    narrow = min(workers, _TASKS_AT_ONCE) * task_bytes(memory)
    sample = min(p.sample_vectors, n) * shape.dim
    sharded = p.shard_vectors is not None
    build = graph_bytes(p.shard_vectors or n, shape, p.max_degree, sharded)
    stages = {
        "ingest": n * (_ID_BYTES * shape.has_ids + 8 * (p.metric == "ip")),
        "sample": sample * shape.dtype.itemsize,
        "cluster": sample * (shape.dtype.itemsize + 8),
        "build": build,
        "encode": sample * (shape.dtype.itemsize + 4),
        "entries": sample * (shape.dtype.itemsize + 4),
        "navigation": graph_bytes(
            navigation_size(p.navigation, n), shape, NAVIGATION_VAMANA.max_degree, False
        ),
        "order": n * (_STAR_BYTES if p.order == "star" else 12),
        "pack": narrow,
        "emit": task_bytes(memory) + n * _ID_BYTES * shape.has_ids + n * 8,
        "certify": n * p.pq_bytes,
    }
    if sharded:
        stages |= {"assign": narrow, "unite": narrow, "merge": n * 5}
    return stages


def scratch_bound(shape: Shape) -> int:
    """Return the most bytes that the work directory of a graph build may take: fanout * input + 2 * output.

    Fanout is 2 for a build in shards and 1 otherwise; what does not grow with the input comes on top.
    """
    fanout = 2 if shape.parameters.shard_vectors is not None else 1
    return fanout * shape.n * shape.row_bytes + 2 * output_bytes(shape) + _SCRATCH_SLACK


def output_bytes(shape: Shape) -> int:
    """Return about how large the index will be: nodes on their pages, codes, ids."""
    p = shape.parameters
    dtype = str(shape.dtype) if p.node_dtype == "same" else p.node_dtype
    pages = NodeFormat(shape.dim, dtype, p.max_degree).n_pages(shape.n)
    return pages * (PAGE_BYTES + 4) + shape.n * (p.pq_bytes + 4 + 16 * shape.has_ids)


def fixed_bytes(executor: str, workers: int) -> int:
    """Return what processes take before they hold any vector."""
    return FIXED_BYTES + (workers * RAY_WORKER_BYTES if executor == "ray" else 0)


def shard_size(shape: Shape, memory: int) -> int | None:
    """Return how many vectors a shard may hold within `memory` bytes, or None if all fit at once.

    Raises
    ------
    BudgetError
        If not even a small shard fits.
    """
    room = memory - FIXED_BYTES
    degree = shape.parameters.max_degree
    if graph_bytes(shape.n, shape, degree, False) <= room:
        return None
    each = graph_bytes(1, shape, degree, True)
    fits = room // each
    if fits < _LEAST_SHARD:
        raise BudgetError(
            f"memory: {memory:,} bytes leave room for {max(fits, 0):,} vectors of {each:,} bytes beside "
            f"{FIXED_BYTES:,} bytes of fixed cost; give at least {FIXED_BYTES + _LEAST_SHARD * each:,} bytes"
        )
    return int(fits)


def least_memory(shape: Shape, executor: str, workers: int) -> int:
    """Return the smallest budget that the build of `shape` fits, shards as small as they may be."""
    small = shape.parameters.model_copy(update={"shard_vectors": min(_LEAST_SHARD, shape.n)})
    low = fixed_bytes(executor, workers)
    least = Shape(shape.n, shape.dim, shape.dtype, shape.has_ids, small)
    need = low + max(stage_bytes(least, 0, workers).values())
    return max(need, FIXED_BYTES + _LEAST_SHARD * graph_bytes(1, shape, small.max_degree, True))


def check_memory(shape: Shape, memory: int, executor: str, workers: int) -> Mapping[str, int]:
    """Return `stage_bytes`, having found that they fit.

    Raises
    ------
    BudgetError
        Naming the stage that needs most, what to lower, and the smallest budget that works.
    """
    fixed = fixed_bytes(executor, workers)
    stages = stage_bytes(shape, memory, workers)
    worst = max(stages, key=lambda name: stages[name])
    if fixed + stages[worst] <= memory:
        return stages
    hints = {
        "sample": "lower --sample-vectors",
        "cluster": "lower --sample-vectors",
        "encode": "lower --sample-vectors",
        "entries": "lower --sample-vectors",
        "navigation": "lower --navigation",
        "build": "lower --shard-vectors",
        "certify": "lower --pq-bytes",
    }
    hint = f"{hints[worst]}, or " if worst in hints else ""
    raise BudgetError(
        f"memory: stage {worst} needs {fixed + stages[worst]:,} bytes for {shape.n:,} vectors, the budget is "
        f"{memory:,}; {hint}give at least {least_memory(shape, executor, workers):,} bytes"
    )
