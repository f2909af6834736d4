"""Part *updates*: plans of an append, a merge and a compaction of each kind, held against the updates."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import indexmill
from indexmill.jobs.bench.common import process
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.plans.jobs import Sets
from indexmill.jobs.bench.programs import ours, plan
from indexmill.jobs.bench.programs.job import watched, write_job

KINDS = ("graph", "ivf", "lsh")
STEPS = ("append", "merge", "compact")
#: Vectors of all inputs; their shares: of an index, of another one that is merged into it, and appended to it.
_ROWS = 310_000
_SHARES = (20 / 31, 10 / 31, 1 / 31)
#: Share of the merged vectors that is deleted and compacted.
_DELETED_SHARE = 0.1
#: Times that each update is planned and run.
_TIMES = 3
#: Vectors of updates that load kernels, which happens once an installation.
_WARM_UP_ROWS = 3100


def measure(sets: Sets) -> dict[str, Any]:
    """Plan each update and run it at once, three times; errors are predicted / measured - 1, of the medians."""
    vectors = read_bin(sets.run.sets["sift1m"].base)[:_ROWS]
    rows = []
    for kind in KINDS:
        prepare(sets.out, kind, np.asarray(vectors[:_WARM_UP_ROWS]), every_step=True)
        prepare(sets.out, kind, np.asarray(vectors))
        rows += [_row(sets.out, kind, step) for step in STEPS]
    return {"vectors": len(vectors), "rows": rows, "worst": plan.worst(rows)}


def prepare(out: Path, kind: str, vectors: NDArray[Any], every_step: bool = False) -> None:
    """Build the indexes of a kind that are updated, and write the vectors that are added.

    Parameters
    ----------
    every_step : bool
        Whether the updates are made, too, which loads their kernels.
    """
    first, second = (round(sum(_SHARES[:i]) * len(vectors)) for i in (1, 2))
    for name, rows in (("first", vectors[:first]), ("second", vectors[first:second])):
        indexmill.build(rows, out / f"{kind}-{name}", kind=kind, seed=SEED, workers=THREADS, force=True)
    np.save(out / "added.npy", vectors[second:])
    if every_step:
        index, other = (out / f"{kind}-{name}" for name in ("first", "second"))
        indexmill.append(index, vectors[second:])
        indexmill.merge(index, other)
        indexmill.delete(index, [0, 1], by="vector")
        indexmill.compact(index)


def _row(out: Path, kind: str, step: str) -> dict[str, Any]:
    if step == "compact":
        delete_some(out / f"{kind}-merge")
    job, result = write(out, kind, step), out / f"{kind}-{step}"
    plans, runs = [], []
    for _ in range(_TIMES):
        shutil.rmtree(result, ignore_errors=True)
        plans.append(plan.of_job(job))
        runs.append(update(job, out, kind, step))
    if step != "merge":
        shutil.rmtree(result, ignore_errors=True)
    said, made = _middle(plans, "seconds"), _middle(runs, "wall_s")
    return {
        "kind": kind,
        "step": step,
        "planned": plan.figures(said),
        "measured": plan.measured(made),
        "error": plan.errors(said, made),
        "stages": plan.stage_seconds(said),
        "step_s": made["step_s"],
    }


def _middle(some: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
    """Return the one whose figure is the median of an odd number."""
    return sorted(some, key=lambda one: float(one[key]))[len(some) // 2]


def delete_some(index: Path) -> None:
    """Delete a tenth of an index."""
    n = ours.manifest(index)["input"]["n_vectors"]
    gone = np.random.default_rng(SEED).choice(n, round(_DELETED_SHARE * n), replace=False)
    indexmill.delete(index, gone, by="vector")


def write(out: Path, kind: str, step: str) -> Path:
    """Write the job file of an update."""
    first, second, merged = (str(out / f"{kind}-{name}") for name in ("first", "second", "merge"))
    steps: dict[str, dict[str, Any]] = {
        "append": {"base": first, "add": str(out / "added.npy")},
        "merge": {"base": [first, second]},
        "compact": {"base": merged, "compact": True},
    }
    what = steps[step]
    places = {"out": str(out / f"{kind}-{step}"), "work": str(out / "update.work")}
    keys = {**what, **places, "workers": THREADS, "memory": "8GiB", "force": True}
    return write_job(out / f"{kind}-{step}.toml", keys)


def update(job: Path, out: Path, kind: str, step: str) -> dict[str, Any]:
    """Run an update, and return what it took."""
    command = process.indexmill("build", job, json=True)
    took = watched(command, job.with_suffix(".log"), out / "update.work")
    return took | {"step_s": ours.stage_seconds(out / f"{kind}-{step}")[step]}
