"""Groups of equal vectors, linked in a ring.

A vector with many equals would find only these in its leaves, and no edge would leave the group. Therefore, in a leaf
only the first of equal vectors is a candidate of other vectors, and the nearest neighbour of each is the next equal
vector.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.reader.threads import run_blocks

#: Marks a vector without an equal.
ALONE = 0xFFFFFFFF
#: Rows hashed at a time.
_BLOCK = 65_536


def equal_rows(vectors: NDArray[Any], threads: int = 1) -> NDArray[np.uint32]:
    """Return the first row with the same bits as each row, perhaps itself; `ALONE` if no other row has them.

    Different rows with the same 64-bit hash may count as alone. Time: a sort of the hashes. Memory: 24 bytes a row.

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
    """Return rows as unsigned integers, as wide as the size of a row allows."""
    width = next(size for size in (8, 4, 1) if vectors.shape[1] * vectors.itemsize % size == 0)
    words: NDArray[Any] = vectors.view(f"u{width}")
    return words


@kernel
def _hash(words: Any, hashes: Any) -> None:  # pragma: no cover - compiled
    for i in range(len(words)):
        state = np.uint64(0x9E3779B97F4A7C15)
        for j in range(words.shape[1]):
            state = (state ^ np.uint64(words[i, j])) * np.uint64(0xBF58476D1CE4E5B9)
            state ^= state >> np.uint64(29)
        hashes[i] = state


@kernel
def _group_equals(words: Any, hashes: Any, order: Any, firsts: Any) -> None:  # pragma: no cover - compiled
    head = order[0] if order.size else 0
    for at in range(1, order.size):
        row = order[at]
        if hashes[row] != hashes[head]:
            head = row
        elif (words[row] == words[head]).all():
            firsts[head] = head
            firsts[row] = head


@kernel
def ring(firsts: Any, members: Any, hidden: Any, following: Any) -> int:  # pragma: no cover - compiled
    """Find equal vectors in a leaf; return the number of places hidden from other vectors.

    Parameters
    ----------
    firsts : uint32 array, shape (n,)
        As `equal_rows` returns them.
    members : uint32 array, shape (m,)
        Rows of the leaf, ascending.
    hidden : int64 array, shape (at least m,)
        Receives the places of members that equal an earlier one.
    following : int64 array, shape (at least m,)
        Receives the place of the next equal member, and for the last one that of the first; -1 for members alone.
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
