"""Groups of equal vectors: the first of each stands for all until the graph is made, and then a ring joins them.

Among many equal vectors a vector would meet only these, its list would hold little else, and a prune that keeps one of
them would leave the others without an edge. So those that equal an earlier vector are left out of the leaves. When all
lists are chosen, each equal vector gets the next one as its nearest neighbour. A search that reaches one of them goes
through the others, too, and would learn nothing from equal lists. So the first keeps its list, and the others have
those of its neighbours, the nearest neighbour first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.vamana.enter import enter_edges
from indexmill.builders.vamana.prune import PruneRule, sort_candidates
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances
from indexmill.reader.threads import run_blocks

#: Marks a vector without an equal.
ALONE = 0xFFFFFFFF
#: Bytes a row of what `equal_rows` and `repeated` return.
EQUALS_BYTES = 5
#: Rows hashed at a time.
_BLOCK = 65_536
#: Most different rows with the same 32 bits of a hash that are compared.
_MOST_ALIKE = 16


def equal_rows(vectors: NDArray[Any], threads: int = 1) -> NDArray[np.uint32]:
    """Return the first row with the same bits as each row, perhaps itself; `ALONE` if no other row has them.

    Of more than 16 different rows with the same 32-bit hash, which no set by chance has, the others count as alone.
    Time: a sort of the hashes. Memory: 12 bytes a row.

    Parameters
    ----------
    vectors : array, shape (n, dim), C-contiguous

    Returns
    -------
    uint32 array, shape (n,)
    """
    words = _words(vectors)
    keys = np.empty(len(words), np.uint64)

    def block(first: int, last: int) -> None:
        hash_rows(words, first, last, keys)

    run_blocks(block, len(words), _BLOCK, threads)
    keys.sort()
    firsts = np.full(len(words), ALONE, np.uint32)
    _group_equals(words, keys, firsts)
    return firsts


def _words(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return rows as unsigned integers, as wide as the size of a row allows."""
    width = next(size for size in (8, 4, 1) if vectors.shape[1] * vectors.itemsize % size == 0)
    words: NDArray[Any] = vectors.view(f"u{width}")
    return words


@kernel
def hash_rows(words: Any, first: Any, last: Any, keys: Any) -> None:  # pragma: no cover - compiled
    """Write hash and number of each row, 32 bits each."""
    for i in range(first, last):
        state = np.uint64(0x9E3779B97F4A7C15)
        for j in range(words.shape[1]):
            state = (state ^ np.uint64(words[i, j])) * np.uint64(0xBF58476D1CE4E5B9)
            state ^= state >> np.uint64(29)
        keys[i] = (state >> np.uint64(32)) << np.uint64(32) | np.uint64(i)


@kernel
def _group_equals(words: Any, keys: Any, firsts: Any) -> None:  # pragma: no cover - compiled
    heads, n, alike = np.empty(_MOST_ALIKE, np.int64), 0, np.uint64(0)
    for at in range(keys.size):
        row, hashed = np.int64(keys[at] & np.uint64(0xFFFFFFFF)), keys[at] >> np.uint64(32)
        if hashed != alike:
            n, alike = 0, hashed
        same = 0
        while same < n and not (words[row] == words[heads[same]]).all():
            same += 1
        if same < n:
            firsts[heads[same]] = heads[same]
            firsts[row] = heads[same]
        elif n < _MOST_ALIKE:
            heads[n] = row
            n += 1


def repeated(firsts: NDArray[np.uint32], rows: NDArray[np.uint32] | None = None) -> NDArray[np.bool_]:
    """Return which of some rows, by default all, equal an earlier one, given what `equal_rows` returns of them.

    Parameters
    ----------
    firsts, rows : uint32 arrays, shape (n,)

    Returns
    -------
    bool array, shape (n,)
    """
    if rows is None:
        rows = np.arange(len(firsts), dtype=np.uint32)
    is_repeated: NDArray[np.bool_] = (firsts != ALONE) & (firsts != rows)
    return is_repeated


def join_equals(
    vectors: NDArray[Any],
    firsts: NDArray[np.uint32],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    rule: PruneRule,
) -> None:
    """Link equal vectors in a ring, and give those that equal an earlier one lists, in place.

    Memory: 24 bytes for each vector that has an equal.

    Parameters
    ----------
    vectors : uint8, float16 or float32 array, shape (n_vertices, dim)
    firsts : uint32 array, shape (n_vertices,)
        As `equal_rows` returns them.
    neighbours, degrees : uint32 array (n_vertices, R) and int32 array (n_vertices,)
        Lists in ascending order of (distance, id), before and after, which name none of the `repeated` rows before.
    rule : PruneRule
        Decides which neighbour makes room in a full list.
    """
    rows = np.flatnonzero(firsts != ALONE)
    rows = rows[np.argsort(firsts[rows], kind="stable")]
    _join(as_bits(vectors), firsts, rows, neighbours, degrees, rule)


@kernel
def _join(
    vectors: Any, firsts: Any, rows: Any, neighbours: Any, degrees: Any, rule: PruneRule
) -> None:  # pragma: no cover - compiled
    most, place = neighbours.shape[1], 0
    ids, kept, distances = np.empty(most, np.uint32), np.empty(most, np.uint32), np.empty(most, np.float32)
    following = np.empty(1, np.uint32)
    for at in range(rows.size):
        v, head = rows[at], np.int64(firsts[rows[at]])
        place = 0 if v == head else place + 1
        source = head
        if place > 0:  # of the head's list, which begins with the next equal vector, or with one as near
            near = np.int64(neighbours[head, place % degrees[head]])
            source = head if _is_repeated(firsts, near) else near
        n = 0
        for u in neighbours[source, : degrees[source]]:
            if u != head and not _is_repeated(firsts, u):
                ids[n] = u
                n += 1
        squared_distances(vectors, v, vectors, ids, n, distances)
        n = sort_candidates(ids, distances, n)
        if place == 0:  # the farthest makes room; a prune would drop links that end in one distant cluster
            n = min(n, most - 1)
        is_last = at + 1 == rows.size or firsts[rows[at + 1]] != firsts[v]
        following[0] = head if is_last else rows[at + 1]
        enter_edges(vectors, v, ids, n, following, 1, rule, distances, kept, neighbours, degrees)


@kernel
def _is_repeated(firsts: Any, v: Any) -> Any:  # pragma: no cover - compiled
    return firsts[v] != ALONE and firsts[v] != v
