"""An index of a graph, and what searches of it find and read with each component of DiskANN++.

Components are entry (A), mapping (B) and page search (C); ``-`` is beam search of the input order from the medoid, as
DiskANN searches. The input order is a view of the index in star order; its counters are those of an index written so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

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

    `flags` are ``node_dtype`` and ``pq_bytes``, by default the vectors' own type and a tenth of their bytes as float32.
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
    """An index that stays open; see `built` for its parameters.

    Attributes
    ----------
    case : Case
    vector_ids : uint32 array, shape (n_vectors,)
        Vector id of each slot in star order.
    medoid : int
        Vector id of the medoid.
    nodes_per_page : int
    """

    def __init__(self, case: Case, **flags: Any) -> None:
        path = built(case, **flags)
        self.case = case
        self.vector_ids = read_ids(path / "ids.imx")[0]
        self.medoid = int(self.vector_ids[read_entries(path / "entries.imx").medoid])
        with GraphFile(path / "graph.imx") as graph:
            self.nodes_per_page = graph.node_format.nodes_per_page
        self._star = Index(path, "mmap", ids="memory")

    @cached_property
    def _identity(self) -> Index:
        return self._star.remapped(np.argsort(self.vector_ids))

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
        index = self._star if "B" in components else self._identity
        policy: Literal["page", "beam"] = "page" if "C" in components else "beam"
        entry: Literal["centroids", "medoid"] = "centroids" if "A" in components else "medoid"
        return index.search(
            self.case.queries[:n_queries], min(size, KS[-1]), L=size, beam_width=width, policy=policy, entry=entry,
            threads=THREADS, trace=trace,
        )  # fmt: skip


def sweep(graph: Graph, components: str, width: int = ours.DISKANN_WIDTH) -> list[Row]:
    """Search with growing lists until the recall of 100 neighbours passes the last of `RECALLS`; a row for each."""
    rows: list[Row] = []
    for size in SIZES:
        if size > len(graph.vector_ids):
            break
        found = graph.search(components, size, width)
        counted = {name: float(found.counters[name].mean()) for name in ("pages_read", "hops")}
        rows.append({"L": size, **graph.case.recalls(found.vector_ids), **counted})
        if (rows[-1][f"recall{KS[-1]}"] or 0) >= RECALLS[-1]:
            break
    return rows


def at(rows: Sequence[Row], cost: str, recall: float, k: int = KS[-1]) -> float | None:
    """Return a cost where the recall of k neighbours is `recall`; None if it was not reached."""
    of = f"recall{k}"
    return value_at([row for row in rows if row[of] is not None], cost, recall, of)


def by_recall(figure: Callable[[float, int], Any], ks: Sequence[int] = KS) -> dict[str, dict[str, Any]]:
    """Return a figure for each k and each of `RECALLS`, by their names in records."""
    return {str(k): {key(recall): figure(recall, k) for recall in RECALLS} for k in ks}


def compared(rows: Sequence[Row], plain: Sequence[Row]) -> dict[str, Any]:
    """Return what a record keeps of a search: costs, how many times fewer pages it reads than `plain`, and all rows.

    Both are told by k and by recall; None where one of them was not reached.
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
