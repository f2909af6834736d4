"""An estimate of the blocks of an LSH index, from hashes of a sample of its vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lsh.fill import expected_blocks
from indexmill.builders.lsh.hash import TABLES_TOGETHER, hash_rows, project
from indexmill.pipeline.kinds.lsh.tasks import LshPlan

#: Buckets filled on trial, in up to `TABLES_TOGETHER` tables; a table of more bits is too large to try.
_BUCKETS, _MOST_BITS = 1 << 21, 22


def table_blocks(rows: NDArray[np.float32], plan: LshPlan, n: int) -> float | None:
    """Return about how many blocks one table of `n` vectors takes, with all radii, from `rows` of them.

    Memory: 8 bytes a bucket of up to four tables. None where the buckets are too many, or the first radius
    too small to be hashed.
    """
    shape = plan.shape
    if shape.hash_bits > _MOST_BITS:
        return None
    tables = max(1, min(TABLES_TOGETHER, shape.n_tables, _BUCKETS >> shape.hash_bits))
    drawn = plan._replace(shape=replace(shape, n_tables=tables)).draw()
    mask, buckets = np.uint32(shape.buckets_per_table - 1), shape.buckets_per_table
    projected = project(rows, drawn.projections)
    total = 0.0
    for i, radius in enumerate(plan.radii):
        try:
            hashes = [
                hash_rows(each, radius, plan.width, drawn.offsets[i, table], drawn.multipliers[table])
                for table, each in enumerate(projected)
            ]
        except OverflowError:  # the build says so
            return None
        counts = np.concatenate([np.bincount(found & mask, minlength=buckets) for found in hashes])
        total += expected_blocks(counts, n / len(rows), shape.capacity)
    return total / tables
