"""Shape of an LSH build: numbers of its vectors and tables, and how they are cut into tasks.

`pipeline.kinds.lsh.size` chooses the shape for a job; this file reads no job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from indexmill.builders.lsh.hash import PRODUCT_ROWS, TABLES_TOGETHER
from indexmill.builders.lsh.solve import Asked, Solved, success_of
from indexmill.formats.errors import ConfigError
from indexmill.formats.index.vectors import RowFormat
from indexmill.formats.lsh.shape import LshShape, block_capacity
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.pipeline.kinds.common.memory import batch_bytes, task_bounds, task_bytes
from indexmill.pipeline.kinds.common.shape import Shape
from indexmill.pipeline.kinds.lsh.limits import advice
from indexmill.pipeline.kinds.lsh.parameters import DEFAULT_SUCCESS, LshParameters
from indexmill.pipeline.kinds.lsh.tasks import LshPlan

#: Keys of a record are u32, so tables are made in groups if they have more buckets together.
MOST_KEYS = 2**32 - 1
#: Entries of a part of the blocks, about: enough that a sort is worth opening its chunk files.
PART_ENTRIES = 8 << 20
#: A vector in a hash task beside its components and products: hash, key, sorted columns, pair, place.
_SORT_BYTES = 72
#: Planned blocks over those that a sample predicts, so that a build does not outgrow its plan.
_SPARE = 1.02
#: A bucket of a part while the part is laid: counts, lengths, ends.
BUCKET_BYTES = 28


def asked_of(p: LshParameters) -> Asked:
    """Return the parameters of a job as the solver takes them."""
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
class SolvedShape(Shape):
    """Vectors, and the solved parameters of hash tables of them.

    Attributes
    ----------
    parameters : LshParameters
    solved : Solved
    table_blocks : float or None
        Blocks of one table with all its radii, about, as a sample of the vectors fills it; None where there is none.
    """

    parameters: LshParameters
    solved: Solved
    table_blocks: float | None = None

    @property
    def tables(self) -> LshShape:
        """The tables of the index.

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
        """Arguments that tasks share."""
        p, s = self.parameters, self.solved
        return LshPlan(self.tables, s.n_functions, p.width, s.radii, self.dim, p.seed)

    def resolved(self) -> LshParameters:
        """Return the parameters with the solved values filled in."""
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

    @property
    def row_format(self) -> RowFormat:
        """Format of a row of vectors.imx."""
        return RowFormat(self.dim, self.dtype.name)

    @property
    def together(self) -> int:
        """Tables that a hash task projects for at a time."""
        return min(TABLES_TOGETHER, self.solved.n_tables)

    @property
    def hash_row_bytes(self) -> int:
        """Bytes of a vector in a hash task: its components as float32, products, and columns being sorted."""
        copied = 0 if self.dtype == np.float32 else 4 * self.dim
        return copied + 4 * self.solved.n_functions * self.together + _SORT_BYTES

    def spans(self, memory: int) -> list[int]:
        """Return the bounds of the vectors of each hash task under a budget."""
        return task_bounds(self.n, self.hash_row_bytes, memory, align=PRODUCT_ROWS)

    def hash_batch_bytes(self, memory: int) -> int:
        """Return the bytes of a record batch of *hash*."""
        return batch_bytes(len(self.spans(memory)) - 1, 4, memory)

    def with_tables(self, n_tables: int) -> SolvedShape:
        """Return the same index with `n_tables` tables."""
        s = self.solved
        return replace(self, solved=replace(s, n_tables=n_tables, success=success_of(s.met, n_tables)))


def groups(tables: LshShape) -> list[tuple[int, int]]:
    """Return ranges of tables that are hashed and chained together: their buckets are counted by 32-bit keys.

    Raises
    ------
    ConfigError
        If one table, with all radii, has more buckets.
    """
    keys = tables.n_radii << tables.hash_bits
    if keys > MOST_KEYS:
        raise ConfigError(
            f"hash_bits: {tables.hash_bits} bits and {tables.n_radii} radii make {keys:,} buckets a table, at most "
            f"{MOST_KEYS:,} can be told apart; give fewer --hash-bits or --n-radii"
        )
    step = MOST_KEYS // keys
    return [(first, min(first + step, tables.n_tables)) for first in range(0, tables.n_tables, step)]


def parts(tables: LshShape, group: tuple[int, int], memory: int) -> list[tuple[int, int]]:
    """Return the (table, radius) pairs, counted by table, that each chain task of a group makes."""
    first, last = (table * tables.n_radii for table in group)
    fitting = task_bytes(memory) // 8 // (BUCKET_BYTES * tables.buckets_per_table + 8)
    step = max(1, min(-(-PART_ENTRIES // tables.n_vectors), fitting))
    return [(at, min(at + step, last)) for at in range(first, last, step)]


def expected_blocks(shape: SolvedShape) -> int:
    """Return about how many blocks there will be; without a sample, more than evenly spread hashes fill."""
    tables = shape.tables
    if shape.table_blocks is not None:
        return math.ceil(_SPARE * shape.table_blocks * tables.n_tables)
    load = tables.n_vectors / tables.buckets_per_table
    a_bucket = max(-math.expm1(-load), load / tables.capacity + 0.5 * -math.expm1(-load))
    most = tables.n_entries // tables.capacity + min(tables.n_pointers, tables.n_entries)
    return min(
        most, tables.n_tables * tables.n_radii * max(1, math.ceil(a_bucket * tables.buckets_per_table))
    )


def output_bytes(shape: SolvedShape, metadata: float = 0.0) -> int:
    """Return about how large the index will be."""
    tables = shape.tables
    paged = (
        shape.row_format.n_pages(shape.n) * PAGE_BYTES
        + 4 * tables.n_tables * shape.solved.n_functions * (shape.dim + tables.n_radii + 2)
        + 8 * tables.n_pointers
        + tables.bitmap_bytes
        + expected_blocks(shape) * tables.block_bytes
        + int(shape.n * (4 + 2 * shape.id_bytes))
    )
    return paged + paged // 1024 + 20 * PAGE_BYTES + int(shape.n * metadata)
