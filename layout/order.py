"""Orders that need no graph: identity and random.

An order is a uint32 array, shape (n,): ``order[slot]`` is the vertex that lives in `slot`. It is a bijection
on [0, n); slot s lives on page s // nodes_per_page.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Keeps this order apart from other draws with the same seed, such as the order of insertion into the graph.
_STREAM = 0x0FDE


def identity_order(n: int) -> NDArray[np.uint32]:
    """Return vertices in input order, DiskANN's layout."""
    return np.arange(n, dtype=np.uint32)


def random_order(n: int, seed: int) -> NDArray[np.uint32]:
    """Return vertices in random order: the baseline that owes nothing to the order of the input."""
    return np.random.default_rng([seed, _STREAM]).permutation(n).astype(np.uint32)


def invert(order: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return ``slots`` with ``slots[order[s]] = s``; both have shape (n,)."""
    slots = np.empty(len(order), np.uint32)
    slots[order] = np.arange(len(order), dtype=np.uint32)
    return slots
