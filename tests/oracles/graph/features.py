"""Filters, radii, caches and remembered results on top of the slow search, for comparison with the native reader.

* With few allowed vertices (`scans`) all of them are candidates and no edge is followed. Otherwise there are two lists,
  the L nearest allowed vertices and the `through` nearest of any kind, and the walk also starts at the nearest of a
  sample of the allowed ones.
* A range search starts with L. While more than half of the candidates could be within the radius, by the number of
  vertices met there (of allowed ones, if all allowed are scored), the lists double and take back the nearest of
  all that was scored. With two lists, the candidates are those of any kind.
* A cached page counts as read, but costs nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.oracles.graph.search import Found, Query, SearchOracle, n_entries

#: Code distances that take as long as a page read.
CODE_DISTANCES_PER_PAGE = 2048
#: Vertices of a filter's sample, and how many of them a walk starts at.
SAMPLE, ALLOWED_ENTRIES = 256, 8


def scans(L: int, n: int, n_allowed: int) -> bool:
    """Whether all allowed vertices are scored instead of following edges."""
    return n_allowed**3 <= (CODE_DISTANCES_PER_PAGE * min(L, n)) ** 2 * n


def through(L: int, n: int, n_allowed: int) -> int:
    """Candidates of any kind in a walk through a filter."""
    return n if n <= L else min(n, math.ceil(L * math.sqrt(n / max(n_allowed, 1)) / 2))


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
                state.L, state.most_allowed = through(L, n, len(allow)), min(L, n)
                state.allow = allow
        if state.flat:
            for slot in sorted(allow or ()):
                self.add_candidate(state, slot)
        elif previous:
            for slot in previous:
                self.add_candidate(state, slot)
        else:
            self.enter(state, entry, n_entries(policy, beam_width, state.L))
        if state.allow:
            self.enter_allowed(state)
        self.run(state, beam_width, policy)
        while radius is not None and n > state.L and self.half_is_within(state, radius, allow):
            self.double(state, n)
            self.run(state, beam_width, policy)
        best = sorted((distance, slot) for slot, distance in state.exact.items())
        best = [(distance, slot) for distance, slot in best if allow is None or slot in allow]
        if radius is not None:
            best = [(distance, slot) for distance, slot in best if self.is_within(distance, radius)]
        return self.found(state, best[:k]), state

    def enter_allowed(self, state: Query) -> None:
        """Make the nearest of a sample of the allowed vertices candidates."""
        sample = sorted(state.allow)[:: max(1, -(-len(state.allow) // SAMPLE))]
        state.pq_distances += len(sample)
        nearest = sorted((self.code_distance(state, slot), slot) for slot in sample)[:ALLOWED_ENTRIES]
        for distance, slot in nearest:
            state.pq_seen.add(slot)
            state.scored[slot] = distance
            state.offer(distance, slot)

    def is_within(self, distance: float, radius: float) -> bool:
        score = float(self.scores(np.array([distance]))[0])
        return score <= radius if self.metric == "l2" else score >= radius

    def half_is_within(self, state: Query, radius: float, allow: Collection[int] | None) -> bool:
        counted = state.exact.items()
        near = [slot for slot, distance in counted if self.is_within(distance, radius)]
        if state.flat and allow is not None:
            near = [slot for slot in near if slot in allow]
        return 2 * len(near) > state.L

    def double(self, state: Query, n: int) -> None:
        """Take back the nearest of what was dropped; that the pipeline chose it before is forgotten."""
        state.visited &= set(state.near())
        state.L, state.most_allowed = min(2 * state.L, n), min(2 * state.most_allowed, n)
        for slot, distance in state.scored.items():
            state.offer(distance, slot)

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
