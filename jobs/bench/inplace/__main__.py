"""Lay a file of faiss out and search both with faiss, mapped, where memory holds half of the file.

Parts: `build` makes an IndexHNSWFlat; `layouts` writes it in several orders; `search` compares queries a second and
answers, in turns, each process in a control group with page cache for half of the file; `lists` counts what an order
of inverted lists would save. Needs faiss-cpu, leave to make a control group, and about 20 minutes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.jobs.bench.common.benchmark import Benchmark, Run, Target
from indexmill.jobs.bench.common.cgroup import run_lowered
from indexmill.jobs.bench.common.dataset import Dataset, K, read_bin
from indexmill.jobs.bench.common.disk import drop_cache
from indexmill.jobs.bench.common.intervals import Figure, ratio_of
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.process import module, run_indexmill
from indexmill.jobs.bench.inplace import lists
from indexmill.jobs.bench.inplace.child import GROUP
from indexmill.jobs.bench.programs.faiss import load_faiss

#: Vectors; places of a list on higher levels, candidates of the build, and of a search.
ROWS, M, BUILD_LIST, SEARCH_LIST = 500_000, 32, 40, 64
ORDERS = ("star", "kmeans-pages", "agglomerative")
ORIGINAL = "original"
#: Share of the file that the page cache may hold.
CACHE_SHARE = 0.5
ROUNDS = 2
_STEP = 50_000


def build(space: Run) -> dict[str, Any]:
    """Build faiss's index of the first vectors, as float32."""
    base = read_bin(_data(space).base)[:ROWS]
    faiss = load_faiss()
    index = faiss.IndexHNSWFlat(base.shape[1], M)
    index.hnsw.efConstruction = BUILD_LIST
    began = time.perf_counter()
    for first in range(0, len(base), _STEP):
        index.add(np.array(base[first : first + _STEP], np.float32))
    seconds = time.perf_counter() - began
    _folder(space).mkdir(parents=True, exist_ok=True)
    faiss.write_index(index, str(_file(space, ORIGINAL)))
    return {
        "n_vectors": len(base), "M": M, "build_list": BUILD_LIST, "seconds": seconds,
        "bytes": _file(space, ORIGINAL).stat().st_size,
    }  # fmt: skip


def layouts(space: Run) -> dict[str, Any]:
    """Write the file in each order; return what that costs."""
    original = _file(space, ORIGINAL)
    found = {}
    for order in ORDERS:
        out = _file(space, order)
        log = out.with_suffix(".log")
        usage = run_indexmill(log, "layout", original, out=out, order=order, workers=THREADS)
        found[order] = {**usage.to_dict(), "bytes": out.stat().st_size}
    return {"orders": found}


def search(space: Run) -> dict[str, Any]:
    """Search the original and each layout, in turns."""
    names = (ORIGINAL, *ORDERS)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name in names:
            runs[name].append(_run(space, name))
    figures: dict[str, Callable[[dict[str, Any]], float]] = {
        "qps": lambda one: one["queries"] / one["seconds"],
        "faults": lambda one: one["faults"] / one["queries"],
        "cpu_ms": lambda one: 1000 * one["cpu_s"] / one["queries"],
    }
    return {
        "list_size": SEARCH_LIST,
        "threads": THREADS,
        "cache_bytes": _cache_bytes(space),
        "runs": runs,
        "recall": _recall(space),
        **{
            what: {name: median(map(figure, found)) for name, found in runs.items()}
            for what, figure in figures.items()
        },
        "ratio": {name: qps_ratio(runs[name], runs[ORIGINAL]) for name in ORDERS},
        "same": {name: _same(space, name) for name in ORDERS},
    }


def inverted(space: Run) -> dict[str, Any]:
    """Count page reads of inverted lists in two orders."""
    return lists.measure(_data(space), ROWS)


def _data(space: Run) -> Dataset:
    return space.sets["sift1m"]


def _folder(space: Run) -> Path:
    return space.out / "inplace"


def _file(space: Run, name: str) -> Path:
    return _folder(space) / f"{name}.faiss"


def _answers(space: Run, name: str) -> Path:
    return _folder(space) / f"{name}.npz"


def _cache_bytes(space: Run) -> int:
    return int(CACHE_SHARE * _file(space, ORIGINAL).stat().st_size)


def _run(space: Run, name: str) -> dict[str, Any]:
    """Search one file once under its limit.

    Raises
    ------
    NoLimits
        If memory cannot be limited here.
    RuntimeError
        If it fails.
    """
    drop_cache(_folder(space))
    command = module(
        sys.executable, "inplace.child", _file(space, name), _data(space).folder, SEARCH_LIST,
        _answers(space, name),
    )  # fmt: skip
    return run_lowered(command, _cache_bytes(space))


def _recall(space: Run) -> dict[str, float]:
    """Return the share of results no farther than the K-th true neighbour."""
    data = _data(space)
    queries = np.asarray(read_bin(data.query))
    queries = queries[len(queries) // 2 :]
    farthest = exact_neighbours(read_bin(data.base)[:ROWS], queries, K, THREADS)[1][:, -1]
    found = {}
    for name in (ORIGINAL, *ORDERS):
        distances = np.load(_answers(space, name))["distances"]
        found[name] = float((distances <= farthest[: len(distances), None]).mean())
    return found


def _same(space: Run, name: str) -> dict[str, float]:
    """Return the shares of queries with the same distances, the same answers (`same_answers`), and the same ids."""
    one, other = (np.load(_answers(space, which)) for which in (ORIGINAL, name))
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


BENCHMARK = Benchmark[Run](
    "inplace",
    {"build": build, "layouts": layouts, "search": search, "lists": inverted},
    targets=(
        Target("faiss HNSW mapped in half its memory: queries a second, laid out / original",
               "search.ratio['kmeans-pages']", ">=", 1.5, "x"),
        Target("queries with the same answers, ties excepted", "search.same['kmeans-pages'].answers", ">=", 1.0),
    ),
    parameters={
        "rows": ROWS, "M": M, "build_list": BUILD_LIST, "search_list": SEARCH_LIST, "threads": THREADS,
        "rounds": ROUNDS, "group": GROUP,
    },
    peers=("faiss-cpu",),
)  # fmt: skip

if __name__ == "__main__":
    BENCHMARK.main()
