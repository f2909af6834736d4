"""Pairs of near vertices, each in the lists of both: groups merge by their closeness."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.agglomerative.near import NEAR, Near
from indexmill.layout.order import Given
from indexmill.reader.threads import run_blocks

NOBODY = np.uint32(0xFFFFFFFF)
#: Entries of a list: of a vertex that more others are near to, the first ones count.
MOST = 4 * NEAR
#: Bytes of a vertex while lists are made, at most: entries twice, and marks; where a list begins, ends and goes on.
PAIRS_BYTES = (2 * 6 + 1) * NEAR + 8 + 2 + 4
#: Vertices of a task.
_BLOCK = 2048


class Pairs(NamedTuple):
    """Lists of the vertices that are near each vertex v, or near to which v is.

    Attributes
    ----------
    starts : int64 array, shape (n + 1,)
        ``starts[v]:starts[v + 1]`` is the space of v in the next two.
    others : uint32 array, shape (n_entries,)
    closeness : uint16 array, shape (n_entries,)
        Twice that of two vertices each of which is near the other.
    lengths : uint16 array, shape (n,)
        Entries in the space of v.
    further : uint32 array, shape (n,)
        The vertex in whose space the list goes on, once vertices share one; `NOBODY` where it ends.
    """

    starts: NDArray[np.int64]
    others: NDArray[np.uint32]
    closeness: NDArray[np.uint16]
    lengths: NDArray[np.uint16]
    further: NDArray[np.uint32]


@contextmanager
def both_ways(near: Near, given: Given) -> Iterator[Pairs]:
    """Give the pairs of what is near each vertex."""
    n = len(near.ids)
    with ExitStack() as stack:

        def scratch(dtype: Any, *shape: int) -> NDArray[Any]:
            return stack.enter_context(given.scratch(dtype, shape))

        is_mutual, starts = scratch(np.bool_, *near.ids.shape), scratch(np.int64, n + 1)
        run_blocks(lambda first, last: _mark(*near, is_mutual, first, last), n, _BLOCK, given.threads)
        n_entries = _starts(*near, is_mutual, starts)
        others, closeness = scratch(np.uint32, n_entries), scratch(np.uint16, n_entries)
        pairs = Pairs(starts, others, closeness, scratch(np.uint16, n), scratch(np.uint32, n))
        pairs.further[:] = NOBODY

        def fill(first: int, last: int) -> None:
            _fill(*near, is_mutual, *pairs[:4], first, last)

        run_blocks(fill, n, -(-n // given.threads), given.threads)
        yield pairs


@kernel
def _mark(
    ids: Any, closeness: Any, is_mutual: Any, first: int, last: int
) -> None:  # pragma: no cover - compiled
    """Mark the entries of a range of vertices that stand in both lists."""
    for v in range(first, last):
        for j in range(ids.shape[1]):
            there = False
            for i in range(ids.shape[1]):
                there |= ids[ids[v, j], i] == v
            is_mutual[v, j] = there


@kernel
def _starts(ids: Any, closeness: Any, is_mutual: Any, starts: Any) -> Any:  # pragma: no cover - compiled
    """Write where spaces begin; return the entries of all."""
    starts[:] = 0
    for v in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            there = closeness[v, j] > 0
            starts[v + 1] += there
            starts[ids[v, j] + 1] += there and not is_mutual[v, j]
    for v in range(ids.shape[0]):
        starts[v + 1] = starts[v] + min(starts[v + 1], MOST)
    return starts[-1]


@kernel
def _fill(
    ids: Any,
    found: Any,
    is_mutual: Any,
    starts: Any,
    others: Any,
    closeness: Any,
    lengths: Any,
    first: int,
    last: int,
) -> None:  # pragma: no cover - compiled
    """Write the lists of a range of vertices: what is near each, and then what each is near to, ascending."""
    for v in range(first, last):
        m = 0
        while m < ids.shape[1] and found[v, m] > 0:
            others[starts[v] + m] = ids[v, m]
            closeness[starts[v] + m] = np.uint16(found[v, m]) << np.uint16(is_mutual[v, m])
            m += 1
        lengths[v] = m
    for v in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            u = ids[v, j]
            if is_mutual[v, j] or found[v, j] == 0 or u < first or u >= last:
                continue
            at = starts[u] + lengths[u]
            if at < starts[u + 1]:
                others[at], closeness[at] = v, found[v, j]
                lengths[u] += 1
