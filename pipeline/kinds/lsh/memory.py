"""Memory of each stage of an LSH build."""

from __future__ import annotations

from itertools import pairwise

from indexmill.builders.lsh.hash import PRODUCT_ROWS
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.pipeline.kinds.common.certify import QUERIES, K
from indexmill.pipeline.kinds.common.memory import (
    THREAD_BYTES,
    check_stages,
    exact_bytes,
    ids_bytes,
    ingest_bytes,
    lanes,
    sort_buffer_bytes,
    task_bytes,
)
from indexmill.pipeline.kinds.lsh.shape import (
    BUCKET_BYTES,
    SolvedShape,
    expected_blocks,
    groups,
    output_bytes,
    parts,
)
from indexmill.pipeline.kinds.lsh.tasks import NEIGHBOURS, OTHERS, SAMPLED
from indexmill.pipeline.mill.external_sort import STEP_BYTES

#: A record of *hash* in its chunk file, and while it is sorted.
_RECORD_BYTES, _SORTED_BYTES = 12, 60
#: A record of a piece of a sort while it becomes an entry of a block; bytes of a piece at most, about.
_CHAIN_BYTES, _PIECE_BYTES = 120, 10 << 20
#: Blocks on their way to buckets.imx, with what they are read from and written by.
_SEALING_BYTES = 24 << 20
#: A distance of the sample while the parameters are solved for, with up to eight radii and its temporary copies.
_EXPECTED_BYTES = 32
#: A block of a part while the part is laid.
_BLOCK_BYTES = 8
_MIB = 1 << 20


def stage_bytes(shape: SolvedShape, memory: int, workers: int) -> dict[str, int]:
    """Return the peak memory of every stage, without the memory that processes take before any vector."""
    tables = shape.tables
    bounds = shape.spans(memory)
    rows = max(last - first for first, last in pairwise(bounds))
    products = min(shape.n, PRODUCT_ROWS) * 4 * shape.solved.n_functions * shape.together
    hashing = lanes(workers, len(bounds) - 1)
    chains = [parts(tables, group, memory) for group in groups(tables)]
    widest = max(last - first for pairs in chains for first, last in pairs)
    chaining = lanes(workers, max(map(len, chains)))
    records = widest * shape.n
    piece = min(_PIECE_BYTES // _SORTED_BYTES, records) * _CHAIN_BYTES
    batch = min(shape.hash_batch_bytes(memory), _RECORD_BYTES * rows)  # no batch holds two tables or radii
    held = (len(bounds) + 3) * batch * _SORTED_BYTES // _RECORD_BYTES + STEP_BYTES
    buffers = min(sort_buffer_bytes(memory), held, 3 * _SORTED_BYTES * records + _MIB)
    blocks = expected_blocks(shape) // (tables.n_tables * tables.n_radii) + 1
    functions = 4 * tables.n_tables * shape.solved.n_functions * (shape.dim + tables.n_radii)
    laid = widest * (BUCKET_BYTES * tables.buckets_per_table + _BLOCK_BYTES * blocks)
    sums = 4 * (output_bytes(shape) // PAGE_BYTES)  # checksums that an open index holds
    if certified_in_memory(shape, memory):
        sums += shape.n * shape.row_format.vector_bytes
    searched = 2 * functions + tables.bitmap_bytes + sums + (16 << 20)
    return {
        "ingest": ingest_bytes(shape.n, shape.dim, shape.parameters.metric, shape.id_bytes),
        "sample": exact_bytes(shape.n, shape.dim, SAMPLED, NEIGHBOURS, workers)
        + 24 * min(shape.n, OTHERS) * shape.dim,
        "solve": 8 * _EXPECTED_BYTES * SAMPLED * (NEIGHBOURS + OTHERS),
        "hash": hashing * (rows * shape.hash_row_bytes + products + (8 << 20) + functions)
        + (workers - 1) * THREAD_BYTES,
        "chain": chaining * (buffers + piece + 4 * widest * tables.buckets_per_table),
        "certify": exact_bytes(shape.n, shape.dim, QUERIES, K, workers) + searched,
        "emit": laid + _SEALING_BYTES + 2 * functions + 12 * shape.n + ids_bytes(shape.n, shape.id_bytes),
    }


def certified_in_memory(shape: SolvedShape, memory: int) -> bool:
    """Tell whether *certify* may hold all vectors in memory, which saves most of its time."""
    return shape.n * shape.row_format.vector_bytes <= task_bytes(memory)


def check_memory(shape: SolvedShape, memory: int, executor: str, workers: int) -> None:
    """Raise BudgetError unless every stage fits; see `check_stages`."""

    def cut(budget: int) -> dict[str, int]:
        return stage_bytes(shape, budget, workers)

    advice = "lower --workers, or "
    check_stages(cut(memory), memory, executor, workers, f"{shape.n:,} vectors", lambda _: advice, cut)
