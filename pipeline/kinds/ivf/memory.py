"""What the build of an IVF index takes: the sizes of its tasks and batches, and the memory and files of its stages."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from indexmill.builders.quantize.pq import N_CENTRES, TRAINING_VECTORS
from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.ivf.centroids import MAX_BATCHES
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.pipeline.execution.local import MOST_NARROW
from indexmill.pipeline.kinds.common.certify import QUERIES, K
from indexmill.pipeline.kinds.graph.budget import (
    FIXED_BYTES,
    THREAD_BYTES,
    batch_bytes,
    merge_bytes,
    task_bounds,
)
from indexmill.pipeline.kinds.graph.memory import exact_bytes, ids_bytes, ingest_bytes, workers_bytes
from indexmill.pipeline.kinds.ivf.tasks import GPU_BLOCK_BYTES, GRAPH_FROM
from indexmill.pipeline.kinds.scratch import SideColumns
from indexmill.pipeline.mill.external_sort import STEP_BYTES
from indexmill.pipeline.spec import IvfParameters

#: The least vectors of a batch that the memory decides.
_LEAST_BATCH = 1024
#: Rows that tasks start at a multiple of, from the start of a batch: blocks of products then always are the same.
_ALIGN = 8192
_MIB = 1 << 20
_SCRATCH_SLACK = 256 << 20


@dataclass(frozen=True)
class IvfShape:
    """What memory depends on; see `budget.Shape`.

    Attributes
    ----------
    n, dim : int
    dtype : numpy dtype
    id_bytes : float
    parameters : IvfParameters
    """

    n: int
    dim: int
    dtype: np.dtype[np.generic]
    id_bytes: float
    parameters: IvfParameters

    @property
    def stored_bytes(self) -> int:
        """A vector before the codec."""
        return self.dim * self.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        """A vector in its list, without its id."""
        p = self.parameters
        return {"flat": self.stored_bytes, "sq8": self.dim, "pq": min(p.pq_bytes, self.dim)}[p.codec]

    @property
    def batches(self) -> list[int]:
        """The first vector of each batch, and the number of vectors."""
        step = self.parameters.batch_vectors or self.n
        return [*range(0, self.n, step), self.n]

    @property
    def drawn(self) -> int:
        """Vectors of the sample."""
        return min(self.parameters.sample_vectors, self.n)


def with_batches(shape: IvfShape, memory: int) -> IvfShape:
    """Return `shape` with the size of its batches, unless its job says it: two take half the memory, all are alike."""
    given = shape.parameters.batch_vectors
    if given is not None:
        if -(-shape.n // given) > MAX_BATCHES:
            raise ConfigError(
                f"batch_vectors: {shape.n:,} vectors make more than {MAX_BATCHES:,} batches of {given:,}; give "
                f"at least {-(-shape.n // MAX_BATCHES):,}"
            )
        return shape
    most = max(_LEAST_BATCH, memory // 4 // ((shape.row_bytes + 4) * shape.parameters.copies))
    batches = -(-shape.n // most)
    resolved = shape.parameters.model_copy(update={"batch_vectors": max(64, -(-shape.n // batches))})
    return replace(shape, parameters=resolved)


def spans(shape: IvfShape, memory: int) -> list[list[int]]:
    """Return for each batch the bounds of its tasks."""
    row = 2 * shape.stored_bytes + shape.row_bytes + 64
    bounds = pairwise(shape.batches)
    return [[first + at for at in task_bounds(last - first, row, memory, _ALIGN)] for first, last in bounds]


def stage_bytes(shape: IvfShape, memory: int, workers: int) -> dict[str, int]:
    """Return the peak memory of every stage beside what processes take without vectors."""
    p, n = shape.parameters, shape.n
    cut = spans(shape, memory)
    rows = max(last - first for batch in cut for first, last in pairwise(batch))
    at_once = min(workers, sum(len(batch) - 1 for batch in cut), MOST_NARROW)
    threads = (workers - 1) * THREAD_BYTES
    centroids = p.lists * shape.dim * 4
    held = 6 if shape.dtype.itemsize == 1 else 4  # as they are, three times in products, of bytes rounded too
    cells = held * centroids + min(rows, _ALIGN) * (12 * shape.dim + 512 + 256 * (p.copies - 1))
    graph = p.lists * (500 + 4 * shape.dim) if p.lists >= GRAPH_FROM else 0
    largest = max(last - first for first, last in pairwise(shape.batches))
    sample = shape.drawn * shape.dim * 4
    training = 2 * sample + min(shape.drawn, TRAINING_VECTORS) * (4 * shape.dim + 24 + 8 * N_CENTRES)
    return {
        "ingest": ingest_bytes(n, shape.dim, p.metric, shape.id_bytes),
        "sample": 8 * n + shape.drawn * shape.stored_bytes,
        "centroids": sample + 20 * centroids + (8 << 20) + threads + max(graph, training * (p.codec == "pq")),
        "assign": at_once * (cells + 4 * p.copies * rows + _ALIGN * shape.stored_bytes) + threads,
        "pack": at_once
        * (
            p.copies * rows * (shape.row_bytes + shape.stored_bytes * (p.copies > 1) + 64)
            + 2 * centroids
            + (4 << 20)
            + 3 * GPU_BLOCK_BYTES * (p.codec == "pq" and p.compute == "cuda")
        )
        + threads,
        "lists": min(workers, len(cut), MOST_NARROW)
        * (_merged_bytes(shape, cut, memory) + 8 * p.copies * largest + (8 << 20)),
        "emit": 8 * n
        + 140 * p.lists * (p.lists >= GRAPH_FROM)
        + (8 << 20) * p.keep_vectors
        + ids_bytes(n, shape.id_bytes)
        + 2 * centroids,
        "certify": 5 * p.copies * n
        + exact_bytes(n, shape.dim, QUERIES, K, workers)
        + 24 * QUERIES * p.lists
        + centroids,
    }


def _merged_bytes(shape: IvfShape, cut: list[list[int]], memory: int) -> int:
    """What merging the chunk files of a batch holds: one record batch of each and three more, and two steps."""
    chunks, record = max(len(batch) - 1 for batch in cut), 8 + shape.row_bytes
    held = (chunks + 3) * chunk_batch_bytes(shape, chunks, memory) * (record + 48) // record + 2 * STEP_BYTES
    return min(merge_bytes(memory), held)


def check_memory(shape: IvfShape, memory: int, executor: str, workers: int) -> None:
    """Find that all stages fit.

    Raises
    ------
    BudgetError
        Naming the stage that needs most, and what works.
    """
    stages = stage_bytes(shape, memory, workers)
    worst = max(stages, key=lambda name: stages[name])
    need = stages[worst] + FIXED_BYTES + workers_bytes(executor, workers)
    if need > memory:
        raise BudgetError(
            f"memory: stage {worst} needs {need:,} bytes for {shape.n:,} vectors in {shape.parameters.lists:,} lists, "
            f"the budget is {memory:,}; give more, or lower --workers, --sample-vectors or --lists"
        )


def chunk_batch_bytes(shape: IvfShape, chunks: int, memory: int) -> int:
    """Return the size of record batches such that the chunk files of a batch can be merged."""
    return batch_bytes(chunks, shape.row_bytes, memory)


def stage_files(shape: IvfShape, side: SideColumns) -> dict[str, int]:
    """Return the bytes that each stage's directory holds when it is finished; *emit* has the lists as links."""
    p, n = shape.parameters, shape.n
    batches = len(shape.batches) - 1
    copied = n * p.copies
    filled = batches * p.lists * -math.expm1(-copied / (batches * p.lists))  # lists that hold anything
    ends = max(
        PAGE_BYTES / 2, PAGE_BYTES - copied * (shape.row_bytes + 4) / filled
    )  # what is left of a last page
    lists = copied * (shape.row_bytes + 4) * 4100 // 4096 + int(filled * ends) + 16 * batches * p.lists
    lists += 6 * PAGE_BYTES * batches
    metadata = int(n * side.metadata)
    centroids = p.lists * (shape.dim * 4 + 132 * (p.lists >= GRAPH_FROM)) + N_CENTRES * 4 * shape.dim
    kept = n * (shape.stored_bytes + 4) * 2 * p.keep_vectors  # a page holds one vector at least
    return {
        "ingest": n * shape.stored_bytes + int(n * side.ids_file) + metadata,
        "sample": shape.drawn * shape.stored_bytes,
        "centroids": centroids,
        "assign": 4 * copied,
        "pack": copied * (shape.row_bytes + 8),
        "lists": lists,
        "emit": centroids + kept + int(n * (4 + side.ids)) + metadata,
        "certify": 0,
    }


def scratch_bound(shape: IvfShape) -> int:
    """Return the most bytes that the work directory of a build may take: the input, and twice the output."""
    files = stage_files(shape, SideColumns(2 * shape.id_bytes, 2 * shape.id_bytes))
    return 2 * sum(files.values()) + _SCRATCH_SLACK
