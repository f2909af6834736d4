"""A slow, obvious search of an index directory through `indexmill.formats`, for comparison with the native reader.

Everything the format leaves open about a search is decided here:

* a vertex is *expanded* once: its unseen neighbours get a PQ distance (float32) and join the candidates,
  which are kept sorted by (PQ distance, slot) and cut to L;
* the frontier of a hop is the W first candidates that are not expanded;
* results are ranked by (exact distance, slot);
* ``page`` keeps the pages it has read until the query ends; ``beam`` and ``completion`` forget them after the hop;
* ``pipeline`` takes up its reads in the order in which they were chosen;
* ``rounds`` expands what lies on pages at hand before it chooses the next reads.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.oracles.graph.navigation import navigation_search

from indexmill.formats.graph.index import IndexFiles

#: Cached vertices that page search expands while the reads of one hop are in flight.
EXPANSIONS_PER_HOP = 16
#: Vertices of pages at hand that rounds expand before each choice.
EXPANSIONS_PER_ROUND = 16
#: Reads of a round for each vertex where rounds start.
READS_PER_ENTRY = 4
#: Candidates of the search in the navigation graph.
NAVIGATION_LIST_SIZE = 8
#: Vertices of pages at hand that the pipeline expands for each read.
EXPANSIONS_PER_READ = 3
#: Reads in flight at the start, and at least.
FIRST_WIDTH = 2
#: How much its width grows after a read that brought no nearer candidate.
WIDEN = 2


def n_entries(policy: str, beam_width: int, L: int) -> int:
    """Centroids at whose vertices a search starts."""
    return min(-(-beam_width // READS_PER_ENTRY), L) if policy == "rounds" else 1


@dataclass
class Found:
    """Result and cost of one query.

    Attributes
    ----------
    slots, vector_ids : int64 array, shape (at most k,)
        Best first.
    distances : float64 array
        Squared distance to the stored vectors; under ip the negated product.
    scores : float64 array
        In the user's metric.
    pages_read : int
        Pages of 4096 bytes.
    hops : int
        Rounds with a frontier that was not empty; under pipeline the longest chain of reads each of which was
        chosen after another had been taken up.
    exact_distances, pq_distances : int
        Vertices whose exact distance was computed, once each; vertices that were offered to the candidates.
    expanded : list of int
        Slots in the order in which they were expanded.
    """

    slots: NDArray[np.int64]
    vector_ids: NDArray[np.int64]
    distances: NDArray[np.float64]
    scores: NDArray[np.float64]
    pages_read: int
    hops: int
    exact_distances: int
    pq_distances: int
    expanded: list[int]


@dataclass
class Query:
    """State of one search.

    Attributes
    ----------
    cached : set of int
        Pages that need no read; a search goes on as if they had been read.
    read_log : list of int
        Pages that were read, again and again where a policy reads them so.
    flat : bool
        Neighbour lists are not followed.
    visited : set of int
        Candidates that the pipeline has chosen.
    width : int or None
        Reads that the pipeline may have in flight; None before the search.
    allow : set of int, optional
        Where a filter is walked through, the slots that it allows: `allowed` are the candidates among them, at most
        `most_allowed`.
    """

    vector: NDArray[np.float64]
    table: NDArray[np.float32]
    L: int
    candidates: list[tuple[np.float32, int]] = field(default_factory=list)
    pq_seen: set[int] = field(default_factory=set)
    scored: dict[int, np.float32] = field(default_factory=dict)
    pq_distances: int = 0
    expanded: list[int] = field(default_factory=list)
    exact: dict[int, float] = field(default_factory=dict)
    pages: set[int] = field(default_factory=set)
    pages_read: int = 0
    hops: int = 0
    cached: frozenset[int] = frozenset()
    read_log: list[int] = field(default_factory=list)
    flat: bool = False
    visited: set[int] = field(default_factory=set)
    width: int | None = None
    allow: Collection[int] = ()
    allowed: list[tuple[np.float32, int]] = field(default_factory=list)
    most_allowed: int = 0

    def near(self) -> list[int]:
        """Slots of all candidates, nearest first."""
        return [slot for _, slot in sorted({*self.candidates, *self.allowed})]

    def offer(self, distance: np.float32, slot: int) -> None:
        """Make a vertex a candidate of each list that it is near enough for."""
        self.candidates = sorted({*self.candidates, (distance, slot)})[: self.L]
        if slot in self.allow:
            self.allowed = sorted({*self.allowed, (distance, slot)})[: self.most_allowed]


class SearchOracle:
    """An index directory, held in memory as plain arrays."""

    def __init__(self, directory: str | Path) -> None:
        with IndexFiles(directory) as index:
            nodes = index.graph.read_all()
            self.node_format = index.graph.node_format
            self.metric, self.max_norm = index.graph.metric, index.graph.max_norm
            scale = index.graph.scale()
            self.codebook, self.codes, self.entries = index.codebook, index.codes, index.entries
            self.navigation = index.navigation
            self.vector_ids = index.vector_ids.astype(np.int64)
        self.vectors = nodes.vectors.astype(np.float64)
        if scale is not None:
            self.vectors = scale[0].astype(np.float64) + scale[1].astype(np.float64) * self.vectors
        self.neighbours = [
            row[:degree].tolist() for row, degree in zip(nodes.neighbours, nodes.degrees, strict=True)
        ]

    def search(
        self,
        query: NDArray[Any],
        k: int,
        L: int,
        beam_width: int,
        policy: str = "page",
        entry: str = "centroids",
    ) -> Found:
        """Search one query, shape (dim,), as the user gives it.

        Parameters
        ----------
        policy : {"beam", "completion", "page", "pipeline", "rounds"}
            DiskANN++ Algorithm 1, AIO-ANN Algorithm 1 (which differs from it in time only), DiskANN++ Algorithm 5,
            page search without a barrier, and page search in few rounds.
        entry : {"centroids", "medoid", "navigation"}
        """
        vector = self.stored_form(query)
        state = Query(vector, self.distance_table(vector), L)
        self.enter(state, entry, n_entries(policy, beam_width, L))
        self.run(state, beam_width, policy)
        best = sorted((distance, slot) for slot, distance in state.exact.items())[:k]
        return self.found(state, best)

    def enter(self, state: Query, entry: str, count: int = 1) -> None:
        """Make the vertices where the search starts candidates: those of up to `count` centroids."""
        if entry == "navigation":
            assert self.navigation is not None
            found, n_scored = navigation_search(
                self.navigation, self.codes, state.table, NAVIGATION_LIST_SIZE
            )
            for distance, slot in found:
                state.offer(distance, slot)
            state.pq_seen.update(slot for _, slot in found)
            state.scored.update((slot, distance) for distance, slot in found)
            state.pq_distances += n_scored
        else:
            for slot in self.entry_vertices(state.vector, entry, count):
                self.add_candidate(state, slot)

    def run(self, state: Query, beam_width: int, policy: str) -> None:
        """Search until every candidate has been expanded."""
        searches = {
            "beam": self.beam_search,
            "completion": self.beam_search,
            "page": self.page_search,
            "pipeline": self.pipeline_search,
            "rounds": self.rounds_search,
        }
        searches[policy](state, beam_width)

    def found(self, state: Query, best: list[tuple[float, int]]) -> Found:
        """Result and cost of a search that ended, with the (distance, slot) pairs of its results."""
        slots = np.array([slot for _, slot in best], np.int64)
        distances = np.array([distance for distance, _ in best], np.float64)
        return Found(
            slots,
            self.vector_ids[slots],
            distances,
            self.scores(distances),
            state.pages_read,
            state.hops,
            len(state.exact),
            state.pq_distances,
            state.expanded,
        )

    def beam_search(self, state: Query, beam_width: int) -> None:
        """DiskANN++ Algorithm 1: read the frontier's pages, expand the frontier, repeat until it is empty."""
        while frontier := self.frontier(state, beam_width):
            state.hops += 1
            self.read_pages(state, {self.page(slot) for slot in frontier})
            for slot in frontier:
                self.compute_exact(state, slot)
                self.expand(state, slot)

    def page_search(self, state: Query, beam_width: int) -> None:
        """DiskANN++ Algorithm 5, where a number and not the clock ends a page expansion.

        The paper expands cached vertices until the reads are done, which depends on the device. Here each hop
        expands at most `EXPANSIONS_PER_HOP` of them.
        """
        while frontier := self.frontier(state, beam_width):
            state.hops += 1
            missing = {self.page(slot) for slot in frontier} - state.pages
            self.read_pages(state, missing)
            self.expand_page_heap(state, EXPANSIONS_PER_HOP)
            state.pages |= missing
            for page in missing:
                for slot in self.slots_of(page):
                    self.compute_exact(state, slot)
            for slot in frontier:
                if slot not in state.expanded:
                    self.expand(state, slot)

    def pipeline_search(self, state: Query, most: int) -> None:
        """Page search with up to `most` reads in flight, each taken up when those chosen before it have been."""
        width = min(FIRST_WIDTH, most) if state.width is None else state.width
        depth, visited = state.hops, state.visited  # what is visited was chosen, and is not chosen again
        waiting: list[tuple[int, int]] = []  # page, slot
        flights: list[tuple[int, int]] = []  # page, its place in the chain of reads
        while True:
            while len(flights) < width:
                unvisited = [slot for slot in state.near() if slot not in visited]
                if not unvisited:
                    break
                slot = unvisited[0]
                visited.add(slot)
                if slot in state.expanded:
                    continue
                page = self.page(slot)
                if page in state.pages:
                    self.expand(state, slot)
                    continue
                waiting.append((page, slot))
                if page not in [page for page, _ in flights]:
                    flights.append((page, depth + 1))
                    self.read_pages(state, {page})
            if not flights:
                state.width = width
                return
            page, place = flights.pop(0)
            depth = max(depth, place)
            state.hops, state.pages = depth, state.pages | {page}
            for slot in self.slots_of(page):
                self.compute_exact(state, slot)
            settled = self.settled(state, visited)
            for home, slot in waiting:
                if home == page and slot not in state.expanded:
                    self.expand(state, slot)
            waiting = [(home, slot) for home, slot in waiting if home != page]
            self.expand_page_heap(state, EXPANSIONS_PER_READ)
            came_nearer = self.settled(state, visited) < settled
            width = max(width - 1, min(FIRST_WIDTH, most)) if came_nearer else min(width + WIDEN, most)

    def rounds_search(self, state: Query, beam_width: int) -> None:
        """Page search in few rounds of reads: what is at hand is used up before the next ones are chosen."""
        while frontier := self.unread_frontier(state, beam_width):
            state.hops += 1
            missing = {self.page(slot) for slot in frontier}
            self.read_pages(state, missing)
            state.pages |= missing
            for page in missing:
                for slot in self.slots_of(page):
                    self.compute_exact(state, slot)
            for slot in frontier:
                if slot not in state.expanded:
                    self.expand(state, slot)
            self.expand_page_heap(state, EXPANSIONS_PER_ROUND)

    def unread_frontier(self, state: Query, most: int) -> list[int]:
        """The first candidates on up to `most` pages; candidates before them that are at hand are expanded."""
        chosen: list[int] = []
        while len({self.page(slot) for slot in chosen}) < most:
            left = [slot for slot in state.near() if slot not in state.expanded and slot not in chosen]
            if not left:
                break
            if self.page(left[0]) in state.pages:
                self.expand(state, left[0])
            else:
                chosen.append(left[0])
        return chosen

    def settled(self, state: Query, visited: set[int]) -> int:
        """Number of nearest candidates that are visited without a gap, of both lists."""
        return sum(
            next((i for i, (_, slot) in enumerate(near) if slot not in visited), len(near))
            for near in (state.candidates, state.allowed)
        )

    def expand_page_heap(self, state: Query, most: int) -> None:
        """Expand the nearest vertices of the pages that were there before this hop."""
        if state.flat:
            return
        waiting = sorted(
            (distance, slot) for slot, distance in state.exact.items() if slot not in state.expanded
        )
        for _, slot in waiting[:most]:
            self.expand(state, slot)

    def frontier(self, state: Query, beam_width: int) -> list[int]:
        """The first `beam_width` candidates that are not expanded."""
        return [slot for slot in state.near() if slot not in state.expanded][:beam_width]

    def expand(self, state: Query, slot: int) -> None:
        state.expanded.append(slot)
        for neighbour in [] if state.flat else self.neighbours[slot]:
            self.add_candidate(state, neighbour)

    def add_candidate(self, state: Query, slot: int) -> None:
        state.pq_distances += 1
        if slot in state.pq_seen:
            return
        state.pq_seen.add(slot)
        distance = self.code_distance(state, slot)
        state.scored[slot] = distance
        state.offer(distance, slot)

    def code_distance(self, state: Query, slot: int) -> np.float32:
        """Sum of the table's distances over the chunks, in their order."""
        distance = np.float32(0)
        for j, code in enumerate(self.codes[slot]):
            distance += state.table[j, code]
        return distance

    def compute_exact(self, state: Query, slot: int) -> None:
        if self.metric == "ip":  # the product itself: the query has nothing in the added dimension
            state.exact[slot] = -float(self.vectors[slot] @ state.vector)
        else:
            state.exact[slot] = float(((self.vectors[slot] - state.vector) ** 2).sum())

    def read_pages(self, state: Query, pages: set[int]) -> None:
        missing = pages - state.cached
        state.read_log += sorted(missing)
        state.pages_read += len(missing) * self.node_format.pages_per_node

    def page(self, slot: int) -> int:
        """Page of the slot, or the first page of its node counted in nodes."""
        return slot // self.node_format.nodes_per_group

    def slots_of(self, page: int) -> Sequence[int]:
        group = self.node_format.nodes_per_group
        return range(page * group, min((page + 1) * group, len(self.vectors)))

    def entry_vertex(self, vector: NDArray[np.float64], entry: str) -> int:
        return self.entry_vertices(vector, entry, 1)[0]

    def entry_vertices(self, vector: NDArray[np.float64], entry: str, count: int) -> list[int]:
        """Different slots of up to `count` nearest centroids, nearest first."""
        if entry == "medoid":
            return [self.entries.medoid]
        distances = ((self.entries.centroids.astype(np.float64) - vector) ** 2).sum(axis=1)
        nearest = np.argsort(distances, kind="stable")[:count]
        return list(dict.fromkeys(self.entries.vertices[nearest].tolist()))

    def distance_table(self, vector: NDArray[np.float64]) -> NDArray[np.float32]:
        """Squared distance of each chunk of the query to each centre, float32 (M, K)."""
        query = vector.astype(np.float32)
        if self.codebook.rotation is not None:
            query = self.codebook.rotation.T @ query
        squares = (self.codebook.pivots - query) ** 2
        return np.add.reduceat(squares, self.codebook.offsets[:-1].astype(np.int64), axis=1).T

    def stored_form(self, query: NDArray[Any]) -> NDArray[np.float64]:
        """The query in the space of the stored vectors."""
        q = query.astype(np.float64)
        if self.metric == "cosine":
            return q / np.linalg.norm(q)
        return np.append(q, 0.0) if self.metric == "ip" else q

    def scores(self, distances: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.metric == "cosine":
            return 1 - distances / 2
        if self.metric == "ip":
            return -distances
        return distances
