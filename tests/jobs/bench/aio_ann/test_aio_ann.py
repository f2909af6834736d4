"""The benchmark of AIO-ANN's whole system on small indexes: its searches, its load on a disk, and its tables."""

from __future__ import annotations

import tempfile
import threading
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.support.bench import FakeDiskAnn, fake_row, faked

import indexmill
from indexmill.jobs.bench.aio_ann import load, loaded, own, searches, steady, tail
from indexmill.jobs.bench.aio_ann.__main__ import BENCHMARK
from indexmill.jobs.bench.aio_ann.searches import BEAM, COMPLETION, SERIES, WHOLE, Series
from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, read_bin, read_truth, write_bin, write_truth
from indexmill.jobs.bench.common.parameters import ORDER
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.workspace import Workspace, workspace

__all__ = ["faked"]
N, DIM, N_QUERIES = 1200, 8, 80


class FakeCached(FakeDiskAnn):
    """Stands in for `diskann.DiskAnn`: half the cost of `FakeDiskAnn` where nodes are in its cache."""

    cached: ClassVar[list[int]] = []

    def __init__(self, space: Any, *given: Any, cached_nodes: int = 0, **others: Any) -> None:
        self.nodes = cached_nodes
        if cached_nodes:
            self.cached.append(cached_nodes)

    def ask(self, size: int, queries: Any, way: str = "batch") -> dict[str, Any]:
        return fake_row(size, queries, 1.5 if self.nodes else 3.0)


@pytest.fixture
def run(disk: Path, faked: None, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Sets on a disk, with small indexes of all orders; searches of DiskANN are made up."""
    folder = Path(tempfile.mkdtemp(dir=disk))
    random = np.random.default_rng(3)
    sets = {}
    for one, kind, dtype in (("sift1m", "u8bin", np.uint8), ("text40k", "fbin", np.float32)):
        sets[one] = Dataset(folder / f"set-{one}")
        sets[one].folder.mkdir()
        for name, n in (("base", N), ("query", N_QUERIES)):
            write_bin(sets[one].folder / f"{name}.{kind}", random.integers(0, 256, (n, DIM)).astype(dtype))
        write_truth(sets[one])
    sets["embed768"] = sets["text40k"]

    def ensure(space: Workspace, order: str, entries: int = 0) -> str:
        data = space.data
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
    monkeypatch.setattr(ours, "ensure_shape", lambda space, shape: ensure(space, shape.order))
    monkeypatch.setattr(diskann, "DiskAnn", FakeCached)
    monkeypatch.setattr(diskann, "SPIN_SECONDS", {"batch": 0.0, "single": 0.0})
    monkeypatch.setattr(FakeCached, "cached", [])
    monkeypatch.setattr(ours, "ENGINE", "pread")
    monkeypatch.setattr(
        loaded, "OURS", {name: replace(one, engine=None) for name, one in loaded.OURS.items()}
    )
    return Run("aio_ann-1200", sets, folder, N, Namespace(rounds=1))


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
    for heading in (
        "Simulated devices",
        "This machine's disk, idle and loaded",
        "Differences between runs",
        "Own queries",
    ):
        assert f"### {heading}" in text
    assert f"| {WHOLE}, SQPOLL |" in text


def test_own_queries_are_searched_with_caches_of_the_same_bytes(run: Run) -> None:
    names = [f"own-{name}" for name in own.SETS]
    assert BENCHMARK.run(run, names[:2]) == []
    found = record.load(run.results)
    assert [one["name"] for one in found["data"]] == ["sift1m"], "the record is of the same data as before"
    for name, component_bytes, folder in (("sift1m", 1, run.out), ("text40k", 4, run.out / "text40k")):
        part = found["parts"][f"own-{name}"]
        assert part["data"]["dtype"] == ("uint8" if component_bytes == 1 else "float32")
        assert part["queries"] == {"tune": [0, 40], "report": [40, 80]}
        assert "queries_per_user" not in part
        nodes = (folder / "indexmill-identity" / "graph.imx").stat().st_size / 10
        assert part["cache_bytes"] == round(nodes)
        # A vector, its degree and 32 neighbours: never more bytes than our cache has.
        assert part["cached_nodes"] == part["cache_bytes"] // (8 * component_bytes + 4 * 33)
        assert set(part["qps"]) == {own.DISKANN, own.CACHED, own.CONTROL, WHOLE}
        assert set(part["series"]) == {own.CONTROL, WHOLE}
        # The fakes: a cached node halves the pages, and so the seconds.
        assert part["to_diskann"][own.CACHED]["0.95"]["value"] == pytest.approx(2)
        assert part["to_cached"][own.DISKANN]["0.95"]["value"] == pytest.approx(0.5)
        assert part["to_control"][own.CONTROL]["0.95"] in (None, {"value": 1.0, "low": 1.0, "high": 1.0})
        plain, whole = (part["rounds"][0][one] for one in (own.CONTROL, WHOLE))
        assert {row["n_queries"] for row in (*plain, *whole)} == {40}
    assert FakeCached.cached == [found["parts"][name]["cached_nodes"] for name in names[:2]]
    text = BENCHMARK.render(found, "record.json")
    assert text.count("### Own queries") == 1
    assert "| text40k, 1,200 x 8; cache of" in text
    assert "| DiskANN, node cache |" in text


def test_a_search_of_diskann_ends_when_its_threads_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(own.time, "sleep", slept.append)
    search = own.until_idle(lambda size, half: {"L": size, "half": half})
    assert search(20, "tune") == {"L": 20, "half": "tune"}
    assert slept == [diskann.SPIN_SECONDS["batch"]] != [0]


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
