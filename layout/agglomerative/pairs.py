"""Pairs of near vertices, each in the lists of both: groups merge by their closeness."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.agglomerative.near import NEAR, Near
from indexmill.layout.agglomerative.prefetch import prefetch
from indexmill.layout.order import Given
from indexmill.reader.threads import run_blocks

NOBODY = np.uint32(0xFFFFFFFF)
#: Entries of a list: of a vertex that more others are near to, the first ones count.
MOST = 4 * NEAR
#: What is read of a list before its entries, see `Pairs`.
HEAD = np.dtype([("start", np.int64), ("further", np.uint32), ("length", np.uint16)], align=True)
#: Bytes of a vertex while lists are made, at most: entries twice, marks, and a head.
PAIRS_BYTES = 2 * 6 * NEAR + 4 + HEAD.itemsize
#: Vertices between that whose entries are read and that whose are fetched.
_AHEAD = 4
#: Vertices of a task.
_BLOCK = 2048


class Pairs(NamedTuple):
    """Lists of the vertices that are near each vertex v, or near to which v is.

    Attributes
    ----------
    heads : HEAD array, shape (n + 1,)
        By vertex v, which has space in the next two arrays from its `start` to that of v + 1; `length`, the entries in
        this space; `further`, the vertex in whose space the list goes on, once vertices share one, `NOBODY` where it
        ends. The fields lie side by side because they are read together.
    others : uint32 array, shape (n_entries,)
    closeness : uint16 array, shape (n_entries,)
        Twice that of two vertices each of which is near the other.
    """

    heads: NDArray[np.void]
    others: NDArray[np.uint32]
    closeness: NDArray[np.uint16]


@contextmanager
def both_ways(near: Near, given: Given) -> Iterator[Pairs]:
    """Give the pairs of what is near each vertex."""
    n = len(near.ids)
    with ExitStack() as stack:

        def scratch(dtype: Any, *shape: int) -> NDArray[Any]:
            return stack.enter_context(given.scratch(dtype, shape))

        mutual, heads = scratch(np.uint32, n), scratch(HEAD, n + 1)
        run_blocks(lambda first, last: _mark(*near, mutual, first, last), n, _BLOCK, given.threads)
        part = -(-n // given.threads)
        run_blocks(lambda first, last: _count(*near, mutual, heads, first, last), n, part, given.threads)
        n_entries = _give_space(heads)
        pairs = Pairs(heads, scratch(np.uint32, n_entries), scratch(np.uint16, n_entries))
        run_blocks(lambda first, last: _fill(*near, mutual, *pairs, first, last), n, part, given.threads)
        yield pairs


@kernel
def _mark(
    ids: Any, closeness: Any, mutual: Any, first: int, last: int
) -> None:  # pragma: no cover - compiled
    """Mark, by a bit of their vertex each, the entries of a range of vertices that stand in both lists, or are none."""
    for v in range(first, last):
        soon = min(v + _AHEAD, last - 1)
        # a row taken as an array is counted as a reference, on which threads wait
        for j in range(ids.shape[1]):
            u = ids[soon, j]
            prefetch(ids, np.int64(u) * ids.shape[1])
            prefetch(ids, np.int64(u) * ids.shape[1] + ids.shape[1] - 1)
        marks = np.uint32(0)
        for j in range(ids.shape[1]):
            there = False
            for i in range(ids.shape[1]):
                there |= ids[ids[v, j], i] == v
            marks |= np.uint32(there) << np.uint32(j)
        mutual[v] = marks


@kernel
def _count(
    ids: Any, found: Any, mutual: Any, heads: Any, first: int, last: int
) -> None:  # pragma: no cover - compiled
    """Write the lengths of the lists of a range of vertices."""
    for v in range(first, last):
        n = 0
        while n < ids.shape[1] and found[v, n] > 0:
            n += 1
        heads[v].length = n
    for v in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            u = ids[v, j]
            if not (mutual[v] >> np.uint32(j)) & 1 and u >= first and u < last:
                heads[u].length += heads[u].length < MOST


@kernel
def _give_space(heads: Any) -> Any:  # pragma: no cover - compiled
    """Write where the spaces of lists begin, and empty lists; return the entries of all."""
    n, start = heads.size - 1, np.int64(0)
    for v in range(n):
        heads[v].start, heads[v].further = start, NOBODY
        start += np.int64(heads[v].length)
        heads[v].length = 0
    heads[n].start = start
    return start


@kernel
def _fill(
    ids: Any, found: Any, mutual: Any, heads: Any, others: Any, closeness: Any, first: int, last: int
) -> None:  # pragma: no cover - compiled
    """Write the lists of a range of vertices: what is near each, and then what each is near to, ascending."""
    for v in range(first, last):
        m, start = 0, heads[v].start
        while m < ids.shape[1] and found[v, m] > 0:
            others[start + m] = ids[v, m]
            closeness[start + m] = np.uint16(found[v, m]) << ((mutual[v] >> np.uint32(m)) & 1)
            m += 1
        heads[v].length = m
    for v in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            u = ids[v, j]
            if not (mutual[v] >> np.uint32(j)) & 1 and u >= first and u < last:
                at = heads[u].start + heads[u].length
                if at < heads[u + 1].start:
                    others[at], closeness[at] = v, found[v, j]
                    heads[u].length += 1
