"""Equal vectors, and the ring in which they are neighbours of each other.

A vector with many equals would meet nothing but these in its leaves, and no edge would lead out of their group. So in
a leaf only the first of equal vectors is everybody's candidate, and each of them has the next one as its nearest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.reader.threads import run_blocks

#: Stands for vectors that no other one equals, and where a ring does not go on.
ALONE = 0xFFFFFFFF
#: Rows hashed at a time.
_BLOCK = 65_536


def equal_rows(vectors: NDArray[Any], threads: int = 1) -> NDArray[np.uint32]:
    """Return the first row that each row equals bit by bit, itself perhaps, or `ALONE` if no other row does.

    Rows that differ and have one hash of 64 bits may count as alone. Time: a sort of the hashes. Memory: 24 bytes a
    row.

    Parameters
    ----------
    vectors : array, shape (n, dim), C-contiguous

    Returns
    -------
    uint32 array, shape (n,)
    """
    words = _words(vectors)
    hashes = np.empty(len(words), np.uint64)

    def block(first: int, last: int) -> None:
        _hash(words[first:last], hashes[first:last])

    run_blocks(block, len(words), _BLOCK, threads)
    firsts = np.full(len(words), ALONE, np.uint32)
    _group_equals(words, hashes, np.argsort(hashes, kind="stable"), firsts)
    return firsts


def _words(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return rows as unsigned integers, as wide as their size allows."""
    width = next(size for size in (8, 4, 1) if vectors.shape[1] * vectors.itemsize % size == 0)
    words: NDArray[Any] = vectors.view(f"u{width}")
    return words


@njit(nogil=True, cache=True)
def _hash(words: Any, hashes: Any) -> None:  # pragma: no cover - compiled
    for i in range(len(words)):
        state = np.uint64(0x9E3779B97F4A7C15)
        for j in range(words.shape[1]):
            state = (state ^ np.uint64(words[i, j])) * np.uint64(0xBF58476D1CE4E5B9)
            state ^= state >> np.uint64(29)
        hashes[i] = state


@njit(nogil=True, cache=True)
def _group_equals(words: Any, hashes: Any, order: Any, firsts: Any) -> None:  # pragma: no cover - compiled
    head = order[0] if order.size else 0
    for at in range(1, order.size):
        row = order[at]
        if hashes[row] != hashes[head]:
            head = row
        elif (words[row] == words[head]).all():
            firsts[head] = head
            firsts[row] = head


@njit(nogil=True, cache=True)
def ring(firsts: Any, members: Any, hidden: Any, following: Any) -> int:  # pragma: no cover - compiled
    """Find what is equal in a leaf; return how many places to hide from the others.

    Parameters
    ----------
    firsts : uint32 array, shape (n,)
        Of `equal_rows`.
    members : uint32 array, shape (m,)
        Rows of the leaf, ascending.
    hidden : int64 array, shape (at least m,)
        Filled with the places of members that equal an earlier one.
    following : int64 array, shape (at least m,)
        Filled with the place of the next equal member, of the last one the first; -1 where there is none.
    """
    following[: members.size] = -1
    grouped = 0
    for i in range(members.size):
        if firsts[members[i]] != ALONE:
            hidden[grouped] = i
            grouped += 1
    if grouped < 2:
        return 0
    places = hidden[:grouped][np.argsort(firsts[members[hidden[:grouped]]], kind="mergesort")]
    count, head = 0, places[0]
    for at in range(1, grouped):
        place = places[at]
        if firsts[members[place]] != firsts[members[head]]:
            head = place
            continue
        following[places[at - 1]], following[place] = place, head
        hidden[count] = place
        count += 1
    return count
