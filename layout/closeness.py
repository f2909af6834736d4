"""Closeness of the vertices on a page, which swap polish increases, and the state of an order during polish."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.order import Adjacency, invert
from indexmill.reader.kernels import squared_distances
from indexmill.reader.threads import run_blocks

#: Rank of the neighbour whose distance is the scale around a vertex. The eighth neighbour in a list pruned with slack
#: 1.2 is approximately the fifteenth nearest vertex.
SCALE_NEIGHBOUR = 8
#: Vertices or pages of a task.
_BLOCK = 512


class PageState(NamedTuple):
    """State of an order during swaps.

    Attributes
    ----------
    inverse_scales : float32 array, shape (n,)
        ``1 / r_v``.
    order, slots : uint32 arrays, shape (n,)
        The order and its inverse.
    held : float64 array, shape (n,)
        Sum of a vertex's closeness to the other vertices of its page.
    changed : int32 array, shape (n_pages,)
        Last batch in which a page changed.
    seen : int32 array, shape (n,)
        Last batch in which a vertex was examined.
    """

    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.int32]
    points: NDArray[Any]
    inverse_scales: NDArray[np.float32]
    order: NDArray[np.uint32]
    slots: NDArray[np.uint32]
    held: NDArray[np.float64]
    changed: NDArray[np.int32]
    seen: NDArray[np.int32]


def page_state(
    graph: Adjacency, points: NDArray[Any], order: NDArray[np.uint32], b: int, threads: int
) -> PageState:
    """Return the state before the first batch."""
    n = len(order)
    scales, held = np.empty(n, np.float32), np.empty(n, np.float64)
    pages = -(-n // b)
    state = PageState(
        *graph,
        points,
        scales,
        order,
        invert(order),
        held,
        np.zeros(pages, np.int32),
        np.full(n, -1, np.int32),
    )
    run_blocks(lambda first, last: _scale(state, first, last), n, _BLOCK, threads)
    run_blocks(lambda first, last: _hold(state, b, first, last), pages, _BLOCK, threads)
    return state


@kernel(inline="always")
def closeness(distance: Any, rate: Any) -> Any:  # pragma: no cover - compiled
    """Return the closeness for a squared distance and a product of two inverse scales."""
    x = np.float64(distance) * rate
    x *= x
    return 1.0 / (1.0 + x * x)


@kernel
def _scale(state: Any, first: int, last: int) -> None:  # pragma: no cover - compiled
    """Write 1 / r_v of vertices `first` to `last`; a vertex without neighbours is close to equal vectors only."""
    out = np.empty(1, np.float32)
    for v in range(first, last):
        out[0] = 0
        degree: Any = min(np.int64(state.degrees[v]), SCALE_NEIGHBOUR)
        if degree > 0:
            neighbour = state.neighbours[v, degree - 1 : degree]
            squared_distances(state.points, v, state.points, neighbour, 1, out)
        state.inverse_scales[v] = 1 / max(np.sqrt(out[0]), np.float32(1e-9))


@kernel
def near_page(
    state: Any, v: int, page: int, b: int, distances: Any, near: Any
) -> Any:  # pragma: no cover - compiled
    """Write the closeness of `v` to each vertex of a page, 0 to itself; return the number of vertices and the sum."""
    mates = state.order[page * b : page * b + b]
    squared_distances(state.points, v, state.points, mates, mates.size, distances)
    scale, total = np.float64(state.inverse_scales[v]), 0.0
    for i in range(mates.size):
        u = mates[i]
        near[i] = 0.0 if u == v else closeness(distances[i], scale * state.inverse_scales[u])
        total += near[i]
    return mates.size, total


@kernel
def _hold(state: Any, b: int, first: int, last: int) -> None:  # pragma: no cover - compiled
    """Compute ``held`` on pages `first` to `last`."""
    distances, near = np.empty(b, np.float32), np.empty(b)
    for page in range(first, last):
        for v in state.order[page * b : page * b + b]:
            state.held[v] = near_page(state, np.int64(v), page, b, distances, near)[1]
