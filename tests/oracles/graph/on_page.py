"""A slow, obvious search of an index whose nodes hold the codes of their neighbours.

It differs from `tests.oracles.graph.search` in two points: distances by codes come from the node that names the
neighbour, and the vertices where a search starts, which nothing has named, are farther than all others once they were
read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.oracles.files.on_page import read_on_page
from tests.oracles.graph.search import Query, SearchOracle

from indexmill.formats.graph.index import IndexFiles


class OnPageOracle(SearchOracle):
    """An index directory, its graph.imx read by the specification; it never looks at the codes in codes.imx."""

    def __init__(self, directory: str | Path) -> None:
        super().__init__(directory)
        del self.codes
        nodes = read_on_page(Path(directory) / "graph.imx")
        assert nodes is not None
        assert nodes.problems == []
        with IndexFiles(directory) as index:
            scale = index.graph.scale()
        self.vectors = nodes.vectors.astype(np.float64)
        if scale is not None:
            self.vectors = scale[0].astype(np.float64) + scale[1].astype(np.float64) * self.vectors
        self.neighbours, self.beside = nodes.neighbours, nodes.codes
        self.pages_per_block, self.nodes_per_block = nodes.pages_per_block, nodes.nodes_per_block

    def enter(self, state: Query, entry: str, count: int = 1) -> None:
        slots = self.entry_vertices(state.vector, entry, count)
        state.candidates = sorted((np.float32(0), slot) for slot in slots)

    def read_pages(self, state: Query, pages: set[int]) -> None:
        if not state.read_log:
            state.candidates = [(np.float32(np.inf), slot) for _, slot in state.candidates]
        state.read_log += sorted(pages)
        state.pages_read += len(pages) * self.pages_per_block

    def expand(self, state: Query, slot: int) -> None:
        state.expanded.append(slot)
        for neighbour, code in zip(self.neighbours[slot], self.beside[slot], strict=True):
            self.offer(state, neighbour, code)

    def offer(self, state: Query, slot: int, code: bytes) -> None:
        """Make a neighbour a candidate by the code that its node names it with."""
        state.pq_distances += 1
        if slot in state.pq_seen:
            return
        state.pq_seen.add(slot)
        state.visited.discard(slot)  # the first vertex, which is found again
        distance = np.float32(0)
        for j, byte in enumerate(code):
            distance += state.table[j, byte]
        state.candidates = sorted([*state.candidates, (distance, slot)])[: state.L]

    def page(self, slot: int) -> int:
        return slot // self.nodes_per_block

    def slots_of(self, page: int) -> Sequence[int]:
        first = page * self.nodes_per_block
        return range(first, min(first + self.nodes_per_block, len(self.vectors)))

    def scan(self, query: NDArray[np.float32], k: int, allowed: set[int]) -> tuple[list[int], int]:
        """Nearest of few allowed vertices, all of which are read, and the pages of that."""
        vector = self.stored_form(query)
        state = Query(vector, self.distance_table(vector), len(allowed))
        for slot in allowed:
            self.compute_exact(state, slot)
        best = sorted((distance, slot) for slot, distance in state.exact.items())[:k]
        pages = len({self.page(slot) for slot in allowed}) * self.pages_per_block
        return [slot for _, slot in best], pages


class LabelOracle(OnPageOracle):
    """A search that stays among the slots of a label, as if no other vertex were there."""

    def __init__(self, directory: str | Path, label: Collection[int]) -> None:
        super().__init__(directory)
        self.label = frozenset(label)
        for slot, (ids, codes) in enumerate(zip(self.neighbours, self.beside, strict=True)):
            kept = [j for j, neighbour in enumerate(ids) if neighbour in self.label]
            self.neighbours[slot], self.beside[slot] = [ids[j] for j in kept], [codes[j] for j in kept]

    def slots_of(self, page: int) -> Sequence[int]:
        return [slot for slot in super().slots_of(page) if slot in self.label]

    def entry_vertices(self, vector: NDArray[np.float64], entry: str, count: int) -> list[int]:
        """The label's entry vertex with the nearest centroid, whatever the rest says; else its first slot."""
        centroids, vertices = self.entries.centroids.astype(np.float64), self.entries.vertices.tolist()
        among = [i for i, slot in enumerate(vertices) if slot in self.label]
        if not among:
            return [min(self.label)]
        return [int(vertices[min(among, key=lambda i: (float(((centroids[i] - vector) ** 2).sum()), i))])]
