"""A file of faiss and its layouts, searched by faiss in turns, each process under a memory limit of half the file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.cgroup import run_lowered
from indexmill.jobs.bench.common.dataset import Dataset
from indexmill.jobs.bench.common.disk import drop_cache
from indexmill.jobs.bench.common.intervals import Figure, ratio_of
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.process import module, run_indexmill
from indexmill.jobs.bench.inplace.child import GROUP

ORIGINAL = "original"
#: Share of the file that the page cache may hold.
CACHE_SHARE = 0.5
ROUNDS = 2
#: Flag of faiss that maps a file of any kind, without reading ahead; and the one of inverted lists, which reads ahead.
MAPPED, MAPPED_LISTS = "IO_FLAG_MMAP_IFC", "IO_FLAG_MMAP"


@dataclass(frozen=True)
class Files:
    """An index of faiss, and the same one laid out in several orders.

    Attributes
    ----------
    data : Dataset
        Whose queries are searched.
    folder : Path
        That of the files and of the answers.
    orders : tuple of str
    effort : int
        Candidates of a search in a graph, or lists that a query probes.
    flag : str
        That of `faiss.read_index`, by which a file is mapped.
    """

    data: Dataset
    folder: Path
    orders: tuple[str, ...]
    effort: int
    flag: str = MAPPED

    def file(self, name: str) -> Path:
        """Return the original, or a layout."""
        return self.folder / f"{name}.faiss"

    def answers(self, name: str) -> Path:
        """Return the answers of the last search of a file."""
        return self.folder / f"{name}.npz"

    @property
    def cache_bytes(self) -> int:
        """Page cache of a search."""
        return int(CACHE_SHARE * self.file(ORIGINAL).stat().st_size)

    def lay_out(self) -> dict[str, Any]:
        """Write the file in each order; return what that costs."""
        found = {}
        for order in self.orders:
            out = self.file(order)
            usage = run_indexmill(
                out.with_suffix(".log"), "layout", self.file(ORIGINAL), out=out, order=order, workers=THREADS
            )
            found[order] = {**usage.to_dict(), "bytes": out.stat().st_size}
        return {"orders": found}

    def search(self) -> dict[str, Any]:
        """Search the original and each layout, in turns."""
        names = (ORIGINAL, *self.orders)
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for _ in range(ROUNDS):
            for name in names:
                runs[name].append(self._run(name))
        figures: dict[str, Callable[[dict[str, Any]], float]] = {
            "qps": lambda one: one["queries"] / one["seconds"],
            "faults": lambda one: one["faults"] / one["queries"],
            "read_mb": lambda one: one["read_bytes"] / one["queries"] / 1e6,
            "cpu_ms": lambda one: 1000 * one["cpu_s"] / one["queries"],
        }
        return {
            "threads": THREADS,
            "cache_bytes": self.cache_bytes,
            "runs": runs,
            **{
                what: {name: median(map(figure, found)) for name, found in runs.items()}
                for what, figure in figures.items()
            },
            "ratio": {name: qps_ratio(runs[name], runs[ORIGINAL]) for name in self.orders},
            "same": {name: self._same(name) for name in self.orders},
        }

    def _run(self, name: str) -> dict[str, Any]:
        """Search one file once under its limit.

        Raises
        ------
        NoLimits
            If memory cannot be limited here.
        RuntimeError
            If it fails.
        """
        drop_cache(self.folder)
        asked = self.file(name), self.data.folder, self.effort, self.flag, self.answers(name)
        return run_lowered(module(sys.executable, "inplace.child", *asked), self.cache_bytes)

    def _same(self, name: str) -> dict[str, float]:
        """Return the shares of queries with the same distances, the same answers (`same_answers`), and the same ids."""
        one, other = (np.load(self.answers(which)) for which in (ORIGINAL, name))
        n = min(len(one["ids"]), len(other["ids"]))
        found = [one["distances"][:n], one["ids"][:n], other["distances"][:n], other["ids"][:n]]
        near = (found[0] == found[2]).all(axis=1)
        ids = (found[1] == found[3]).all(axis=1)
        return {
            "queries": n, "distances": float(near.mean()), "answers": float(same_answers(*found).mean()),
            "ids": float(ids.mean()),
        }  # fmt: skip


def same_answers(distances: Any, ids: Any, other_distances: Any, other_ids: Any) -> Any:
    """Return which queries have the same answers, bool (q,); arrays of shape (q, k), nearest first.

    Vectors at one distance may be named in any order, and of those at the last distance other ones.
    """
    is_last = distances == distances[:, -1:]

    def settled(ids: Any, distances: Any) -> Any:
        """Return ids, ascending among equal distances, and -1 at the last distance."""
        return np.where(is_last, -1, np.take_along_axis(ids, np.lexsort((ids, distances)), axis=1))

    same = (distances == other_distances).all(axis=1)
    return same & (settled(ids, distances) == settled(other_ids, other_distances)).all(axis=1)


def qps_ratio(runs: list[dict[str, Any]], others: list[dict[str, Any]]) -> Figure | None:
    """Return queries a second over those of `others`, of the queries that all runs searched.

    The interval is over groups of queries, whose seconds are means of all rounds.
    """
    groups = min(one["queries"] // GROUP for one in (*runs, *others))
    mine, theirs = (np.mean([one["group_s"][:groups] for one in rounds], axis=0) for rounds in (runs, others))
    return ratio_of(theirs, mine)
