"""Appends and merges beside a build of everything: seconds, distances, recall, page reads and drift.

The first vectors are indexed in one build, and again as a base to which the last ones are appended, at once or in
steps, or merged. Recall and page reads are those of the second half of the queries, at equal list sizes. In the rows
called ``shift`` the vectors are those of two k-means clusters, one after the other.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import indexmill
from indexmill.builders.cluster.kmeans import fit_centroids
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.nearest.products import nearest_points
from indexmill.jobs.bench.common.benchmark import Benchmark, Run
from indexmill.jobs.bench.common.dataset import Dataset, K, count_hits, read_bin
from indexmill.jobs.bench.common.parameters import ALPHA, BUILD_LIST_SIZE, MAX_DEGREE, PQ_BYTES, SEED, THREADS
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.kinds.opening import open_index

#: Vectors of the whole set.
ROWS = 50_000
SIZES = (50, 100)
PARAMETERS: dict[str, Any] = {
    "builder": "vamana", "R": MAX_DEGREE, "L": BUILD_LIST_SIZE, "alpha": ALPHA, "pq_bytes": PQ_BYTES,
    "pq_rotation": "none", "node_dtype": "same", "seed": SEED, "workers": THREADS, "force": True,
}  # fmt: skip
#: (share added, steps, whether merged, whether the added come from elsewhere)
CASES = (
    (0.01, 1, False, False),
    (0.05, 1, False, False),
    (0.1, 1, False, False),
    (0.1, 10, False, False),
    (0.1, 1, True, False),
    (0.2, 1, False, False),
    (0.5, 1, False, False),
    (0.5, 10, False, False),
    (0.5, 1, True, False),
    (0.99, 1, False, False),
    (0.2, 1, False, True),
    (0.5, 1, False, True),
)


@dataclass(frozen=True)
class Appends:
    """Vectors and indexes of the parts.

    Attributes
    ----------
    data : Dataset
    out : Path
    rows : int
    """

    data: Dataset
    out: Path
    rows: int

    @cache  # noqa: B019  # one object a run
    def vectors(self, shift: bool) -> tuple[Any, Any, Any]:
        """Return vectors, queries and squared distances of true neighbours; kernels are loaded with the first."""
        everything, queries = np.asarray(read_bin(self.data.base)), np.asarray(read_bin(self.data.query))
        indexmill.build(everything[:2000], self.out / "warm-up", **PARAMETERS)
        indexmill.append(self.out / "warm-up", everything[2000:2100])
        vectors = shifted(everything, self.rows) if shift else everything[: self.rows]
        queries = queries[self.data.halves()[0] :]
        return vectors, queries, exact_neighbours(vectors, queries, K, THREADS)[1]

    def base(self, first: int, last: int, shift: bool) -> Path:
        """Build an index of some of the vectors, unless another part did."""
        path = self.out / f"{'shift' if shift else 'plain'}-{first}-{last}"
        if not path.exists():
            indexmill.build(self.vectors(shift)[0][first:last], path, **PARAMETERS)
        return path

    def measure(self, index: Path, shift: bool) -> dict[str, Any]:
        """Search with the second half of the queries; the search repeats bit for bit."""
        manifest, opened = ours.manifest(index), open_index(index)
        vectors, queries, truth = self.vectors(shift)
        rows = []
        for size in SIZES:
            result = opened.search(queries, K, L=size, threads=THREADS, deterministic=True)
            hits = count_hits(result.vector_ids, vectors, queries, truth)
            recall, pages = float(hits.mean()) / K, float(result.counters["pages_read"].mean())
            rows.append({"L": size, "recall": round(recall, 5), "pages_read": round(pages, 3)})
        return {"search": rows, "layout": manifest["layout"], "drift": manifest["drift"]}


def whole(space: Appends, shift: bool) -> dict[str, Any]:
    """Build everything at once and measure it."""
    vectors = space.vectors(shift)[0]
    began, began_cpu = time.perf_counter(), time.process_time()
    indexmill.build(vectors, space.out / "whole", **PARAMETERS)
    found = {
        "seconds": round(time.perf_counter() - began, 2),
        "cpu_s": round(time.process_time() - began_cpu, 2),
    }
    return found | space.measure(space.out / "whole", shift)


def added(space: Appends, share: float, steps: int, merged: bool, shift: bool) -> dict[str, Any]:
    """Build the base, add the rest, and measure what came of it."""
    vectors = space.vectors(shift)[0]
    n_added = round(len(vectors) * share)
    n, index = len(vectors) - n_added, space.out / "index"
    shutil.rmtree(index, ignore_errors=True)
    shutil.copytree(space.base(0, n, shift), index)
    small = space.base(n, len(vectors), shift) if merged else None
    seconds = cpu = distances = 0.0
    for step in range(steps):
        first, last = n + n_added * step // steps, n + n_added * (step + 1) // steps
        began, began_cpu = time.perf_counter(), time.process_time()
        if small is not None:
            indexmill.merge(index, small, workers=THREADS)
        else:
            indexmill.append(index, vectors[first:last], workers=THREADS)
        seconds += time.perf_counter() - began
        cpu += time.process_time() - began_cpu
        distances += ours.run_facts(index)["distances"]
    found = {"seconds": round(seconds, 2), "cpu_s": round(cpu, 2), "distances": int(distances)}
    return found | space.measure(index, shift)


def shifted(vectors: Any, rows: int) -> Any:
    """Return `rows` vectors, the first half from one of two clusters, the second from the other."""
    centroids = fit_centroids(vectors[:100_000], 2, SEED)
    cluster = nearest_points(vectors, centroids, 1, THREADS)[:, 0]
    return np.concatenate([vectors[cluster == c][: rows // 2] for c in (0, 1)])


def _parts() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for shift in (False, True):
        of = " shift" * shift
        found[f"build{of}"] = partial(whole, shift=shift)
        for share, steps, merged, elsewhere in CASES:
            if elsewhere == shift:
                name = f"{'merge' if merged else 'append'} {share:.0%}{f' in {steps}' * (steps > 1)}{of}"
                found[name] = partial(added, share=share, steps=steps, merged=merged, shift=shift)
    return found


def _space(run: Run) -> Appends:
    return Appends(run.sets["sift1m"], run.out, min(ROWS, run.rows or ROWS))


def _data(space: Appends) -> list[dict[str, Any]]:
    half, n_queries = space.data.halves()
    return [{"name": "sift1m", "n_vectors": space.rows, "queries": n_queries - half}]


BENCHMARK = Benchmark[Appends]("append", _parts(), space=_space, data=_data, parameters=PARAMETERS, pages=())

if __name__ == "__main__":
    BENCHMARK.main()
