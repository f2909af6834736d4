"""What a build needs in memory, and how many vectors one graph may hold at a time."""

from __future__ import annotations

import numpy as np

from indexmill.builders.navigation import NAVIGATION_VAMANA, navigation_size
from indexmill.builders.vamana import GRAPH_SLACK
from indexmill.formats.errors import BudgetError

#: Python, Arrow, numba and a batch in flight.
FIXED_BYTES = 600 << 20
#: A graph smaller than this is not worth a shard.
_LEAST_SHARD = 1024


def bytes_per_vector(dim: int, dtype: np.dtype[np.generic], max_degree: int) -> int:
    """Return the bytes one vector takes while its graph is built: row, growing list, final list, bookkeeping."""
    row = dim * (1 if dtype.itemsize == 1 else 4)
    copies = 2 if dtype in (np.dtype(np.int8), np.dtype(np.float16)) else 1
    return row * copies + int(GRAPH_SLACK * max_degree) * 4 + max_degree * 4 + 24


def shard_size(n: int, dim: int, dtype: np.dtype[np.generic], max_degree: int, memory: int) -> int | None:
    """Return how many vectors a shard may hold within `memory` bytes, or None if all fit at once.

    Raises
    ------
    BudgetError
        If not even a small shard fits.
    """
    each = bytes_per_vector(dim, dtype, max_degree)
    fits = (memory - FIXED_BYTES) // each
    if fits >= n:
        return None
    if fits < _LEAST_SHARD:
        need = FIXED_BYTES + _LEAST_SHARD * each
        raise BudgetError(
            f"memory: {memory:,} bytes leave room for {max(fits, 0):,} vectors of {each:,} bytes beside "
            f"{FIXED_BYTES:,} bytes of fixed cost; give at least {need:,} bytes"
        )
    return int(fits)


def check_navigation(fraction: float, n: int, dim: int, dtype: np.dtype[np.generic], memory: int) -> None:
    """Refuse a navigation sample that does not fit `memory` bytes while its graph is built.

    Raises
    ------
    BudgetError
        With the largest fraction that fits.
    """
    sample = navigation_size(fraction, n)
    each = bytes_per_vector(dim, dtype, NAVIGATION_VAMANA.max_degree)
    fits = (memory - FIXED_BYTES) // each
    if sample > fits:
        largest = max(fits, 0) * 10_000 // n / 10_000
        if navigation_size(largest, n) > fits:
            largest = 0.0
        raise BudgetError(
            f"navigation: the graph over {sample:,} sampled vectors takes {sample * each:,} bytes to build, beside "
            f"{FIXED_BYTES:,} bytes of fixed cost, and the budget is {memory:,}; lower --navigation to {largest:g} "
            "or raise --memory"
        )
