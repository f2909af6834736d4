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
    """State of an order during swaps, which move all that is kept by slot.

    Attributes
    ----------
    neighbours, degrees
        The graph, by vertex.
    slots : uint32 array, shape (n,)
        By vertex.
    order : uint32 array, shape (n,)
        By slot, as all that follow: the vertex.
    rows : uint8 or float32 array, shape (n, dim)
        Vectors: those of a page lie together.
    inverse_scales : float32 array, shape (n,)
        ``1 / r_v``.
    held : float64 array, shape (n,)
        Sum of a vertex's closeness to the other vertices of its page.
    seen : int32 array, shape (n,)
        Last batch in which a vertex was examined.
    changed : int32 array, shape (n_pages,)
        By page: last batch in which it changed.
    """

    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.int32]
    slots: NDArray[np.uint32]
    order: NDArray[np.uint32]
    rows: NDArray[Any]
    inverse_scales: NDArray[np.float32]
    held: NDArray[np.float64]
    seen: NDArray[np.int32]
    changed: NDArray[np.int32]


class Measured(NamedTuple):
    """Slots, and what `measure` writes about them: squared distances and closeness."""

    slots: NDArray[np.uint32]
    distances: NDArray[np.float32]
    near: NDArray[np.float64]


def page_state(
    graph: Adjacency, rows: NDArray[Any], order: NDArray[np.uint32], b: int, threads: int
) -> PageState:
    """Return the state before the first batch; `rows` are the vectors by slot."""
    n = len(order)
    pages = -(-n // b)
    state = PageState(
        *graph,
        invert(order),
        order,
        rows,
        np.empty(n, np.float32),
        np.empty(n, np.float64),
        np.full(n, -1, np.int32),
        np.zeros(pages, np.int32),
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


@kernel(inline="always")
def measured(n: int) -> Any:  # pragma: no cover - compiled
    """Return room for `n` slots."""
    return Measured(np.empty(n, np.uint32), np.empty(n, np.float32), np.empty(n, np.float64))


@kernel
def add_page(state: Any, page: int, b: int, m: int, found: Any) -> Any:  # pragma: no cover - compiled
    """Write the slots of a page behind the `m` slots of `found`; return their new number."""
    last: Any = min(page * b + b, state.order.size)
    for slot in range(page * b, last):
        found.slots[m] = slot
        m += 1
    return m


@kernel
def measure(state: Any, slot: int, m: int, found: Any) -> None:  # pragma: no cover - compiled
    """Write distances and closeness of the vertex in `slot` to those in `m` slots; to itself it is 0."""
    squared_distances(state.rows, slot, state.rows, found.slots, m, found.distances)
    scale = np.float64(state.inverse_scales[slot])
    for i in range(m):
        found.near[i] = closeness(found.distances[i], scale * state.inverse_scales[found.slots[i]])
        if found.slots[i] == slot:
            found.near[i] = 0.0


@kernel
def _scale(state: Any, first: int, last: int) -> None:  # pragma: no cover - compiled
    """Write 1 / r_v of slots `first` to `last`; a vertex without neighbours is close to equal vectors only."""
    found = measured(1)
    for slot in range(first, last):
        v = state.order[slot]
        found.distances[0] = 0
        degree: Any = min(np.int64(state.degrees[v]), SCALE_NEIGHBOUR)
        if degree > 0:
            found.slots[0] = state.slots[state.neighbours[v, degree - 1]]
            squared_distances(state.rows, slot, state.rows, found.slots, 1, found.distances)
        state.inverse_scales[slot] = 1 / max(np.sqrt(found.distances[0]), np.float32(1e-9))


@kernel
def _hold(state: Any, b: int, first: int, last: int) -> None:  # pragma: no cover - compiled
    """Compute ``held`` on pages `first` to `last`."""
    found = measured(b)
    for page in range(first, last):
        size = add_page(state, page, b, 0, found)
        for i in range(size):
            slot = np.int64(found.slots[i])
            measure(state, slot, size, found)
            state.held[slot] = found.near[:size].sum()
