"""Recorded searches replayed in another format: the pages that the same searches would read there.

A search chooses what to expand by codes, in memory or beside the list that names the vertex, so with one node a page it
expands the same vertices in the same order wherever their lists stand. It reads a page when it chooses a vertex whose
list is neither at hand nor on its way, and keeps every page until it ends; a list is at hand once the page that it
stands on has arrived, which is when the recorded search expanded the vertex that asked for it. Exact distances only
rank the results: a format whose lists come without vectors reads, in the end, the vectors of the candidates that are
nearest by their codes. How many, and how long a list of candidates, is chosen for the fewest page reads at the recall
aimed at.

What a replay does not know: lists at hand might be followed earlier and so change what is chosen next, reads that are
saved might let others leave sooner, and a page of lists might be searched for more than what was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.kinds.common.judge import Cost, Judge
from indexmill.pipeline.relayout.explained.code_distances import CodeDistances
from indexmill.pipeline.relayout.explained.placement import Placement

if TYPE_CHECKING:
    from indexmill.reader.index import SearchResult

#: Stands for no vertex.
_NOBODY = -1


@dataclass(frozen=True)
class Searches:
    """Recorded searches.

    Attributes
    ----------
    vertices : int64 array, shape (q, s)
        Of each query the vertices it chose and those that it expanded, in turn; -1 behind the last.
    expanded : bool array, shape (q, s)
        Which of the two it is.
    """

    vertices: NDArray[np.int64]
    expanded: NDArray[np.bool_]

    @staticmethod
    def recorded(found: SearchResult, order: NDArray[np.uint32], nodes_per_group: int) -> Searches:
        """Return the searches of `found`, with a trace, of an index laid out in `order`, uint32 (n,).

        A vertex was chosen when the page that it stands on was asked for.
        """
        assert found.trace is not None
        kinds = found.trace["kind"].to_numpy()
        query, page = (found.trace[name].to_numpy().astype(np.int64) for name in ("query", "page"))
        at = np.flatnonzero(kinds == "expand")
        slot = found.trace["vertex"].take(at).to_numpy().astype(np.int64)
        reads = np.flatnonzero(kinds == "read")
        n_pages = -(-len(order) // nodes_per_group)
        read_at = np.full(len(found.slots) * n_pages, np.iinfo(np.int64).max)
        np.minimum.at(read_at, query[reads] * n_pages + page[reads], reads)
        chosen = np.minimum(read_at[query[at] * n_pages + slot // nodes_per_group], at)
        vertex = order[slot].astype(np.int64)
        # Chosen before it is expanded, where both happen at once.
        queries = np.concatenate([query[at], query[at]])
        turn = np.lexsort((np.repeat([0, 1], len(at)), np.concatenate([chosen, at]), queries))
        counts = np.bincount(queries, minlength=len(found.slots))
        place = np.arange(len(turn)) - np.repeat(np.cumsum(counts) - counts, counts)
        vertices = np.full((len(counts), max(1, int(counts.max(initial=0)))), _NOBODY)
        expanded = np.zeros(vertices.shape, np.bool_)
        vertices[queries[turn], place] = np.concatenate([vertex, vertex])[turn]
        expanded[queries[turn], place] = np.repeat([False, True], len(at))[turn]
        return Searches(vertices, expanded)

    def candidates(self, distances: CodeDistances) -> NDArray[np.int64]:
        """Return the vertices that each query expanded, nearest by their codes first, (q, e), -1 behind the last."""
        found = np.where(self.expanded, self.vertices, _NOBODY)
        far = np.where(found == _NOBODY, np.inf, distances.of(np.maximum(found, 0)))
        ranked = np.lexsort((found, far), axis=1)[:, : int((found != _NOBODY).sum(axis=1).max())]
        return np.take_along_axis(found, ranked, 1)


def replay(searches: Searches, placement: Placement) -> NDArray[np.bool_]:
    """Return the units that each query reads for lists in the format of `placement`, bool (q, n_units).

    Memory: a byte for each query and vertex, and one for each query and unit.
    """
    q, n = len(searches.vertices), len(placement.list_unit)
    at_hand, asked = np.zeros((q, n), np.bool_), np.zeros((q, placement.n_units), np.bool_)
    for vertices, expanded in zip(searches.vertices.T, searches.expanded.T, strict=True):
        chosen = np.flatnonzero((vertices != _NOBODY) & ~expanded)
        missing = chosen[~at_hand[chosen, vertices[chosen]]]
        asked[missing, placement.list_unit[vertices[missing]]] = True
        arrived = np.flatnonzero(expanded)
        arrived = arrived[asked[arrived, placement.list_unit[vertices[arrived]]]]
        at_hand[arrived[:, None], placement.lists[vertices[arrived]]] = True
    return asked


def reranked(
    asked: NDArray[np.bool_],
    candidates: NDArray[np.int64],
    hits: NDArray[np.bool_],
    k: int,
    placement: Placement,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return recall@k and page reads of each query, both (q, e + 1), by the number of candidates re-ranked in the end.

    Parameters
    ----------
    asked : bool array, shape (q, n_units)
        See `replay`; a vector that came with a list needs no read, and counts however few are re-ranked.
    candidates : int64 array, shape (q, e)
        Nearest by their codes first; -1 behind the last.
    hits : bool array, shape (q, e)
        Which of them are among the true neighbours, or as near.
    """
    rows, there = np.arange(len(candidates))[:, None], candidates != _NOBODY
    units = placement.vector_unit[np.maximum(candidates, 0)]
    known = asked[rows, units] & there
    keys = np.where(there & ~known, rows * placement.n_units + units, _NOBODY)
    first = np.zeros(keys.size, np.bool_)
    first[np.unique(keys, return_index=True)[1]] = True
    read = first.reshape(keys.shape) & (keys != _NOBODY)
    found = _counted(hits & known & there, hits & ~known & there)
    pages = placement.list_pages * asked.sum(axis=1)[:, None] + placement.vector_pages * _counted(None, read)
    return np.minimum(found, k) / k, pages.astype(np.float64)


def _counted(before: NDArray[np.bool_] | None, after: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the number of `after`, (q, e), among the first 0, 1, ..., e, and all of `before`; (q, e + 1)."""
    sums = np.zeros((len(after), after.shape[1] + 1), np.int64)
    np.cumsum(after, axis=1, out=sums[:, 1:])
    return sums if before is None else sums + before.sum(axis=1)[:, None]


def cheapest(
    recorded: Sequence[tuple[int, Searches]], placement: Placement, distances: CodeDistances, judge: Judge
) -> tuple[Cost, float]:
    """Return the least cost at the recall of `judge` in the format of `placement`, and how many it re-ranks.

    Parameters
    ----------
    recorded : sequence of (list size, Searches)
    """
    costs = []
    for list_size, searches in recorded:
        candidates = searches.candidates(distances)
        asked = replay(searches, placement)
        recalls, pages = reranked(asked, candidates, judge.hits(candidates), judge.k, placement)
        costs.append(cost_at(recalls, pages, judge.target, list_size))
    return min(costs, key=lambda each: (not each[0].reached, each[0].mean))


def cost_at(
    recalls: NDArray[np.float64], pages: NDArray[np.float64], target: float, list_size: float
) -> tuple[Cost, float]:
    """Return the cost where mean recall reaches `target`, linear between two numbers re-ranked, and that number.

    Parameters
    ----------
    recalls, pages : float64 arrays, shape (q, e + 1)
        See `reranked`.
    """
    means = recalls.mean(axis=0)
    if means[-1] < target:
        return Cost(pages[:, -1], float(means[-1]), list_size, False), float(len(means) - 1)
    high = int(np.argmax(means >= target))
    if high == 0:
        return Cost(pages[:, 0], float(means[0]), list_size, True), 0.0
    share = (target - means[high - 1]) / (means[high] - means[high - 1])
    between = pages[:, high - 1] + share * (pages[:, high] - pages[:, high - 1])
    return Cost(between, target, list_size, True), high - 1 + share
