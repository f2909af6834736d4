"""Joins by workers with paths of their own, as the benchmark of divided joins measures them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, write_bin
from indexmill.jobs.bench.split import apart
from indexmill.jobs.bench.split.__main__ import BENCHMARK

N, DIM, N_QUERIES, BATCHES = 1600, 8, 60, 4


@pytest.fixture
def run(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    folder = Path(tempfile.mkdtemp(dir=disk))
    data = Dataset(folder / "set")
    data.folder.mkdir()
    random = np.random.default_rng(5)
    for name, n in (("base", N), ("query", N_QUERIES)):
        write_bin(data.folder / f"{name}.u8bin", random.integers(0, 256, (n, DIM)).astype(np.uint8))
    for name, value in (("BATCHES", BATCHES), ("LISTS", 4), ("NPROBE", 2), ("ROUNDS", 1)):
        monkeypatch.setattr(apart, name, value)
    return Run("split-1600", {"sift1m": data}, folder, N)


def test_workers_with_paths_find_the_same_and_every_batch_once(run: Run) -> None:
    assert BENCHMARK.run(run, ["paths", "two-processes"]) == []
    found = record.load(run.results)["parts"]
    paths, two = found["paths"], found["two-processes"]
    assert paths["same"]
    assert two["same"]
    for name, workers in (("host", 1), ("drive", 1), ("two", 2)):
        (one,) = paths["runs"][name]
        assert len(one["worker_s"]) == workers
        assert sum(one["batches"]) >= BATCHES  # one that is cut counts for each of its workers
        assert paths["seconds"][name] == max(one["worker_s"]) > 0
    assert paths["copied_bytes"] > N * DIM
    assert paths["simulated"]["drives"]["2"] == pytest.approx(paths["simulated"]["drives"]["1"] / 2, rel=0.3)
    (by_two,) = two["runs"]["two"]
    assert two["worker_s"] == max(by_two["worker_s"]) < by_two["wall_s"]
    text = BENCHMARK.render(record.load(run.results), "record.json")
    assert "### Workers with paths of their own" in text
    assert "| two processes |" in text
