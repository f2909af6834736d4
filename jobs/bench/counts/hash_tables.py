"""Parts *default-tables* and *tuned-tables*: overall ratios of hash tables by default, and as `tune` recommends them.

By default the first radius and S follow from the ratio that is expected by distances of sampled vectors, where a
quantile of nearest distances and a formula are expected to miss it; tables with these stand beside them. The tuned
ones are tuned by the first half of the queries, as a user would, and then their searches once more.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

import indexmill
from indexmill.builders.lsh.choose import TARGET
from indexmill.builders.lsh.solve import extent_of, solve
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, SEED, THREADS
from indexmill.jobs.bench.counts.sets import Case, given
from indexmill.jobs.bench.lsh.quality import judge
from indexmill.jobs.bench.programs import ours
from indexmill.pipeline.kinds.lsh.parameters import LshParameters
from indexmill.pipeline.kinds.lsh.shape import asked_of
from indexmill.pipeline.kinds.lsh.tasks import sampled_distances
from indexmill.pipeline.tune.queries import LEAST_QUERIES
from indexmill.pipeline.tune.sample import LEAST_VECTORS
from indexmill.reader.lsh import LshIndex

NAMES = ("sift1m", "text40k", "embed768")
#: Neighbours that are searched for.
KS = (1, 10)
#: Effort of a tuning; samples of 25,000 vectors.
EFFORT = "low"


def defaults(run: Run) -> dict[str, Any]:
    """Build and search the tables of each set by default, and those of the quantile and the formula."""
    return {"target": TARGET, "sets": {name: _defaults(given(run, name)) for name in NAMES}}


def _defaults(case: Case) -> dict[str, Any]:
    formula = by_formula(case)
    path = _built(case, "default", {})
    found = {"default": _searched(case, path, KS)}
    solved = ours.manifest(path)["parameters"]
    shutil.rmtree(path)
    if all(solved[name] == value for name, value in formula.items()):
        return {**found, "formula": found["default"], "is_formula": True}
    path = _built(case, "formula", formula)
    found["formula"] = _searched(case, path, KS)
    shutil.rmtree(path)
    return {**found, "is_formula": False}


def by_formula(case: Case) -> dict[str, Any]:
    """Return the first radius and S that follow from a quantile and a formula."""
    base = read_bin(case.data.base)
    sampled = sampled_distances(base, "l2", SEED, THREADS)
    least, most = (np.asarray(end(axis=0), np.float64) for end in (base.min, base.max))
    extent = extent_of(least, most)
    found = solve(asked_of(LshParameters(seed=SEED)), len(base), extent, sampled.nearest[:, 0])
    return {"first_radius": found.radii[0], "candidates": found.candidates}


def tuned(run: Run) -> dict[str, Any]:
    """Tune tables of each set and the searches of these; None for a set that is too small, as in trials."""
    return {"target": TARGET, "effort": EFFORT, "sets": {name: _tuned(given(run, name)) for name in NAMES}}


def _tuned(case: Case) -> dict[str, Any] | None:
    n, (first, last) = case.data.shape()[0], case.data.both_halves()["tune"]
    if n < LEAST_VECTORS or last - first < LEAST_QUERIES:
        return None
    asked = np.array(read_bin(case.data.query)[first:last])
    how: dict[str, Any] = {
        "target_ratio": TARGET,
        "k": 1,
        "effort": EFFORT,
        "queries": asked,
        "workers": THREADS,
    }
    report = indexmill.tune(case.data.base, kind="lsh", seed=SEED, memory=BUILD_MEMORY, work=case.out, **how)
    if report.parameters is None:
        return {"failure": report.failure()}
    path = _built(case, "tuned", report.parameters)
    searches = indexmill.tune(path, memory=BUILD_MEMORY, work=case.out, **how)
    found = {
        "parameters": report.parameters,
        "tuned": _searched(case, path, (1,)),
        "searches": None
        if searches.parameters is None
        else _searched(case, path, (1,), **searches.parameters),
    }
    shutil.rmtree(path)
    return found


def _built(case: Case, name: str, parameters: dict[str, Any]) -> Path:
    """Build hash tables of a set."""
    path = case.out / f"{name}.lsh"
    how = {"kind": "lsh", "seed": SEED, "memory": BUILD_MEMORY, "workers": THREADS, **parameters}
    indexmill.build(case.data.base, path, force=True, **how)
    return path


def _searched(case: Case, path: Path, ks: tuple[int, ...], **options: int) -> dict[str, Any]:
    """Search for neighbours of the reported queries; return what the index is, and figures for each number of them."""
    index, made = LshIndex(path, "memory"), ours.manifest(path)
    base, truth = read_bin(case.data.base), case.truth[1]
    solved = made["parameters"]
    found: dict[str, Any] = {
        name: solved[name] for name in ("gamma", "width", "n_functions", "n_tables", "n_radii")
    }
    found |= {
        "first_radius": solved["first_radius"],
        "candidates": solved["candidates"],
        "probes": solved["probes"],
    }
    found |= options | {
        "table_bytes": sum((path / f"{name}.imx").stat().st_size for name in ("tables", "buckets"))
    }
    for k in ks:
        result = index.search(case.queries, k, threads=THREADS, **options)
        counters = {name: float(value.mean()) for name, value in result.counters.items()}
        found[f"k{k}"] = {
            **judge(result.vector_ids, base, case.queries, truth),
            "radii": counters["radii"],
            "reads": counters["table_reads"] + counters["block_reads"],
            "distances": counters["distances"],
        }
    return found
