"""How an LSH build is cut to its memory, and what each of its stages takes in memory and in the work directory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from indexmill.builders.lsh.hash import PRODUCT_ROWS, TABLES_TOGETHER
from indexmill.builders.lsh.solve import Asked, Solved, success_of
from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.index.vectors import RowFormat
from indexmill.formats.lsh.shape import LshShape, block_capacity
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.pipeline.execution.limits import MOST_NARROW
from indexmill.pipeline.kinds.common.certify import QUERIES, K
from indexmill.pipeline.kinds.graph.budget import (
    FIXED_BYTES,
    THREAD_BYTES,
    batch_bytes,
    merge_bytes,
    task_bounds,
    task_bytes,
)
from indexmill.pipeline.kinds.graph.memory import exact_bytes, ids_bytes, ingest_bytes, workers_bytes
from indexmill.pipeline.kinds.lsh.emit import Part
from indexmill.pipeline.kinds.lsh.limits import advice
from indexmill.pipeline.kinds.lsh.tasks import SAMPLED, LshPlan
from indexmill.pipeline.mill.external_sort import STEP_BYTES
from indexmill.pipeline.spec import DEFAULT_SUCCESS, LshParameters

#: Keys of a record are u32, so that tables are made by groups if they have more buckets together.
_MOST_KEYS = 2**32 - 1
#: Entries of a part of the blocks, about: enough that a merge is worth opening its chunk files.
_PART_ENTRIES = 8 << 20
#: A vector in a hash task beside its components and products: hash, key, sorted columns, pair, place.
_SORT_BYTES = 72
#: A record of *hash* in its chunk file, and while it is merged.
_RECORD_BYTES, _MERGED_BYTES = 12, 60
#: A record of a piece of a merge while it becomes an entry of a block; bytes of a piece at most, about.
_CHAIN_BYTES, _PIECE_BYTES = 120, 10 << 20
#: Blocks over those that a sample foretells, so that a build does not outgrow what it was promised.
_SPARE = 1.02
#: Blocks on their way to buckets.imx, with what they are read from and written by.
_SEALING_BYTES = 24 << 20
#: A bucket and a block of a part while the part is laid: counts, lengths, ends.
_BUCKET_BYTES, _BLOCK_BYTES = 28, 8
_MIB = 1 << 20


def asked(p: LshParameters) -> Asked:
    """Return what the parameters of a job leave to be solved for."""
    return Asked(
        ratio=p.ratio,
        width=p.width,
        gamma=p.gamma,
        success=DEFAULT_SUCCESS if p.success is None else p.success,
        n_functions=p.n_functions,
        n_tables=p.n_tables,
        n_radii=p.n_radii,
        candidates=p.candidates,
        hash_bits=p.hash_bits,
        probes=p.probes,
        first_radius=p.first_radius,
        block_entries=block_capacity(p.block_bytes),
    )


@dataclass(frozen=True)
class LshSize:
    """What memory and scratch space depend on.

    Attributes
    ----------
    n, dim : int
        Stored vectors and their components.
    dtype : numpy dtype
    id_bytes : float
        Of a user id, about; 0 where there are none.
    parameters : LshParameters
    solved : Solved
    table_blocks : float or None
        Blocks of one table with all its radii, about, as a sample of the vectors fills it; None where there is none.
    """

    n: int
    dim: int
    dtype: np.dtype[np.generic]
    id_bytes: float
    parameters: LshParameters
    solved: Solved
    table_blocks: float | None = None

    @property
    def shape(self) -> LshShape:
        """The tables.

        Raises
        ------
        ConfigError
            If there can be no such index.
        """
        s = self.solved
        try:
            return LshShape(self.n, s.n_tables, len(s.radii), s.hash_bits, self.parameters.block_bytes)
        except ValueError as error:
            raise ConfigError(f"{error}; {advice(str(error))}") from None

    @property
    def plan(self) -> LshPlan:
        """What tasks need to know."""
        p, s = self.parameters, self.solved
        return LshPlan(self.shape, s.n_functions, p.width, s.radii, self.dim, p.seed)

    def resolved(self) -> LshParameters:
        """Return the parameters with everything that was solved for."""
        s = self.solved
        found = {
            "n_functions": s.n_functions,
            "n_tables": s.n_tables,
            "n_radii": len(s.radii),
            "first_radius": s.radii[0],
            "candidates": s.candidates,
            "hash_bits": s.hash_bits,
        }
        return self.parameters.model_copy(update=found)

    def with_tables(self, n_tables: int) -> LshSize:
        """Return the same index with so many tables."""
        s = self.solved
        return replace(self, solved=replace(s, n_tables=n_tables, success=success_of(s.met, n_tables)))


def groups(shape: LshShape) -> list[tuple[int, int]]:
    """Return ranges of tables that are hashed and chained together: their buckets are counted by 32-bit keys.

    Raises
    ------
    ConfigError
        If one table, with all radii, has more buckets.
    """
    keys = shape.n_radii << shape.hash_bits
    if keys > _MOST_KEYS:
        raise ConfigError(
            f"hash_bits: {shape.hash_bits} bits and {shape.n_radii} radii make {keys:,} buckets a table, at most "
            f"{_MOST_KEYS:,} can be told apart; give fewer --hash-bits or --n-radii"
        )
    step = _MOST_KEYS // keys
    return [(first, min(first + step, shape.n_tables)) for first in range(0, shape.n_tables, step)]


def spans(size: LshSize, memory: int) -> list[int]:
    """Return the bounds of the vectors of each hash task."""
    return task_bounds(size.n, _hash_row_bytes(size), memory, align=PRODUCT_ROWS)


def hash_batch_bytes(size: LshSize, memory: int) -> int:
    """Return the bytes of a record batch of *hash*."""
    return batch_bytes(len(spans(size, memory)) - 1, 4, memory)


def parts(shape: LshShape, group: tuple[int, int], memory: int) -> list[tuple[int, int]]:
    """Return the (table, radius) pairs, counted by table, that each chain task of a group makes."""
    first, last = (table * shape.n_radii for table in group)
    room = task_bytes(memory) // 8 // (_BUCKET_BYTES * shape.buckets_per_table + 8)
    step = max(1, min(-(-_PART_ENTRIES // shape.n_vectors), room))
    return [(at, min(at + step, last)) for at in range(first, last, step)]


def part(path: str, bounds: tuple[int, int]) -> Part:
    """Return what *emit* needs to know of the file of a chain task."""
    return Part(path, *bounds)


def stage_bytes(size: LshSize, memory: int, workers: int) -> dict[str, int]:
    """Return the peak memory of every stage beside what processes take without vectors."""
    shape = size.shape
    bounds = spans(size, memory)
    rows = max(last - first for first, last in pairwise(bounds))
    hashing = min(workers, len(bounds) - 1, MOST_NARROW)
    pairs = [pair for group in groups(shape) for pair in parts(shape, group, memory)]
    widest = max(last - first for first, last in pairs)
    chaining = min(workers, len(pairs), MOST_NARROW)
    records = widest * size.n
    piece = min(_PIECE_BYTES // _MERGED_BYTES, records) * _CHAIN_BYTES
    batch = min(hash_batch_bytes(size, memory), _RECORD_BYTES * rows)  # no batch holds two tables or radii
    held = (len(bounds) + 3) * batch * _MERGED_BYTES // _RECORD_BYTES + STEP_BYTES
    buffers = min(merge_bytes(memory), held, 3 * _MERGED_BYTES * records + _MIB)
    blocks = expected_blocks(size) // (shape.n_tables * shape.n_radii) + 1
    functions = 4 * shape.n_tables * size.solved.n_functions * (size.dim + shape.n_radii)
    laid = widest * (_BUCKET_BYTES * shape.buckets_per_table + _BLOCK_BYTES * blocks)
    sums = 4 * (output_bytes(size) // PAGE_BYTES)  # checksums that an open index holds
    if certified_in_memory(size, memory):
        sums += size.n * RowFormat(size.dim, size.dtype.name).vector_bytes
    searched = 2 * functions + shape.bitmap_bytes + sums + (16 << 20)
    return {
        "ingest": ingest_bytes(size.n, size.dim, size.parameters.metric, size.id_bytes),
        "sample": exact_bytes(size.n, size.dim, SAMPLED, 1, workers),
        "solve": 0,
        "hash": hashing * (rows * _hash_row_bytes(size) + _products(size) + (8 << 20) + functions)
        + (workers - 1) * THREAD_BYTES,
        "chain": chaining * (buffers + piece + 4 * widest * shape.buckets_per_table),
        "certify": exact_bytes(size.n, size.dim, QUERIES, K, workers) + searched,
        "emit": laid + _SEALING_BYTES + 2 * functions + 12 * size.n + ids_bytes(size.n, size.id_bytes),
    }


def certified_in_memory(size: LshSize, memory: int) -> bool:
    """Tell whether *certify* may hold all vectors: reads of single ones would take most of its time."""
    return size.n * RowFormat(size.dim, size.dtype.name).vector_bytes <= task_bytes(memory)


def check_memory(size: LshSize, memory: int, executor: str, workers: int) -> Mapping[str, int]:
    """Return `stage_bytes`, having found that they fit.

    Raises
    ------
    BudgetError
        Naming the stage that needs most and the smallest budget that works.
    """
    fixed = FIXED_BYTES + workers_bytes(executor, workers)

    def worst(budget: int) -> tuple[int, str]:
        stages = stage_bytes(size, budget, workers)
        name = max(stages, key=lambda name: stages[name])
        return stages[name] + fixed, name

    need, name = worst(memory)
    if need <= memory:
        return stage_bytes(size, memory, workers)
    low, high = FIXED_BYTES // _MIB, 2 * FIXED_BYTES // _MIB
    while worst(high * _MIB)[0] > high * _MIB:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if worst(middle * _MIB)[0] <= middle * _MIB else (middle, high)
    raise BudgetError(
        f"memory: stage {name} needs {need:,} bytes for {size.n:,} vectors, the budget is {memory:,}; "
        f"lower --workers, or give at least {high * _MIB:,} bytes"
    )


def expected_blocks(size: LshSize) -> int:
    """Return about how many blocks there will be; without a sample, more than hashes spread evenly fill."""
    shape = size.shape
    if size.table_blocks is not None:
        return math.ceil(_SPARE * size.table_blocks * shape.n_tables)
    load = shape.n_vectors / shape.buckets_per_table
    a_bucket = max(-math.expm1(-load), load / shape.capacity + 0.5 * -math.expm1(-load))
    tables = shape.n_tables * shape.n_radii
    most = shape.n_entries // shape.capacity + min(shape.n_pointers, shape.n_entries)
    return min(most, tables * max(1, math.ceil(a_bucket * shape.buckets_per_table)))


def output_bytes(size: LshSize, metadata: float = 0.0) -> int:
    """Return about how large the index will be."""
    shape = size.shape
    paged = (
        RowFormat(size.dim, size.dtype.name).n_pages(size.n) * PAGE_BYTES
        + 4 * shape.n_tables * size.solved.n_functions * (size.dim + shape.n_radii + 2)
        + 8 * shape.n_pointers
        + shape.bitmap_bytes
        + expected_blocks(size) * shape.block_bytes
        + int(size.n * (4 + 2 * size.id_bytes))
    )
    return paged + paged // 1024 + 20 * PAGE_BYTES + int(size.n * metadata)


def stage_files(size: LshSize, memory: int, ids_file: float, metadata: float) -> dict[str, int]:
    """Return the bytes that each stage's directory holds at most; of hash and chain those of a group.

    That is what it holds when it is finished, but for the pointers that *emit* puts together in a file and removes.
    """
    shape = size.shape
    bounds, n_groups = spans(size, memory), len(groups(shape))
    rows = size.n // (len(bounds) - 1)
    key = 8 * shape.buckets_per_table / rows if rows >= 2 * shape.buckets_per_table else 4.0
    return {
        "ingest": size.n * size.dim * size.dtype.itemsize + int(size.n * (ids_file + metadata)),
        "sample": 8 * SAMPLED,
        "solve": 1024,
        "hash": int(shape.n_entries * (8 + key)) // n_groups,
        "chain": (expected_blocks(size) * shape.block_bytes + 4 * shape.n_pointers) // n_groups,
        "emit": output_bytes(size, metadata) + 8 * shape.n_pointers,
        "certify": 0,  # links to what emit wrote
    }


def _hash_row_bytes(size: LshSize) -> int:
    """A vector in a hash task: its components as float32, products, and what sorting takes."""
    copied = 0 if size.dtype == np.float32 else 4 * size.dim
    return copied + 4 * size.solved.n_functions * _together(size) + _SORT_BYTES


def _products(size: LshSize) -> int:
    return min(size.n, PRODUCT_ROWS) * 4 * size.solved.n_functions * _together(size)


def _together(size: LshSize) -> int:
    return min(TABLES_TOGETHER, size.solved.n_tables)
