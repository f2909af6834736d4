"""The benchmark of a slow store: its parts on few vectors, its tables, and how long its store takes."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pytest

import indexmill
from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, write_bin, write_truth
from indexmill.jobs.bench.stored import searches
from indexmill.jobs.bench.stored.__main__ import BENCHMARK
from indexmill.jobs.bench.stored.searches import KINDS, Kind
from indexmill.jobs.bench.stored.throttled import Line, Throttled, rounds

N, N_QUERIES, DIM = 2000, 40, 16


def build(data: Dataset, index: Path, kind: Kind) -> None:
    small = {"R": 12, "pq_bytes": 8, "builder": "vamana"} if "R" in kind.flags else {"lists": 16}
    indexmill.build(data.base, index, **{**kind.flags, **small})  # type: ignore[arg-type]


def test_all_parts_are_measured_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, random = Dataset(tmp_path), np.random.default_rng(6)
    for name, n in (("base", N), ("query", N_QUERIES)):
        write_bin(tmp_path / f"{name}.u8bin", random.integers(0, 256, (n, DIM)).astype(np.uint8))
    write_truth(data)
    monkeypatch.setattr(searches, "build", build)
    monkeypatch.setattr(searches, "data_of", lambda run, name: data)
    monkeypatch.setattr(searches, "OPENINGS", 2)
    monkeypatch.setattr(Throttled, "line", Line(0.05))
    run = Run("stored", {"sift1m": data}, tmp_path, N, argparse.Namespace(millions=None))
    assert BENCHMARK.run(run) == []
    found = record.load(run.results)
    for part in ("sift1m", "generated"):
        told = found["parts"][part]
        assert (told["n"], told["dim"]) == (N, DIM)
        for kind in KINDS:
            row = told[kind]
            assert row["built"] == searches.sizes_of(KINDS[kind], N)
            assert row["open_rounds"] == 2
            assert row["open_ms"]["value"] >= 100
            assert 0 < row["open_bytes"] <= 1.1 * row["index_bytes"]
            assert row["recall"] >= 0.8
            assert row["p50_ms"] >= 50 * row["rounds"] * 0.9
            assert row["requests"] >= row["rounds"]
        assert told["lists"]["rounds"] == 1
        assert told["lists_of_codes"]["rounds"] == 2
        assert told["graph"]["rounds"] <= 6
        assert told["graph"]["options"] == {"policy": "rounds", "beam_width": 32}
    text = BENCHMARK.render(found, "r.json")
    assert text.count("| lists of codes |") == 4
    assert text.count("policy rounds, beam_width 32") == 2
    assert text.count("| cold search, p50 at recall 0.9, ") == 3


def test_large_sets_of_lists_are_trained_on_more_vectors() -> None:
    assert searches.sizes_of(KINDS["lists"], 10**7) == {"lists": 12_649, "sample_vectors": 505_960}
    assert searches.sizes_of(KINDS["lists_of_codes"], 10**4) == {"lists": 400, "sample_vectors": 100_000}
    assert searches.sizes_of(KINDS["graph"], 10**7) == {"entries": 12_649}


def test_a_trial_builds_every_kind_by_its_flags_and_searches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "OPENINGS", 1)
    monkeypatch.setattr(searches, "QUERIES", 20)
    monkeypatch.setattr(Throttled, "line", Line(0.001))
    run = Run("stored", {}, tmp_path, 600, argparse.Namespace(millions=None))
    assert BENCHMARK.run(run, ["generated"]) == []
    part = record.load(run.results)["parts"]["generated"]
    assert (part["n"], part["dim"]) == (600, 128)
    assert all(part[kind]["recall"] > 0.8 for kind in KINDS)


def test_answers_take_as_long_as_their_bytes_and_the_way_there() -> None:
    line, data = Line(0.02, 1e6), bytes(30_000)
    began = time.perf_counter()
    for number in range(2):
        assert line.carry(f"x{number}", 5, data, time.perf_counter()) == data
    taken = line.take()
    assert time.perf_counter() - began >= 2 * (0.02 + 0.03)
    assert [request[:3] for request in taken] == [("x0", 5, 30_000), ("x1", 5, 30_000)]
    assert all(request.ended_s - request.began_s >= 0.05 for request in taken)
    assert rounds(taken) == 2
    assert line.take() == []
