"""Merging of partial pages by first-fit-decreasing (DiskANN++ section IV, Algorithm 4)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel


def first_fit_decreasing(sizes: NDArray[np.integer[Any]], capacity: int) -> NDArray[np.int64]:
    """Return the order in which first-fit-decreasing puts items into bins of `capacity`.

    Filling the bins one after the other, each with the largest items that still fit, gives the same bins as
    first-fit-decreasing, and needs only a queue of items for each size: O(m + bins * capacity). Deviation: Algorithm 4
    joins at most two pages; here a bin takes as many items as fit.

    Parameters
    ----------
    sizes : integer array, shape (m,), each from 1 to `capacity`

    Returns
    -------
    int64 array, shape (m,)
        Items bin by bin, full bins first; items of one size ascend.
    """
    by_size = np.argsort(sizes, kind="stable")
    bounds = np.searchsorted(sizes[by_size], np.arange(capacity + 2))
    items, ends, rooms = _fill_bins(by_size, bounds, capacity)
    lengths = np.diff(ends, prepend=0)
    order: NDArray[np.int64] = items[np.argsort(np.repeat(rooms > 0, lengths), kind="stable")]
    return order


def lay_out(
    vertices: NDArray[np.uint32], sizes: NDArray[np.integer[Any]], nodes_per_page: int
) -> NDArray[np.uint32]:
    """Return an order that keeps groups of vertices together: first those that fill pages, then the others.

    Parameters
    ----------
    vertices : uint32 array, shape (n,)
        Groups of vertices, one after the other.
    sizes : integer array
        Sizes of the groups, each from 1 to `nodes_per_page`.

    Returns
    -------
    uint32 array, shape (n,)
    """
    order: NDArray[np.uint32] = _gather(vertices, sizes, first_fit_decreasing(sizes, nodes_per_page))
    return order


@kernel
def _gather(vertices: Any, sizes: Any, groups: Any) -> Any:  # pragma: no cover - compiled
    """Return the groups in their new order, one after the other."""
    begins = np.cumsum(sizes) - sizes
    order = np.empty_like(vertices)
    filled: Any = 0
    for group in groups:
        size: Any = np.int64(sizes[group])
        order[filled : filled + size] = vertices[begins[group] : begins[group] + size]
        filled += size
    return order


@kernel
def _fill_bins(by_size: Any, bounds: Any, capacity: int) -> Any:  # pragma: no cover - compiled
    """Fill bins in turn; return the items bin by bin, the end of each bin, and its free room."""
    head = bounds.copy()
    items = np.empty(by_size.size, np.int64)
    ends, rooms = np.empty(by_size.size, np.int64), np.empty(by_size.size, np.int64)
    filled, bins = 0, 0
    while filled < by_size.size:
        room = capacity
        for size in range(capacity, 0, -1):
            while size <= room and head[size] < bounds[size + 1]:
                items[filled] = by_size[head[size]]
                head[size] += 1
                filled += 1
                room -= size
        ends[bins] = filled
        rooms[bins] = room
        bins += 1
    return items, ends[:bins], rooms[:bins]
