"""An index of a graph, and what searches of it find and read with each component of DiskANN++.

Components are entry (A), mapping (B) and page search (C); ``-`` is beam search of the input order from the medoid, as
DiskANN searches. The input order is a view of the index in star order; its counters are those of an index written so.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

import indexmill
from indexmill.formats.graph.entries import read_entries
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.index.ids import read_ids
from indexmill.jobs.bench.common.curves import Row, key, ratio, summaries, value_at
from indexmill.jobs.bench.common.parameters import (
    ALPHA,
    BUILD_LIST_SIZE,
    BUILD_MEMORY,
    MAX_DEGREE,
    SEED,
    THREADS,
)
from indexmill.jobs.bench.counts.sets import KS, Case
from indexmill.jobs.bench.programs import ours
from indexmill.layout.order import Adjacency
from indexmill.reader.index import Index, SearchResult

#: Rows of Table VI.
COMPONENTS = ("-", "A", "B", "C", "AB", "AC", "BC", "ABC")
PLAIN, WHOLE = "-", "ABC"
#: List sizes, in steps of about 1.4; those from 100 on find 100 neighbours.
SIZES = (10, 14, 20, 28, 40, 56, 80, 100, 140, 200, 280, 400, 560, 800, 1120)
#: Recalls at which costs are told; a sweep ends at the last one.
RECALLS = (0.85, 0.90, 0.97, 0.99)


def built(case: Case, **flags: Any) -> Path:
    """Build an index in star order unless it is there; return its directory.

    `flags` are ``node_dtype`` and ``pq_bytes``, by default the vectors' own type and a tenth of their bytes as float32,
    and ``entries``, the number of centroids, by default the builder's own.
    """
    stated = {"node_dtype": "same", "pq_bytes": case.code_bytes(), **flags}
    path = case.out / ("-".join(str(value) for value in stated.values()) + ".index")
    if not case.is_built(path):
        print(f"  {case.name}: building {path.name}", file=sys.stderr, flush=True)
        indexmill.build(
            case.data.base, path, kind="graph", builder=case.builder, R=MAX_DEGREE, L=BUILD_LIST_SIZE, alpha=ALPHA,
            order="star", metric="l2", pq_rotation="none", navigation=0.0, seed=SEED, memory=BUILD_MEMORY,
            workers=THREADS, work=str(case.work), force=True, **stated,
        )  # fmt: skip
    return path


class Graph:
    """An index that stays open.

    Parameters
    ----------
    case : Case
    path : Path, optional
        An index of the case in star order; by default the one that is built with `flags` (see `built`).

    Attributes
    ----------
    case : Case
    path : Path
    vector_ids : uint32 array, shape (n_vectors,)
        Vector id of each slot in star order, or in the order of a view.
    medoid : int
        Vector id of the medoid.
    nodes_per_page : int
    """

    def __init__(self, case: Case, path: Path | None = None, **flags: Any) -> None:
        path = built(case, **flags) if path is None else path
        self.case, self.path = case, path
        self.vector_ids = read_ids(path / "ids.imx")[0]
        self.medoid = int(self.vector_ids[read_entries(path / "entries.imx").medoid])
        with GraphFile(path / "graph.imx") as graph:
            self.nodes_per_page = graph.node_format.nodes_per_page
        self._star = Index(path, "mmap", ids="memory")

    @cached_property
    def _identity(self) -> Index:
        return self._star.remapped(np.argsort(self.vector_ids))

    def adjacency(self) -> Adjacency:
        """Return the lists of all vertices by vector id, nearest neighbour first."""
        with GraphFile(self.path / "graph.imx") as file:
            nodes = file.read_all()
        neighbours, degrees = np.empty_like(nodes.neighbours), np.empty(len(nodes), np.int32)
        ids = read_ids(self.path / "ids.imx")[0]
        neighbours[ids], degrees[ids] = ids[nodes.neighbours], nodes.degrees
        return Adjacency(neighbours, degrees)

    def laid_out(self, order: NDArray[np.uint32]) -> Graph:
        """Return a view, with a cache of its own, with vector id ``order[s]`` in slot s in place of the star order."""
        view = copy.copy(self)
        view._star = self._identity.remapped(order)
        view.vector_ids = order
        return view

    def index_of(self, components: str) -> Index:
        """Return what is searched: the star order, or that of a view, with B, else the input's."""
        return self._star if "B" in components else self._identity

    def ids_of(self, components: str) -> NDArray[np.uint32]:
        """Return the vector id of each slot in the order that is searched."""
        in_order = np.arange(len(self.vector_ids), dtype=np.uint32)
        return self.vector_ids if "B" in components else in_order

    def search(
        self, components: str, size: int, width: int = ours.DISKANN_WIDTH, n_queries: int | None = None,
        trace: bool = False,
    ) -> SearchResult:  # fmt: skip
        """Find 100 neighbours, or `size`, of the asked queries, or of the first `n_queries` of them.

        Parameters
        ----------
        components : str
            One of `COMPONENTS`.
        size, width : int
            L and W.
        n_queries : int, optional
        trace : bool
            Whether to record every read.
        """
        policy: Literal["page", "beam"] = "page" if "C" in components else "beam"
        entry: Literal["centroids", "medoid"] = "centroids" if "A" in components else "medoid"
        return self.index_of(components).search(
            self.case.queries[:n_queries], min(size, KS[-1]), L=size, beam_width=width, policy=policy, entry=entry,
            threads=THREADS, trace=trace,
        )  # fmt: skip


def sweep(graph: Graph, components: str, width: int = ours.DISKANN_WIDTH) -> list[Row]:
    """Search with growing lists until the recall of 100 neighbours passes the last of `RECALLS`; a row for each."""
    return swept(lambda size: graph.search(components, size, width), graph.case)


class Found(Protocol):
    """What searches found, (n_queries, k) nearest first, and what they counted of each query."""

    @property
    def vector_ids(self) -> NDArray[np.int64]:
        """Vector ids; -1 for nothing."""

    @property
    def counters(self) -> Mapping[str, NDArray[Any]]:
        """By their names, shape (n_queries,) each."""


def swept(search: Callable[[int], Found], case: Case, k: int = KS[-1]) -> list[Row]:
    """Search with growing lists until the recall of k neighbours passes the last of `RECALLS`; a row for each.

    Parameters
    ----------
    search : function
        Asks the queries of the case with a list size.
    """
    rows: list[Row] = []
    n_vectors = case.data.shape()[0]
    for size in SIZES:
        if size > n_vectors:
            break
        found = search(size)
        counted = {name: float(found.counters[name].mean()) for name in ("pages_read", "hops")}
        rows.append({"L": size, **case.recalls(found.vector_ids), **counted})
        if (rows[-1][f"recall{k}"] or 0) >= RECALLS[-1]:
            break
    return rows


def at(rows: Sequence[Row], cost: str, recall: float, k: int = KS[-1]) -> float | None:
    """Return a cost where the recall of k neighbours is `recall`; None where no two rows lie around it."""
    of = f"recall{k}"
    return value_at(_with_recall(rows, of), cost, recall, of)


def size_at(rows: Sequence[Row], recall: float) -> int:
    """Return the list size with about this recall@100; the least if that passes it, the longest if none reaches it."""
    size = at(rows, "L", recall)
    if size is not None:
        return round(size)
    of = f"recall{KS[-1]}"
    told = _with_recall(rows, of)
    return int(told[0 if told[0][of] > recall else -1]["L"])


def _with_recall(rows: Sequence[Row], of: str) -> list[Row]:
    return [row for row in rows if row[of] is not None]


def by_recall(figure: Callable[[float, int], Any], ks: Sequence[int] = KS) -> dict[str, dict[str, Any]]:
    """Return a figure for each k and each of `RECALLS`, by their names in records."""
    return {str(k): {key(recall): figure(recall, k) for recall in RECALLS} for k in ks}


def compared(rows: Sequence[Row], plain: Sequence[Row]) -> dict[str, Any]:
    """Return what a record keeps of a search: costs, how many times fewer pages it reads than `plain`, and all rows.

    Both are told by k and by recall; None where a recall was not reached, or was passed with the shortest list.
    """

    def costs(recall: float, k: int) -> dict[str, float | None]:
        return {cost: at(rows, cost, recall, k) for cost in ("pages_read", "hops")}

    def fewer(recall: float, k: int) -> float | None:
        return ratio(at(plain, "pages_read", recall, k), at(rows, "pages_read", recall, k))

    return {
        "at": by_recall(costs),
        "ratio": by_recall(fewer),
        "highest_recall": max((row[f"recall{KS[-1]}"] or 0.0) for row in rows),
        "rows": summaries(list(rows)),
    }
