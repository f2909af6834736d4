"""Whole runs of `tune`: what they report, and the index that the recommended job builds."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run, run_json
from tests.support.indexes.append import points
from tests.support.indexes.builds import correlated
from tests.support.tune import GRAPH, N

import indexmill
from indexmill.formats.sources.source import open_source
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.pipeline.tune.effort import EFFORTS, Effort
from indexmill.pipeline.tune.graphs.prices import GraphPrices
from indexmill.pipeline.tune.graphs.space import Candidate, CodeFormat, GraphCandidate

#: What may differ between two equal runs.
TIMES = ("build_seconds", "build_memory_bytes")


@pytest.fixture(scope="module")
def job(base: Path) -> Path:
    """Where the recommended job of `found` is."""
    return base.parent / "job.toml"


@pytest.fixture(scope="module")
def found(base: Path, job: Path) -> Any:
    return run_json("tune", base, *GRAPH, "--target-recall", "0.9", "--out", job)


def without_times(report: Any) -> Any:
    rows = [{name: row[name] for name in row if name not in TIMES} for row in report["candidates"]]
    return {**report, "candidates": rows}


def test_tune_recommends_a_job_on_the_frontier(found: Any) -> None:
    assert found["samples"] == [990, 3960]
    assert found["queries"] == 440
    rows = found["candidates"]
    assert {row["pq_bytes"] for row in rows} == {1, 3, 6, 12}
    assert {(row["max_degree"], row["build_list_size"], row["alpha"]) for row in rows} == {(12, 30, 1.2)}
    chosen = [row for row in rows if row["recommended"]]
    assert len(chosen) == 1
    assert chosen[0]["on_frontier"]
    assert chosen[0]["build_seconds"] > 0
    assert found["recommended"]["pq_bytes"] == chosen[0]["pq_bytes"]
    for row in rows:
        if row["pages_read"] is not None:
            assert row["pages_read_low"] <= row["pages_read"] <= row["pages_read_high"]


def test_the_memory_that_is_told_is_the_one_that_limits_are_held_against(found: Any, base: Path) -> None:
    spec = BuildSpec(input=[str(base)], out="x.index", parameters=Parameters(R=12, L=30))
    prices = GraphPrices(spec, open_source(str(base)))
    for row in found["candidates"]:
        candidate = Candidate(GraphCandidate(12, 30, 1.2), CodeFormat(row["pq_bytes"], row["pq_rotation"]))
        assert row["search_memory_bytes"] == prices.cost(candidate, 1.0).memory_bytes


def test_equal_runs_try_the_same_and_find_the_same(found: Any, base: Path, tmp_path: Path) -> None:
    again = run_json(
        "tune", base, *GRAPH, "--target-recall", "0.9", "--workers", "1", "--work", tmp_path / "new" / "work"
    )
    assert without_times(again) == without_times(found)
    assert list((tmp_path / "new" / "work").iterdir()) == []  # scratch files are gone


def test_the_recommended_job_builds_an_index_that_reads_what_was_predicted(
    tmp_path: Path, base: Path, job: Path, found: Any
) -> None:
    row = next(row for row in found["candidates"] if row["recommended"])
    said = tomllib.loads(job.read_text())
    assert said["parameters"] == found["recommended"]
    assert run("build", job, "--out", tmp_path / "index").exit_code == 0
    index = indexmill.open(tmp_path / "index")
    queries = points(400, 77)
    result = index.search(queries, 10, L=row["search_list_size"])
    vectors = np.load(base)
    distances = ((vectors[None] - queries[:, None]) ** 2).sum(axis=2)
    kth = np.sort(distances, axis=1)[:, 9:10]
    recall = (np.take_along_axis(distances, result.vector_ids, 1) <= kth * (1 + 1e-5)).mean()
    assert recall > 0.87
    assert recall == pytest.approx(row["recall"], abs=0.03)
    assert result.counters["pages_read"].mean() == pytest.approx(row["pages_read"], rel=0.15)
    assert run("tune", base, *GRAPH, "--out", job).exit_code == 5


def test_a_rotation_is_tuned_for_and_goes_into_the_job(base: Path, tmp_path: Path) -> None:
    options = (*GRAPH, "--pq-bytes", "6", "--pq-rotation", "opq", "--compute", "auto")
    found = run_json("tune", base, *options, "--target-recall", "0.9", "--out", tmp_path / "job.toml")
    assert found["recommended"]["pq_rotation"] == "opq"
    assert found["recommended"]["compute"] == "auto"
    assert tomllib.loads((tmp_path / "job.toml").read_text())["parameters"] == found["recommended"]


def test_rotations_and_nodes_are_chosen_for_each_size_of_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EFFORTS, "low", Effort(3_300, 400))
    np.save(tmp_path / "base.npy", correlated(10_000, 32))
    graph = ("-R", "16", "-L", "30", "--alpha", "1.2", "--effort", "low")
    found = run_json("tune", tmp_path / "base.npy", *graph, "--search-memory", "8/vector")
    assert {row["pq_bytes"] for row in found["candidates"]} == {2, 4, 8}
    assert {row["pq_rotation"] for row in found["candidates"] if row["pq_bytes"] < 8} == {"opq"}
    assert found["search_memory"] == found["recommended"]["search_memory"] == "8/vector"
    assert (found["recommended"]["pq_rotation"], found["recommended"]["node_dtype"]) == ("opq", "sq8")


@pytest.mark.parametrize(
    ("flags", "nodes"),
    [((), "--node-dtype same)"), (("--keep-vectors",), "--node-dtype sq8 --keep-vectors)")],
)
def test_the_words_name_every_flag_of_the_index(base: Path, flags: tuple[str, ...], nodes: str) -> None:
    done = run("tune", base, *GRAPH, "--pq-bytes", "6", "--target-recall", "0.9", *flags)
    assert done.exit_code == 0
    code = "--pq-bytes 6 --pq-rotation none"
    assert f"build with * (--builder partition -R 12 -L 30 --alpha 1.2 {code} {nodes}" in done.stdout


def test_queries_of_the_caller_are_used(base: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", points(300, 5))
    report = run_json("tune", base, *GRAPH, "--pq-bytes", "6", "--queries", tmp_path / "q.npy")
    assert report["queries"] == 300
    assert report["queries_from"] == "the caller"
    assert report["samples"] == [1100, N]
    np.save(tmp_path / "wrong.npy", np.zeros((300, 5), np.float32))
    result = run("tune", base, *GRAPH, "--queries", tmp_path / "wrong.npy")
    assert result.exit_code == 3
    assert "queries: expected shape (q, 12)" in result.stderr
