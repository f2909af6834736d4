"""Groups that merge in rounds: in each, every two groups that are each other's best partner."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.agglomerative.near import NearLists
from indexmill.layout.agglomerative.tally import add, clear, new_tally
from indexmill.layout.order import Work
from indexmill.reader.threads import run_blocks

NOBODY = np.uint32(0xFFFFFFFF)
#: Spreads the numbers of pairs: 2^64 over the golden ratio.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
#: Groups of a task.
_BLOCK = 2048


class Groups(NamedTuple):
    """A partition of the vertices. A group is named after one of its vertices.

    Attributes
    ----------
    of : uint32 array, shape (n,)
        By vertex: its group.
    following : uint32 array, shape (n,)
        By vertex: the next one of its group, which begins with the vertex it is named after; `NOBODY` behind the last.
    sizes : uint32 array, shape (n,)
        By group; 0 if no group has that name.
    """

    of: NDArray[np.uint32]
    following: NDArray[np.uint32]
    sizes: NDArray[np.uint32]


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


def merged(lists: NearLists, b: int, threads: int, work: Work) -> Groups:
    """Return groups of at most `b` vertices, no two of which are near and fit a page together."""
    n = len(lists.ids)
    groups = Groups(np.arange(n, dtype=np.uint32), np.full(n, NOBODY), np.ones(n, np.uint32))
    partners = _Partners(
        np.full(n, NOBODY), np.zeros(n, np.float32), np.zeros(n, np.bool_), np.ones(n, np.bool_)
    )
    weights = _weights(b)
    some = np.arange(n, dtype=np.uint32)

    def find(first: int, last: int) -> int:
        return int(_find(lists, groups, partners, some[first:last], weights))

    while len(some):
        if not work.spend(sum(run_blocks(find, len(some), _BLOCK, threads))):
            break
        _tell(partners, some)
        n_left = _merge(groups, partners, some, b)
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
    lists: Any, groups: Any, partners: Any, some: Any, weights: Any
) -> Any:  # pragma: no cover - compiled
    """Find the best partner of those of `some` groups that merged, or whose partner did; return the entries read."""
    near, ids, closeness = lists.ids.shape[1], lists.ids.reshape(-1), lists.closeness.reshape(-1)
    starts, sources, of_sources = lists.starts, lists.sources, lists.of_sources
    of, following, sizes = groups
    tally = new_tally(2 * near * (weights.size - 1))
    numbers, sums, places = tally
    others = np.empty(near, np.uint32)
    spent = 0
    for group in some:
        before = partners.best[group]
        partners.is_new[group] = partners.has_merged[group] or (
            before != NOBODY and partners.has_merged[before]
        )
        if not partners.is_new[group]:
            continue
        n, v, room = 0, group, weights.size - 1 - sizes[group]
        while v != NOBODY:
            first, last = starts[v], starts[v + 1]
            _look_up(of, sizes, group, room, ids, v * near, near, others)
            for j in range(near):
                if others[j] != group:
                    n = add(numbers, sums, places, n, others[j], closeness[v * near + j])
            for at in range(first, last, near):
                m = min(near, last - at)
                _look_up(of, sizes, group, room, sources, at, m, others)
                for j in range(m):
                    if others[j] != group:
                        n = add(numbers, sums, places, n, others[j], of_sources[at + j])
            spent += near + last - first
            v = following[v]
        best, best_score = NOBODY, np.float32(0)
        for i in range(n):
            other = numbers[places[i]]
            score = np.float32(sums[places[i]]) * (weights[sizes[group]] * weights[sizes[other]])
            if _is_better(group, other, score, best, best_score):
                best, best_score = other, score
        partners.best[group], partners.scores[group] = best, best_score
        clear(tally, n)
    return spent


@kernel(inline="always")
def _look_up(
    of: Any, sizes: Any, group: Any, room: Any, vertices: Any, first: Any, m: Any, others: Any
) -> None:  # pragma: no cover - compiled
    """Write the groups of `m` vertices, and `group` in place of those that there is no room for.

    Loads from all over memory overlap, because no branch waits for one.
    """
    for j in range(m):
        others[j] = of[vertices[first + j]]
    for j in range(m):
        others[j] = group if sizes[others[j]] > room else others[j]


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
    """Let each group that a new partner prefers to all others know of it: it may have looked before that one grew."""
    for group in some:
        other = partners.best[group]
        if not partners.is_new[group] or other == NOBODY:
            continue
        score = partners.scores[group]
        if _is_better(other, group, score, partners.best[other], partners.scores[other]):
            partners.best[other], partners.scores[other] = group, score


@kernel
def _merge(groups: Any, partners: Any, some: Any, b: int) -> Any:  # pragma: no cover - compiled
    """Merge what prefers each other; move the groups that are not full to the front of `some`, return their number."""
    for group in some:
        partners.has_merged[group] = False
    for group in some:
        other = partners.best[group]
        if other == NOBODY or other < group or partners.best[other] != group:
            continue
        _rename(groups, other, group)
        last = other
        while groups.following[last] != NOBODY:
            last = groups.following[last]
        groups.following[last] = groups.following[group]
        groups.following[group] = other
        groups.sizes[group] += groups.sizes[other]
        groups.sizes[other] = 0
        partners.has_merged[group] = partners.has_merged[other] = True
    n = 0
    for group in some:
        if 0 < groups.sizes[group] < b:
            some[n] = group
            n += 1
    return n


@kernel
def _rename(groups: Any, group: Any, name: Any) -> None:  # pragma: no cover - compiled
    v = group
    while v != NOBODY:
        groups.of[v] = name
        v = groups.following[v]
