"""Indexes that live, and what is measured of each: times, recall and page reads, beside those of rebuilds."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import indexmill
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.jobs.bench.common.curves import COARSE_SIZES, RECALL, ratio, value_at
from indexmill.jobs.bench.common.dataset import Dataset, K, count_hits, read_bin
from indexmill.jobs.bench.common.parameters import ALPHA, BUILD_LIST_SIZE, MAX_DEGREE, SEED, THREADS, pq_bytes
from indexmill.jobs.kinds.opening import open_index

PARAMETERS: dict[str, Any] = {
    "R": MAX_DEGREE, "L": BUILD_LIST_SIZE, "alpha": ALPHA, "pq_rotation": "none", "node_dtype": "same", "seed": SEED,
    "workers": THREADS, "force": True,
}  # fmt: skip
#: Share of the vectors that parts ``delete`` and ``pages`` delete.
DELETED_SHARE = 0.1
#: Vectors of the builds that load kernels.
WARM_UP_ROWS = 3000
#: Times of what takes seconds are medians of so many.
REPEATS = 3
_DELETIONS = 0xDE1


@dataclass(frozen=True, eq=False)
class Living:
    """Vectors and indexes of the parts.

    Attributes
    ----------
    data : dict of str to Dataset
    out : Path
    """

    data: dict[str, Dataset]
    out: Path

    @cache  # noqa: B019  # one object a run
    def vectors(self, name: str) -> NDArray[Any]:
        """Return the vectors of a set; kernels are loaded with the first."""
        rows = np.asarray(read_bin(self.data[name].base))
        warm = self.out / f"warm-up-{name}"
        for builder in ("vamana", "auto"):
            indexmill.build(rows[:WARM_UP_ROWS], warm, builder=builder, **parameters(rows))
        indexmill.append(warm, rows[:10])
        indexmill.delete(warm, [0, 1], by="vector")
        indexmill.compact(warm)
        shutil.rmtree(warm)
        return rows

    @cache  # noqa: B019
    def queries(self, name: str) -> NDArray[Any]:
        """Return the second half of the queries of a set."""
        return np.asarray(read_bin(self.data[name].query))[self.data[name].halves()[0] :]

    def build(self, vectors: NDArray[Any], name: str, builder: str = "vamana") -> dict[str, Any]:
        """Build an index called `name`; return its seconds."""
        path = self.out / name
        return timed(lambda: indexmill.build(vectors, path, builder=builder, **parameters(vectors)))

    def search(
        self, name: str, index: str, vectors: NDArray[Any], left: NDArray[Any] | None = None
    ) -> dict[str, Any]:
        """Search an index for recall and page reads by list size.

        Parameters
        ----------
        vectors : array, shape (n, dim)
            By vector id.
        left : integer array, optional
            Vector ids of those that are not deleted; default: all.
        """
        queries, opened = self.queries(name), open_index(self.out / index)
        base = vectors if left is None else np.ascontiguousarray(vectors[left])
        truth = exact_neighbours(base, queries, K, THREADS)[1]
        rows = []
        for size in COARSE_SIZES:
            result = opened.search(queries, K, L=size, threads=THREADS, deterministic=True)
            recall = float(count_hits(result.vector_ids, vectors, queries, truth).mean()) / K
            pages = float(result.counters["pages_read"].mean())
            rows.append({"L": size, "recall": round(recall, 5), "pages_read": round(pages, 3)})
        return {"rows": rows, "reads": value_at(rows, "pages_read")}

    def rebuilds(self, name: str, vectors: NDArray[Any]) -> dict[str, Any]:
        """Build the vectors that remain by both builders, and search the index of the first."""
        index = f"{name}-rebuilt"
        default = self.build(vectors, index, "auto")
        vamana = self.build(vectors, index)
        return {"default": default, **vamana, "search": self.search(name, index, vectors)}


def parameters(vectors: NDArray[Any]) -> dict[str, Any]:
    """Return the parameters of every build of `vectors`, except the builder."""
    return {**PARAMETERS, "pq_bytes": pq_bytes(vectors.shape[1])}


def timed(run: Callable[[], Any]) -> dict[str, Any]:
    """Return the seconds of a call, and the processor's."""
    began, began_cpu = time.perf_counter(), time.process_time()
    run()
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "cpu_s": round(time.process_time() - began_cpu, 2),
    }


def repeated(run: Callable[[], Any]) -> dict[str, Any]:
    """Return the median seconds of `REPEATS` calls, and the processor's, with those of each as ``times``."""
    times = [timed(run) for _ in range(REPEATS)]
    return {name: median(one[name] for one in times) for name in ("seconds", "cpu_s")} | {"times": times}


def deleted_rows(n: int) -> NDArray[np.int64]:
    """Return the vector ids of `n` that are deleted."""
    random = np.random.default_rng([SEED, _DELETIONS])
    return np.asarray(random.choice(n, round(DELETED_SHARE * n), replace=False), np.int64)


def against(found: dict[str, Any], rebuilt: dict[str, Any]) -> dict[str, Any]:
    """Return ratios of times and reads to those of the rebuilds, and the recall that is gained at equal reads."""
    search, other = found["search"], rebuilt["search"]
    reads = other["reads"]
    recall = None if reads is None else value_at(search["rows"], "recall", reads, of="pages_read")
    figures = {"reads": ratio(search["reads"], reads), "recall": None if recall is None else recall - RECALL}
    if "seconds" in found:
        figures["time"] = ratio(found["seconds"], rebuilt["seconds"])
        figures["time_default"] = ratio(found["seconds"], rebuilt["default"]["seconds"])
    return figures
