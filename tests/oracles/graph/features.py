"""Filters, radii, caches and remembered results on top of the slow search, for comparison with the native reader.

* A filter never changes how a graph is walked, only what is returned, and how long the list is: ``L * n / n_allowed``,
  rounded up. With few allowed vertices (`scans`) all of them are candidates and no edge is followed.
* A range search starts with L. While more than half of the candidates could be within the radius, by the number of
  vertices met there (of allowed ones, if all allowed are scored), the list doubles and takes back the nearest of
  all that was scored.
* A cached page counts as read, but costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.oracles.graph.search import Found, Query, SearchOracle

#: Code distances that take as long as a page read.
CODE_DISTANCES_PER_PAGE = 1024


def scans(L: int, n: int, n_allowed: int) -> bool:
    """Whether all allowed vertices are scored instead of following edges."""
    return max(n_allowed, 1) ** 2 <= min(L, n) * n * CODE_DISTANCES_PER_PAGE


class FeatureOracle(SearchOracle):
    """A search with everything a caller can ask for."""

    def ask(
        self,
        query: NDArray[Any],
        L: int,
        beam_width: int,
        policy: str,
        entry: str = "centroids",
        k: int | None = None,
        radius: float | None = None,
        allow: Collection[int] | None = None,
        cached: Iterable[int] = (),
        previous: list[int] | None = None,
    ) -> tuple[Found, Query]:
        """Search one query for k neighbours or all within a radius.

        Parameters
        ----------
        radius : float
            In the user's metric.
        allow : set of int, optional
            Slots that may be returned.
        cached : set of int
            Pages, counted in nodes where one is larger than a page.
        previous : list of int, optional
            Slots of the results of the query before, where the search starts, if there are any.
        """
        vector, n = self.stored_form(query), len(self.vectors)
        state = Query(vector, self.distance_table(vector), L, cached=frozenset(cached))
        if allow is not None:
            state.flat = scans(L, n, len(allow))
            if not state.flat:
                state.L = -(-min(L, n) * n // len(allow))
        if state.flat:
            for slot in sorted(allow or ()):
                self.add_candidate(state, slot)
        elif previous:
            for slot in previous:
                self.add_candidate(state, slot)
        else:
            self.enter(state, entry)
        self.run(state, beam_width, policy)
        while radius is not None and n > state.L and self.half_is_within(state, radius, allow):
            self.grow(state, min(2 * state.L, n))
            self.run(state, beam_width, policy)
        best = sorted((distance, slot) for slot, distance in state.exact.items())
        best = [(distance, slot) for distance, slot in best if allow is None or slot in allow]
        if radius is not None:
            best = [(distance, slot) for distance, slot in best if self.is_within(distance, radius)]
        return self.found(state, best[:k]), state

    def is_within(self, distance: float, radius: float) -> bool:
        score = float(self.scores(np.array([distance]))[0])
        return score <= radius if self.metric == "l2" else score >= radius

    def half_is_within(self, state: Query, radius: float, allow: Collection[int] | None) -> bool:
        counted = state.exact.items()
        near = [slot for slot, distance in counted if self.is_within(distance, radius)]
        if state.flat and allow is not None:
            near = [slot for slot in near if slot in allow]
        return 2 * len(near) > state.L

    def grow(self, state: Query, L: int) -> None:
        """Take back the nearest of what was dropped; that the pipeline chose it before is forgotten."""
        state.visited &= {slot for _, slot in state.candidates}
        state.L = L
        state.candidates = sorted((distance, slot) for slot, distance in state.scored.items())[:L]

    def pages_around_entries(self, limit: int) -> list[int]:
        """Walk from the medoid, then the centroids' vertices, level by level; the first `limit` pages met."""
        level = list(dict.fromkeys([self.entries.medoid, *self.entries.vertices.tolist()]))
        seen, pages = set(level), []
        while level:
            pages += [page for page in dict.fromkeys(map(self.page, level)) if page not in pages]
            pages = pages[:limit]
            following = []
            for slot in level:
                for neighbour in self.neighbours[slot] if self.page(slot) in pages else []:
                    if neighbour not in seen:
                        seen.add(neighbour)
                        following.append(neighbour)
            level = following
        return pages

    def hottest_pages(self, logs: Iterable[list[int]], limit: int) -> list[int]:
        """The pages read most often, of equals the first."""
        counts = Counter(page for log in logs for page in log)
        return sorted(counts, key=lambda page: (-counts[page], page))[:limit]
