"""The edges inside a set of vertices, by their places in it.

The set is a bit for each vertex of the graph, and the number of members before each word of 64 bits. Together they tell
how many members have a smaller number than a vertex, and a table of the members tells its place. That is small enough
for a core's cache where a table of all vertices is not.

Time: O(n / 64) for the graph's n vertices, and O(1) an edge. Memory: 12 bytes for 64 vertices of the graph, and 4 bytes
a member.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from indexmill.formats.kernel import kernel

_ONE, _WORD = np.uint64(1), np.uint64(63)
#: Masks and shifts that add up bits in pairs, fours and bytes, and a factor that adds up the bytes of a word.
_PAIRS, _FOURS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_BYTES = np.uint64(0x0F0F0F0F0F0F0F0F)
_TWO, _FOUR, _ADD, _TOP = np.uint64(2), np.uint64(4), np.uint64(0x0101010101010101), np.uint64(56)


@kernel
def keep_inside(members: Any, lists: Any, degrees: Any, n: int) -> None:  # pragma: no cover - compiled
    """Leave in the lists of members, in place, their neighbours among the members, by their places.

    The order of a list stays; an edge to the vertex itself goes.

    Parameters
    ----------
    members : uint32 array, shape (m,)
        Different vertices, in any order.
    lists, degrees : uint32 array (m, R) and int32 array (m,)
        Those of the members.
    n : int
        Vertices of the graph.
    """
    words = np.zeros(n // 64 + 1, np.uint64)
    for v in members:
        words[np.int64(v) // 64] |= _ONE << (np.uint64(v) & _WORD)
    before = np.empty(words.size, np.uint32)
    count: Any = 0
    for i in range(words.size):
        before[i] = count
        count += np.int64(_bits(words[i]))
    places = np.empty(members.size, np.uint32)
    for i in range(members.size):
        places[_rank(words, before, members[i])] = i
    for i in range(members.size):
        kept = 0
        for j in range(degrees[i]):
            u = lists[i, j]
            rank = _rank(words, before, u)
            if rank >= 0 and u != members[i]:
                lists[i, kept] = places[rank]
                kept += 1
        degrees[i] = kept


@kernel
def _rank(words: Any, before: Any, v: Any) -> Any:  # pragma: no cover - compiled
    """Return how many members have a smaller number than `v`; -1 if it is no member."""
    i, bit = np.int64(v) // 64, _ONE << (np.uint64(v) & _WORD)
    if words[i] & bit == np.uint64(0):
        return np.int64(-1)
    return np.int64(before[i]) + np.int64(_bits(words[i] & (bit - _ONE)))


@kernel
def _bits(word: Any) -> Any:  # pragma: no cover - compiled
    """Return the number of ones of a word, uint64."""
    word = word - ((word >> _ONE) & _PAIRS)
    word = (word & _FOURS) + ((word >> _TWO) & _FOURS)
    word = (word + (word >> _FOUR)) & _BYTES
    return (word * _ADD) >> _TOP
