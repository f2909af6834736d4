"""The benchmark of AIO-ANN's whole system on small indexes: its searches, its load on a disk, and its tables."""

from __future__ import annotations

import tempfile
import threading
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.bench import faked

import indexmill
from indexmill.jobs.bench.aio_ann import load, loaded, searches, steady, tail
from indexmill.jobs.bench.aio_ann.__main__ import BENCHMARK
from indexmill.jobs.bench.aio_ann.searches import BEAM, COMPLETION, SERIES, WHOLE, Series
from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, read_bin, read_truth, write_bin, write_truth
from indexmill.jobs.bench.common.parameters import ORDER
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.workspace import Workspace, workspace

__all__ = ["faked"]
N, DIM, N_QUERIES = 1200, 8, 80


@pytest.fixture
def run(disk: Path, faked: None, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A set on a disk, with small indexes of all orders; searches of DiskANN are made up."""
    folder = Path(tempfile.mkdtemp(dir=disk))
    data = Dataset(folder / "set")
    data.folder.mkdir()
    random = np.random.default_rng(3)
    for name, n in (("base", N), ("query", N_QUERIES)):
        write_bin(data.folder / f"{name}.u8bin", random.integers(0, 256, (n, DIM)).astype(np.uint8))
    write_truth(data)

    def ensure(space: Workspace, order: str, entries: int = 0) -> str:
        if not space.index(order).exists():
            how = {
                "R": 12,
                "L": 30,
                "pq_bytes": 4,
                "navigation": 0.1,
                "pq_rotation": "none",
                "node_dtype": "same",
            }
            work = str(space.out / "work")
            indexmill.build(data.base, space.index(order), order=order, builder="vamana", work=work, **how)
        return order

    monkeypatch.setattr(ours, "ensure", ensure)
    monkeypatch.setattr(ours, "ENGINE", "pread")
    monkeypatch.setattr(
        loaded, "OURS", {name: replace(one, engine=None) for name, one in loaded.OURS.items()}
    )
    return Run("aio_ann-1200", {"sift1m": data}, folder, N, Namespace(rounds=1))


def test_all_parts_are_measured_and_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "DEVICES", {name: [[0, 5], [1, 20]] for name in tail.DEVICES})
    monkeypatch.setattr(loaded, "LOADS", {"idle": 0})
    assert BENCHMARK.run(run) == []
    found = record.load(run.results)["parts"]
    for device in found["tail"]["devices"].values():
        (rounds,) = device["rounds"]
        assert set(rounds) == set(SERIES)
        # These find the same with the same lists, so they are measured with the same.
        plain = [(row["L"], row["recall"], row["pages_read"]) for row in rounds[BEAM]]
        assert [(row["L"], row["recall"], row["pages_read"]) for row in rounds[COMPLETION]] == plain
        for row, (size, recall, pages) in zip(rounds["completion, cache of 10%"], plain, strict=True):
            assert (row["L"], row["recall"]) == (size, recall)
            assert row["pages_read"] < pages
    assert found["loaded"]["loads"]["idle"]["to_diskann"]["DiskANN"]["0.95"]["value"] == 1.0
    assert len(found["steady"]["threads"]["2"]["DiskANN"]["rounds"]) == 2
    text = BENCHMARK.render(record.load(run.results), "record.json")
    for heading in ("Simulated devices", "This machine's disk, idle and loaded", "Differences between runs"):
        assert f"### {heading}" in text
    assert f"| {WHOLE}, SQPOLL |" in text


def test_queries_of_users_are_halves_of_bytes_with_their_own_truth(run: Run) -> None:
    space = workspace(run)
    data = searches.users(space)
    asked, base = read_bin(data.query), np.asarray(read_bin(data.base), np.int64)
    assert (asked.shape, asked.dtype) == ((N_QUERIES, DIM), np.uint8)
    first = np.asarray(read_bin(space.data.query)[:1], np.int64)
    np.testing.assert_array_equal(asked[:1], first)
    nearest = base[read_truth(space.data.truth)[0][0, 0]]
    assert np.abs(2 * np.asarray(asked[1], np.int64) - first[0] - nearest).max() <= 1
    distances = ((base - np.asarray(asked[1], np.int64)) ** 2).sum(axis=1)
    assert read_truth(data.truth)[1][1, 0] == distances.min()
    assert data.base.samefile(space.data.base)


def test_a_search_has_a_query_a_thread_and_only_what_depends_on_the_clock_is_not_fixed() -> None:
    settings = {name: one.setting for name, one in SERIES.items()}
    assert {one.inflight for one in settings.values()} == {1}
    assert {name for name, one in settings.items() if not one.deterministic} == {
        name for name, one in SERIES.items() if one.policy == "pipeline" or one.entry == "previous"
    }
    assert Series().setting.beam_width == 4
    assert SERIES["pipeline"].order == ORDER


def test_how_far_runs_lie_apart_is_told_of_their_mean() -> None:
    told = steady.spread([90.0, 100.0, 110.0])
    assert (told["qps"], told["deviation"], told["range"]) == (100.0, 0.1, 0.2)


def test_a_load_reads_at_its_rate_until_it_is_ended(disk: Path) -> None:
    path = Path(tempfile.mkdtemp(dir=disk)) / "file"
    path.write_bytes(bytes(4 * load.BLOCK_BYTES))
    with loaded.load_on(path, 8) as told:
        assert told == {"asked_mb_per_s": 8}
        threading.Event().wait(0.5)
    assert 0 < told["mb_per_s"] < 12
    with loaded.load_on(path, 0) as told:
        pass
    assert told == {"asked_mb_per_s": 0}
