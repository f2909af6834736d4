"""Groups that merge in rounds: in each, every two groups that are each other's best partner."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.agglomerative.pairs import MOST, NOBODY, Pairs
from indexmill.layout.agglomerative.prefetch import prefetch
from indexmill.layout.agglomerative.tally import new_tally, sum_up
from indexmill.layout.order import Work
from indexmill.reader.threads import run_blocks

#: Spreads the numbers of pairs: 2^64 over the golden ratio.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
#: Largest sum of closeness that an entry holds.
_MOST_CLOSENESS = (1 << 16) - 1
#: Groups between that whose list is read and that of which the rest of the list is fetched; its begin is before that.
_AHEAD = 4
#: Groups of a task.
_BLOCK = 2048


class Groups(NamedTuple):
    """A partition of the vertices. A group is named after one of its vertices.

    Attributes
    ----------
    of : uint32 array, shape (n,)
        By vertex: its group; `NOBODY` if that is full.
    following : uint32 array, shape (n,)
        By vertex: the next one of its group, which begins with the vertex it is named after; `NOBODY` behind the last.
    sizes : uint16 array, shape (n,)
        By group; 0 if no group has that name.
    """

    of: NDArray[np.uint32]
    following: NDArray[np.uint32]
    sizes: NDArray[np.uint16]


class _Partners(NamedTuple):
    """The best partner of each group, by name.

    Attributes
    ----------
    best : uint32 array, shape (n,)
        `NOBODY` where no group is near that fits a page with it.
    scores : float32 array, shape (n,)
    is_new : bool array, shape (n,)
        Whether the partner was found in this round.
    has_merged : bool array, shape (n,)
        Whether the group has merged, or merged into another, in the last round.
    """

    best: NDArray[np.uint32]
    scores: NDArray[np.float32]
    is_new: NDArray[np.bool_]
    has_merged: NDArray[np.bool_]


def merged(pairs: Pairs, b: int, threads: int, work: Work) -> Groups:
    """Return groups of at most `b` vertices, no two of which are near and fit a page together. Lists are used up."""
    n = len(pairs.heads) - 1
    groups = Groups(np.arange(n, dtype=np.uint32), np.full(n, NOBODY), np.ones(n, np.uint16))
    partners = _Partners(
        np.full(n, NOBODY), np.zeros(n, np.float32), np.zeros(n, np.bool_), np.ones(n, np.bool_)
    )
    weights = _weights(b)
    some = np.arange(n, dtype=np.uint32)

    def find(first: int, last: int) -> int:
        return int(_find(pairs, groups, partners, some[first:last], weights))

    def merge(first: int, last: int) -> None:
        _merge(pairs.heads, groups, partners, some[first:last], b)

    while len(some):
        if not work.spend(sum(run_blocks(find, len(some), _BLOCK, threads))):
            break
        _tell(partners, some)
        run_blocks(merge, len(some), _BLOCK, threads)
        n_left = _keep_growing(groups.sizes, some, b)
        if n_left == len(some):
            break
        some = some[:n_left]
    return groups


def _weights(b: int) -> NDArray[np.float32]:
    """Return ``size^(-3/8)`` by size: of square roots, which are the same on every processor."""
    root = np.sqrt(np.sqrt(np.arange(b + 1, dtype=np.float64).clip(1)))
    weights: NDArray[np.float32] = (1 / (root * np.sqrt(root))).astype(np.float32)
    return weights


@kernel
def _find(
    pairs: Any, groups: Any, partners: Any, some: Any, weights: Any
) -> Any:  # pragma: no cover - compiled
    """Find the best partner of those of `some` groups that merged, or whose partner did; return the entries read.

    Their lists get one entry for each group that is near and fits a page with theirs, instead of one for each of its
    vertices. Groups only grow, so those that do not fit will not fit later.
    """
    heads, others, closeness = pairs
    of, _, sizes = groups
    best, partner_scores, is_new, has_merged = partners
    most = MOST * (weights.size - 1)
    names, amounts = np.empty(most, np.uint32), np.empty(most, np.int32)
    found, totals, scores = np.empty(most, np.uint32), np.empty(most, np.int32), np.empty(most, np.float32)
    firsts, places = new_tally(most)
    spent, n_due, due = np.int64(0), 0, np.empty(some.size, np.uint32)
    for group in some:
        before = best[group]
        is_new[group] = has_merged[group] or (before != NOBODY and has_merged[before])
        due[n_due] = group
        n_due += is_new[group]
    for i in range(n_due):
        _fetch(heads, others, closeness, due, i, n_due)
        group = due[i]
        n_entries, m, v = np.int64(0), np.uint64(0), group
        while v != NOBODY:
            start, length = np.uint64(heads[v].start), np.uint64(heads[v].length)
            for at in range(start, start + length):
                name = of[others[at]]
                names[m], amounts[m] = name, closeness[at]
                m += np.uint64((name != group) & (name != NOBODY))
            n_entries += np.int64(length)
            v = heads[v].further
        n = sum_up(names, amounts, np.int64(m), firsts, places, found, totals)
        n = _score(group, found, totals, n, sizes, weights, scores)
        best[group], partner_scores[group] = _best(group, found, scores, n)
        if n < n_entries:
            _write(group, found, totals, n, heads, others, closeness)
        spent += n_entries
    return spent


@kernel(inline="always")
def _fetch(
    heads: Any, others: Any, closeness: Any, due: Any, i: Any, n: Any
) -> None:  # pragma: no cover - compiled
    """Have the lists of groups that are due soon on their way from memory."""
    if i + 4 * _AHEAD < n:
        prefetch(heads, due[i + 4 * _AHEAD])
    if i + 2 * _AHEAD < n:
        _fetch_list(heads, others, closeness, due[i + 2 * _AHEAD])
    if i + _AHEAD < n:
        v = heads[due[i + _AHEAD]].further
        if v != NOBODY:
            _fetch_list(heads, others, closeness, v)


@kernel(inline="always")
def _fetch_list(heads: Any, others: Any, closeness: Any, v: Any) -> None:  # pragma: no cover - compiled
    start, length = heads[v].start, np.int64(heads[v].length)
    for at in range(start, start + length, 16):
        prefetch(others, at)
    for at in range(start, start + length, 32):
        prefetch(closeness, at)
    if heads[v].further != NOBODY:
        prefetch(heads, heads[v].further)


@kernel(inline="always")
def _score(
    group: Any, found: Any, totals: Any, n: Any, sizes: Any, weights: Any, scores: Any
) -> Any:  # pragma: no cover - compiled
    """Move those that fit a page with a group to the front, write their scores, and return their number."""
    own, fitting = np.int64(sizes[group]), 0
    most = weights.size - 1 - own
    for i in range(n):
        size = np.int64(sizes[found[i]])
        found[fitting], totals[fitting] = found[i], totals[i]
        scores[fitting] = weights[size] * weights[own] * np.float32(totals[i])
        fitting += size <= most
    return fitting


@kernel(inline="always")
def _best(group: Any, found: Any, scores: Any, n: Any) -> Any:  # pragma: no cover - compiled
    """Return the best partner, `NOBODY` if there is none, and its score."""
    best, best_score = NOBODY, np.float32(0)
    for i in range(n):
        if scores[i] >= best_score and _is_better(group, found[i], scores[i], best, best_score):
            best, best_score = found[i], scores[i]
    return best, best_score


@kernel(inline="always")
def _write(
    group: Any, found: Any, totals: Any, n: Any, heads: Any, others: Any, closeness: Any
) -> None:  # pragma: no cover - compiled
    """Write the list of a group to the spaces that it had."""
    v, i = group, 0
    while True:
        at = heads[v].start
        m = min(n - i, heads[v + 1].start - at)
        for j in range(m):
            others[at + j], closeness[at + j] = found[i + j], min(totals[i + j], _MOST_CLOSENESS)
        heads[v].length, i = m, i + m
        if i == n:
            break
        v = heads[v].further
    heads[v].further = NOBODY


@kernel
def _is_better(
    group: Any, other: Any, score: Any, best: Any, best_score: Any
) -> Any:  # pragma: no cover - compiled
    """Whether another partner is better: by its score, and then by the number of the pair."""
    if score != best_score or best == NOBODY:
        return score > best_score
    return _number(group, other) < _number(group, best)


@kernel
def _number(one: Any, other: Any) -> Any:  # pragma: no cover - compiled
    """Return a number of a pair, the same in either order; others' are as if drawn.

    Of groups that are all equally close, as copies are, many pairs therefore merge at once.
    """
    pair = (np.uint64(min(one, other)) << np.uint64(32)) | np.uint64(max(one, other))
    return (pair ^ (pair >> np.uint64(29))) * _MULTIPLIER


@kernel
def _tell(partners: Any, some: Any) -> None:  # pragma: no cover - compiled
    """Let each group know of those that prefer it to all others.

    It may have looked before one of them grew, or not have it in a list that is full.
    """
    for group in some:
        other = partners.best[group]
        if other == NOBODY or not (partners.is_new[group] or partners.is_new[other]):
            continue
        score = partners.scores[group]
        if _is_better(other, group, score, partners.best[other], partners.scores[other]):
            partners.best[other], partners.scores[other] = group, score


@kernel
def _merge(heads: Any, groups: Any, partners: Any, some: Any, b: int) -> None:  # pragma: no cover - compiled
    """Merge those of `some` groups that prefer each other with their partners of larger names, perhaps elsewhere."""
    for group in some:
        other = partners.best[group]
        partners.has_merged[group] = other != NOBODY and partners.best[other] == group
        if not partners.has_merged[group] or other < group:
            continue
        if groups.sizes[group] + groups.sizes[other] == b:
            _rename(groups, group, NOBODY)
            _rename(groups, other, NOBODY)
        else:
            _rename(groups, other, group)
        v = group
        while heads[v].further != NOBODY:
            v = heads[v].further
        heads[v].further = other
        v = group
        while groups.following[v] != NOBODY:
            v = groups.following[v]
        groups.following[v] = other
        groups.sizes[group] += groups.sizes[other]
        groups.sizes[other] = 0


@kernel
def _keep_growing(sizes: Any, some: Any, b: int) -> Any:  # pragma: no cover - compiled
    """Move the groups that are not full to the front of `some`, return their number."""
    n = 0
    for group in some:
        some[n] = group
        n += 0 < sizes[group] < b
    return n


@kernel
def _rename(groups: Any, group: Any, name: Any) -> None:  # pragma: no cover - compiled
    v = group
    while v != NOBODY:
        groups.of[v] = name
        v = groups.following[v]
