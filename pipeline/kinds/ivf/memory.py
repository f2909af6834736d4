"""Memory of each stage of an IVF build."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from indexmill.builders.cluster.kmeans import kmeans_bytes
from indexmill.builders.quantize.opq import BLOCK as OPQ_BLOCK
from indexmill.builders.quantize.pq import TRAINING_VECTORS
from indexmill.pipeline.bisection import greatest
from indexmill.pipeline.execution.limits import MOST_NARROW
from indexmill.pipeline.kinds.common.certify import QUERIES, K
from indexmill.pipeline.kinds.common.memory import (
    FIXED_BYTES,
    THREAD_BYTES,
    check_stages,
    exact_bytes,
    ids_bytes,
    ingest_bytes,
    lanes,
    sort_buffer_bytes,
)
from indexmill.pipeline.kinds.ivf.shape import ALIGN, IvfShape, with_batches
from indexmill.pipeline.kinds.ivf.tasks import GPU_BLOCK_BYTES, GRAPH_FROM
from indexmill.pipeline.mill.external_sort import STEP_BYTES


def stage_bytes(shape: IvfShape, memory: int, workers: int) -> dict[str, int]:
    """Return the peak memory of every stage, without the memory that processes take before any vector."""
    p, n = shape.parameters, shape.n
    cut = shape.cuts(memory)
    rows = max(last - first for batch in cut for first, last in pairwise(batch))
    at_once = lanes(workers, sum(len(batch) - 1 for batch in cut))
    threads = (workers - 1) * THREAD_BYTES
    centroids = p.lists * shape.dim * 4
    held = 6 if shape.dtype.itemsize == 1 else 4  # as they are, three times in products, of bytes rounded too
    cells = held * centroids + min(rows, ALIGN) * (12 * shape.dim + 512 + 256 * (p.copies - 1))
    graph = p.lists * (500 + 4 * shape.dim) if p.lists >= GRAPH_FROM else 0
    coded = 0 if p.codec == "flat" else shape.list_row_bytes  # plain rows are mapped
    largest = max(last - first for first, last in pairwise(shape.batches))
    drawing = 10 * shape.rotation_bytes * (p.codec == "rabitq")  # in float64
    # the rotation and centroids in it; rows as they are, rotated, their residuals, levels and codes
    rotated = centroids * shape.is_rotated
    rotated_bytes = (
        shape.rotation_bytes + rotated + min(p.copies * rows, ALIGN) * 17 * shape.dim * shape.is_rotated
    )
    fitting = max(
        kmeans_bytes(shape.drawn, shape.dim, p.lists, workers)
        + 4 * shape.drawn * shape.dim * (p.compute == "cuda"),
        graph,
        _training_bytes(shape, workers) if p.codec == "pq" else 0,
        drawing,
        rotated + 3 * shape.rotation_bytes,
    )
    return {
        "ingest": ingest_bytes(n, shape.dim, p.metric, shape.id_bytes),
        "sample": 8 * n + shape.drawn * shape.row_bytes,
        "centroids": 2 * centroids + threads + fitting,
        "assign": at_once * (cells + 4 * p.copies * rows + ALIGN * shape.row_bytes) + threads,
        "pack": at_once
        * (
            p.copies * rows * (coded + shape.row_bytes * (p.copies > 1) + 64)
            + 2 * centroids
            + (4 << 20)
            + 3 * GPU_BLOCK_BYTES * (p.codec == "pq" and p.compute == "cuda")
            + rotated_bytes
        )
        + threads,
        "lists": lanes(workers, len(cut))
        * (_sorting_bytes(shape, cut, memory) + 8 * p.copies * largest + (8 << 20)),
        "emit": 8 * n
        + 140 * p.lists * (p.lists >= GRAPH_FROM)
        + (8 << 20) * p.keep_vectors
        + ids_bytes(n, shape.id_bytes)
        + 2 * centroids
        + 2 * shape.rotation_bytes,
        "certify": 5 * p.copies * n
        + exact_bytes(n, shape.dim, QUERIES, K, workers)
        + 24 * QUERIES * p.lists
        + centroids,
    }


def _training_bytes(shape: IvfShape, workers: int) -> int:
    """Return the memory of training PQ.

    Residuals of the sample and the centroids that they are taken from, with the search for these; then training rows
    beside the residuals, and for each thread the columns and codes of a chunk, with those of a part of the rows. With a
    rotation also training rows rotated and their codes, and for each thread a block of them and a product.
    """
    drawn, dim = shape.drawn, shape.dim
    residuals, rows = 4 * drawn * dim, min(drawn, TRAINING_VECTORS)
    chunks = min(shape.parameters.pq_bytes, dim)
    chunk = rows * (12 * -(-dim // chunks) + 24)
    training = rows * 4 * dim + min(workers, chunks) * chunk
    if shape.parameters.pq_rotation == "opq":
        training += rows * (4 * dim + chunks) + 40 * dim * dim
        training += workers * (OPQ_BLOCK * (8 * dim + 4 * chunks) + 12 * dim * dim)
    return residuals + max(residuals + 64 * drawn, training)


def most_lists(shape: IvfShape, memory: int, most: int) -> int:
    """Return the most lists whose centroids are made within half of a budget: up to `most`, at least those of `shape`.

    Workers do not count, since they must not decide bytes.
    """
    own = shape.parameters.lists

    def fits(lists: int) -> bool:
        larger = replace(shape, parameters=shape.parameters.model_copy(update={"lists": lists}))
        return stage_bytes(larger, memory, MOST_NARROW)["centroids"] <= (memory - FIXED_BYTES) // 2

    return greatest(fits, own, max(own, most) + 1)


def _sorting_bytes(shape: IvfShape, cut: list[list[int]], memory: int) -> int:
    """Return the memory of sorting the chunk files of a batch: a record batch of each and three more, and two steps."""
    chunks, record = max(len(batch) - 1 for batch in cut), 8 + shape.list_row_bytes
    held = (chunks + 3) * shape.chunk_batch_bytes(chunks, memory) * (record + 48) // record + 2 * STEP_BYTES
    return min(sort_buffer_bytes(memory), held)


def check_memory(shape: IvfShape, memory: int, executor: str, workers: int, asked: IvfShape) -> None:
    """Raise BudgetError unless every stage fits; see `check_stages`.

    Parameters
    ----------
    shape, asked : IvfShape
        As batches are cut for `memory`, and as the job says: smaller batches may suit another budget.
    """

    def cut(budget: int) -> dict[str, int]:
        return stage_bytes(with_batches(asked, budget), budget, workers)

    content = f"{shape.n:,} vectors in {shape.parameters.lists:,} lists"
    plain = "take --pq-rotation none, " if shape.parameters.pq_rotation == "opq" else ""
    advice = f"{plain}lower --workers, --sample-vectors or --lists, or "
    stages = stage_bytes(shape, memory, workers)
    check_stages(stages, memory, executor, workers, content, lambda _: advice, cut)
