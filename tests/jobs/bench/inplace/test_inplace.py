"""The benchmark of faiss's files: what it searches, how it compares answers and times, and what it counts."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.jobs.bench.common import intervals, record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, write_bin
from indexmill.jobs.bench.inplace import __main__ as inplace
from indexmill.jobs.bench.inplace import child, ivf, lists, searching

N, DIM, N_QUERIES = 3000, 16, 120


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("set")
    random = np.random.default_rng(6)
    centres = random.integers(0, 200, (40, DIM))
    for name, n in (("base", N), ("query", N_QUERIES)):
        write_bin(
            folder / f"{name}.u8bin", centres[random.integers(40, size=n)] + random.integers(0, 50, (n, DIM))
        )
    return Dataset(folder)


def searched(command: Sequence[object], cache_bytes: int) -> dict[str, Any]:
    """Run a child in this process, without a limit."""
    words = [str(word) for word in command]
    told, given_arguments, given_input = io.StringIO(), sys.argv, sys.stdin
    sys.argv, sys.stdin = words[words.index("-m") + 1 :], io.StringIO("go\n")
    try:
        with redirect_stdout(told):
            child.main()
    finally:
        sys.argv, sys.stdin = given_arguments, given_input
    held, found = told.getvalue().splitlines()
    assert int(held) > 0
    return {**json.loads(found), "held_bytes": int(held), "limit_bytes": int(held) + cache_bytes}


def test_all_parts_are_measured_and_shown(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "DRAWS", 40)
    monkeypatch.setattr(inplace, "ROWS", 2500)
    monkeypatch.setattr(inplace, "M", 8)
    monkeypatch.setattr(searching, "run_lowered", searched)
    monkeypatch.setattr(lists, "LISTS", 40)
    monkeypatch.setattr(ivf, "LISTS", 60)
    monkeypatch.setattr(ivf, "NPROBE", 8)
    run = Run("inplace", {"sift1m": data}, tmp_path)
    assert inplace.BENCHMARK.run(run) == []
    found = record.load(run.results)
    search = found["parts"]["search"]
    assert found["parts"]["build"]["n_vectors"] == 2500
    assert search["cache_bytes"] == (tmp_path / "inplace" / "original.faiss").stat().st_size // 2
    assert search["recall"]["original"] > 0.9
    for name in inplace.ORDERS:
        assert search["recall"][name] == search["recall"]["original"]
        assert search["same"][name]["queries"] == N_QUERIES // 2
        assert search["same"][name]["distances"] == search["same"][name]["answers"] == 1
        assert [len(one["group_s"]) for one in search["runs"][name]] == [3] * searching.ROUNDS
        ratio = search["ratio"][name]
        assert 0 < ratio["low"] <= ratio["value"] <= ratio["high"]
    assert found["parts"]["ivf-build"]["codecs"]["sq8"]["n_vectors"] == N
    assert found["parts"]["ivf-build"]["codecs"]["pq16"]["n_vectors"] == 8 * N
    same = {"queries": N_QUERIES // 2, "distances": 1, "answers": 1}
    for ways in found["parts"]["ivf-search"]["codecs"].values():
        assert list(ways) == ["mmap_ifc", "mmap"]
        for one in ways.values():
            assert one["same"]["kmeans-pages"].items() >= same.items()
    rows = found["parts"]["lists"]["rows"]
    assert len(rows) == len(lists.ROWS) * len(lists.NPROBES) * len(lists.UNITS)
    text = inplace.BENCHMARK.render(found, "r.json")
    assert "| queries with the same answers, ties excepted | 1.000 | >= 1 |" in text
    assert "| IVF, pq16, IO_FLAG_MMAP: queries with the same answers, ties excepted | 1.000 | >= 1 |" in text
    assert "| pq8 |" in text


def test_answers_are_the_same_whatever_comes_first_of_equal_distances() -> None:
    distances = np.array([[1.0, 2.0, 2.0, 3.0, 3.0]] * 5)
    ids = np.array([[7, 4, 5, 8, 9]] * 5)
    others = np.array([[7, 4, 5, 8, 9], [7, 5, 4, 9, 8], [7, 4, 5, 8, 1], [7, 4, 6, 8, 9], [7, 4, 5, 8, 9]])
    nearer = distances.copy()
    nearer[4, 3] = 2.5
    same = searching.same_answers(distances, ids, nearer, others)
    assert same.tolist() == [True, True, True, False, False]


def test_ratios_are_of_the_queries_that_all_runs_searched() -> None:
    original = [{"queries": 50, "group_s": [4.0, 2.0, 9.0]}, {"queries": 60, "group_s": [6.0, 2.0, 9.0]}]
    laid_out = [{"queries": 60, "group_s": [1.0, 2.0, 1.0]}] * 2
    ratio = searching.qps_ratio(laid_out, original)
    assert ratio is not None
    assert ratio["value"] == pytest.approx(7 / 3)
    assert (ratio["low"], ratio["high"]) == (pytest.approx(1), pytest.approx(5))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 300), st.integers(0, 2**31))
def test_reads_of_lists_are_the_units_that_hold_their_bytes(
    n_lists: int, nprobe: int, unit: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    sizes, order = random.integers(0, 400, n_lists), random.permutation(n_lists)
    probed = np.array([random.permutation(n_lists)[: min(nprobe, n_lists)] for _ in range(5)])
    owner = np.repeat(order, sizes[order])  # list of each byte of the file
    counts = [len(np.unique(np.flatnonzero(np.isin(owner, row)) // unit)) for row in probed]
    assert lists.reads(order, sizes, probed, unit) == pytest.approx(np.mean(counts))
