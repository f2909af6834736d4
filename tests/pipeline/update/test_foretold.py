"""Plans of updates beside what the updates take: memory and scratch space, for each kind and step."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run_json
from tests.support.processes.memory import needs_sizes

import indexmill
from indexmill.jobs.bench.common import process
from indexmill.jobs.bench.common.process import indexmill as command
from indexmill.jobs.bench.programs.job import watched, write_job

pytestmark = pytest.mark.memory

FIRST, SECOND, ADDED, DIM = 40_000, 20_000, 3_000, 32
KINDS: dict[str, dict[str, Any]] = {
    "graph": {"R": 24, "pq_bytes": 16},
    "graph of floats": {"R": 24, "pq_bytes": 16, "pq_rotation": "opq", "metric": "cosine"},
    "ivf": {"kind": "ivf", "lists": 256},
    "ivf opq": {
        "kind": "ivf", "lists": 256, "codec": "pq", "pq_bytes": 16, "pq_rotation": "opq", "keep_vectors": True,
    },
    "lsh": {"kind": "lsh", "n_tables": 12},
}  # fmt: skip
#: Share by which a plan may be off.
MEMORY, SCRATCH = 0.15, 0.05
#: Runs of an update at most: the largest files are there for a moment, which a look at the folder may miss.
RUNS = 3


def vectors(kind: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(4)
    centres = rng.integers(40, 216, (300, DIM))
    n = FIRST + SECOND + ADDED
    rows = centres[rng.integers(300, size=n)] + rng.normal(scale=18, size=(n, DIM))
    if kind == "graph of floats":
        return (rows - 128).astype(np.float32)
    return np.clip(rows, 0, 255).astype(np.uint8)


@needs_sizes
@pytest.mark.parametrize("kind", KINDS)
def test_memory_and_scratch_space_are_those_of_the_plan(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "INTERVAL_S", 0.001)
    rows = vectors(kind)
    for name, part in (("first", rows[:FIRST]), ("second", rows[FIRST : FIRST + SECOND])):
        indexmill.build(part, tmp_path / name, workers=2, **KINDS[kind])
    np.save(tmp_path / "added.npy", rows[FIRST + SECOND :])
    np.save(tmp_path / "gone.npy", np.arange(0, FIRST, 20))
    shutil.copytree(tmp_path / "first", tmp_path / "whole")
    indexmill.delete(tmp_path / "whole", np.arange(0, FIRST, 10), by="vector")
    steps: dict[str, dict[str, Any]] = {
        "append": {"base": "first", "add": "added.npy"},
        "merge": {"base": ["first", "second"]},
        "compact": {"base": "whole", "compact": True},
        "delete, append": {"base": "first", "delete": "gone.npy", "add": "added.npy"},
        "merge, append": {"base": ["first", "second"], "add": "added.npy"},
    }
    off = {}
    for step, what in steps.items():
        work = tmp_path / "work"
        top = {**what, "out": step, "work": str(work), "workers": 2, "memory": "8GiB"}
        job = write_job(tmp_path / f"{step}.toml", top)
        plan = run_json("plan", job)
        memory = scratch = 0
        for _ in range(RUNS):
            shutil.rmtree(tmp_path / step, ignore_errors=True)
            took = watched(command("build", job, json=True), tmp_path / "log", work)
            memory, scratch = took["peak_bytes"], max(scratch, took["scratch_bytes"])
            if plan["peak_scratch_bytes"] <= (1 + SCRATCH) * scratch:
                break
        off[step] = (
            round(plan["peak_memory_bytes"] / memory - 1, 3),
            round(plan["peak_scratch_bytes"] / scratch - 1, 3),
        )
    assert all(abs(m) <= MEMORY and abs(s) <= SCRATCH for m, s in off.values()), off
