"""A part: page reads at equal recall of indexes with samples of queries of several sizes, and without one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import indexmill
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.formats.index.manifest import read_manifest
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import LONG_SIZES, RECALL, Half, Row, summaries, tuned_trial, value_at
from indexmill.jobs.bench.common.dataset import K, count_hits, write_bin
from indexmill.jobs.bench.common.intervals import curve, figure_at, ratio_at
from indexmill.jobs.bench.common.parameters import ORDER, SEED, THREADS
from indexmill.jobs.bench.common.serving import make_row, measured
from indexmill.jobs.bench.queries_apart.sets import Apart
from indexmill.pipeline.kinds.common.metric import as_asked, as_stored
from indexmill.reader.index import Index

#: One in so many queries of the whole sample is given.
ONE_IN = (1, 10)
#: Queries by their likeness to the vectors.
ASKED = ("apart", "alike")
#: List sizes of a first sweep.
SIZES = (*LONG_SIZES, 1280)


class Asked(NamedTuple):
    """Queries and their right answers.

    Attributes
    ----------
    queries : float32 array, shape (n_queries, dim)
    nearest : float
        Median cosine of a query and its nearest vector.
    base, compared : float32 arrays
        Vectors and queries such that those nearest by squared distance are the right answers.
    distances : float32 array, shape (n_queries, K)
        Squared distances of the right answers.
    """

    queries: NDArray[np.float32]
    nearest: float
    base: NDArray[np.float32]
    compared: NDArray[np.float32]
    distances: NDArray[np.float32]

    def search(self, index: Index) -> Callable[[int, Half], Row]:
        """Return the search of `index` for one half of the queries."""

        def search(size: int, half: Half) -> Row:
            middle = len(self.queries) // 2
            some = slice(0, middle) if half == "tune" else slice(middle, None)
            with measured() as cost:
                found = index.search(self.queries[some], K, L=size, threads=THREADS)
            counted = {
                f"hits{name}": count_hits(
                    found.vector_ids, self.base, self.compared[some], self.distances[some], k
                )
                for name, k in (("", K), ("1", 1))
            }
            counted |= {name: found.counters[name] for name in ("pages_read", "hops")}
            return make_row(size, cost, 1, counted)

        return search


def measure(run: Run, name: str, made: Callable[[Run], Apart], metric: str = "cosine") -> dict[str, Any]:
    """Build indexes of a set with samples of several sizes and without one, in a folder of that name; search them."""
    out, data = run.out / name, made(run)
    shutil.rmtree(out, ignore_errors=True)  # work of a run that was killed is of other files
    out.mkdir()
    asked = {name: _asked(data.base, getattr(data, name), metric) for name in ASKED}
    write_bin(out / "base.fbin", data.base)
    rows = [_built(out, data, metric, asked, one_in) for one_in in (None, *ONE_IN)]
    plain = rows[0].pop("curves")
    found = []
    for row in rows[1:]:
        curves = row.pop("curves")
        found.append(row | {"ratio": {name: ratio_at(curves[name], plain[name], RECALL) for name in ASKED}})
    return {
        "metric": metric,
        "order": ORDER,
        "n_vectors": len(data.base),
        "dim": data.base.shape[1],
        "queries": len(data.apart) // 2,
        "nearest": {name: one.nearest for name, one in asked.items()},
        "plain": rows[0],
        "rows": found,
        "ratio": found[0]["ratio"],
    }


def _asked(base: NDArray[np.float32], queries: NDArray[np.float32], metric: str) -> Asked:
    rows, compared = as_stored(base, metric), as_asked(queries, metric)
    ids, distances = exact_neighbours(rows, compared, K, THREADS)
    nearest = base[ids[:, 0]]
    cosines = np.einsum("ij,ij->i", nearest, queries) / np.linalg.norm(nearest, axis=1)
    return Asked(queries, float(np.median(cosines)), rows, compared, distances)


def _built(
    out: Path, data: Apart, metric: str, asked: dict[str, Asked], one_in: int | None
) -> dict[str, Any]:  # fmt: skip
    """Build an index with one in so many queries of the sample, or without; return its searches' rows and curves."""
    name = "plain" if one_in is None else f"one-in-{one_in}"
    print(f"  {name}", file=sys.stderr, flush=True)
    given: dict[str, Any] = {}
    if one_in is not None:
        np.save(out / "sample.npy", data.sample[::one_in])
        given = {"query_sample": str(out / "sample.npy")}
    path = out / f"{name}.index"
    with measured() as cost:
        index = indexmill.build(
            out / "base.fbin",
            path,
            metric=metric,
            order=ORDER,
            seed=SEED,
            workers=THREADS,
            force=True,
            **given,
        )
    graph = read_manifest(path).graph
    swept = {kind: tuned_trial(one.search(index), SIZES)[1] for kind, one in asked.items()}
    curves = {kind: curve([rows], "pages_read") for kind, rows in swept.items()}
    return {
        "one_in": one_in,
        "sample": graph.get("query_sample"),
        "format": graph.get("format", {}).get("chosen"),  # none of a trial of few vectors
        "build_cpu_s": cost.cpu_s,
        "pages_read": {kind: figure_at(one, RECALL) for kind, one in curves.items()},
        "hops": {kind: value_at(rows, "hops", RECALL) for kind, rows in swept.items()},
        "searches": {kind: summaries(rows) for kind, rows in swept.items()},
        "curves": curves,
    }
