"""Part *guarantee*: E2LSH with the parameters of its Equation 5, and the share of queries that its promise holds for.

The promise is of a radius: where a vector lies within R, one within cR is found with a probability of 1/2 - 1/e at
least. The first radius that holds a query's nearest vector is the one that has to answer; then the answer lies within
c^2 of the nearest. In sets of many dimensions most vectors lie within c^2 of the nearest anyway, so their share is
counted beside it.

Radii begin at the least distance of a query from its nearest vector, since the paper's 1 has no meaning for these
vectors. Tables of so many compound hashes take much room, so that the vectors are the first of each set.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import indexmill
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import read_bin, write_beginning
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, SEED, THREADS
from indexmill.jobs.bench.counts.sets import Case, given
from indexmill.jobs.bench.lsh.quality import found_distances
from indexmill.jobs.bench.programs import ours
from indexmill.reader.lsh import LshIndex

#: A set of 128 components and one of 768.
NAMES = ("sift1m", "embed768")
#: Most vectors of a set.
VECTORS = 50_000
#: With gamma 1 and this probability of success L is n^rho.
SUCCESS = 1 - 1 / math.e
#: Queries whose nearest vector lies within this share of the median nearest distance are left out: a copy, or what
#: rounding leaves of it, would add many radii below all other distances.
NEARLY_EQUAL = 0.01
#: What the paper promises for a radius.
PROMISED = 0.5 - 1 / math.e
#: Random vectors whose distances from each query stand for those of all.
ANY = 100


def measure(run: Run) -> dict[str, Any]:
    """Build tables of each set, and search them for the nearest vector of each query."""
    return {"promised": PROMISED, "sets": {name: _answered(given(run, name)) for name in NAMES}}


def _answered(case: Case) -> dict[str, Any]:
    n_vectors = min(VECTORS, case.data.shape()[0])
    base = np.asarray(read_bin(case.data.base)[:n_vectors])
    nearest = np.sqrt(exact_neighbours(base, case.queries, 1, THREADS)[1][:, 0].astype(np.float64))
    asked = nearest > NEARLY_EQUAL * np.median(nearest)
    first = write_beginning(case.data, n_vectors, case.out)
    path = case.out / "tables.index"
    indexmill.build(
        first, path, kind="lsh", gamma=1.0, success=SUCCESS, first_radius=float(nearest[asked].min()), seed=SEED,
        memory=BUILD_MEMORY, workers=THREADS, force=True,
    )  # fmt: skip
    first.unlink()
    found = LshIndex(path, "memory").search(case.queries, 1, threads=THREADS)
    distances = found_distances(found.vector_ids, base, case.queries)[:, 0]
    ratios = distances[asked] / nearest[asked]
    made = ours.manifest(path)
    solved, c = made["parameters"], made["parameters"]["ratio"]
    answered = np.isfinite(ratios)
    # Of each query the radius that has to answer, and the one that did; a distance may differ from it by rounding.
    due = np.searchsorted(np.array(made["lsh"]["radii"]) * (1 + 1e-6), nearest[asked])
    ended = np.asarray(found.counters["radii"], np.int64)[asked] - 1
    any_rows = np.random.default_rng(SEED).integers(n_vectors, size=(len(case.queries), ANY))
    any_distances = found_distances(any_rows, base, case.queries)[asked]
    return {
        "n_vectors": n_vectors,
        "dim": base.shape[1],
        "queries": len(ratios),
        "left_out": int((~asked).sum()),
        "ratio_limit": c,
        **{name: solved[name] for name in ("n_functions", "n_tables", "n_radii", "candidates")},
        "n_to_rho": n_vectors ** made["lsh"]["rho"],
        "answered": float(answered.mean()),
        "in_due_radius": float((answered & (ended <= due)).mean()),
        "within_c2": float((ratios <= c * c).mean()),
        "within_c": float((ratios <= c).mean()),
        "any_within_c2": float((any_distances <= c * c * nearest[asked, None]).mean()),
        "exact": float((ratios <= 1 + 1e-6).mean()),
        "ratio": float(ratios[answered].mean()),
        "radii": float(found.counters["radii"].mean()),
    }
