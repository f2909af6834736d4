"""Pairs of rows and the groups of points that they search, gathered group by group."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Pairs(NamedTuple):
    """Rows that search each group: group g is searched by ``rows[starts[g]:starts[g + 1]]``, ascending."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]  # (n_groups + 1,)


def pairs_of(chosen: NDArray[np.uint32], n_groups: int) -> Pairs:
    """Return the pairs in which row i searches the groups ``chosen[i]``, (m, b), except `NOTHING`."""
    flat = chosen.ravel()
    order = np.argsort(flat, kind="stable")
    return Pairs(order // chosen.shape[1], np.searchsorted(flat[order], np.arange(n_groups + 1)))
