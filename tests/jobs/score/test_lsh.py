"""`indexmill score` of hash tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.cli import run, run_json
from tests.support.indexes.lsh import build_lsh, clusters

import indexmill
from indexmill.jobs.kinds.lsh import left_out, score_rows
from indexmill.jobs.score.queries import QuerySet
from indexmill.jobs.score.rows import Setting

BASE = clusters(3000, 12)
QUERIES = clusters(60, 12, seed=1) * 0.5 + BASE[:60] * 0.5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("score")
    build_lsh(path / "ix", BASE)
    np.save(path / "base.npy", BASE)
    np.save(path / "q.npy", QUERIES)
    return path


def test_ratio_and_recall_are_those_of_brute_force(folder: Path) -> None:
    few, many = run_json(
        "score", folder / "ix", "--queries", folder / "q.npy", "--base", folder / "base.npy", "-k", 5, "-S", "10,2000"
    )  # fmt: skip
    truth = np.sort(np.sqrt(((QUERIES[:, None].astype(np.float64) - BASE[None]) ** 2).sum(axis=2)), axis=1)[
        :, :5
    ]
    for row in (few, many):
        found = indexmill.open(folder / "ix").search(QUERIES, 5, candidates=row["S"])
        assert not np.isnan(found.scores).any()
        distances = np.sqrt(found.scores.astype(np.float64))
        assert row["ratio"] == pytest.approx(np.mean(distances / truth), rel=1e-4)
        assert row["recall"] == pytest.approx(np.mean(distances <= truth[:, 4:] * 1.00001))
        assert row["distances"] == pytest.approx(found.counters["distances"].mean())
    assert 1 <= many["ratio"] < few["ratio"]
    assert many["recall"] > few["recall"]


def test_by_default_the_candidates_of_the_index_are_among_those_measured(folder: Path) -> None:
    shown = run("score", folder / "ix", "--queries", folder / "q.npy", "--base", folder / "base.npy").stdout
    own = indexmill.open(folder / "ix").native.candidates
    assert f"{own} " in shown
    assert "overall" in shown


def test_queries_that_met_too_few_are_counted_and_named(tmp_path: Path) -> None:
    """One table, one radius, few candidates: a bucket may hold fewer than k vectors."""
    rows = np.repeat(clusters(200, 12), 2, axis=0)
    build_lsh(tmp_path / "ix", rows, n_tables=1, n_functions=12, first_radius=1.0, n_radii=1)
    np.save(tmp_path / "base.npy", rows)
    np.save(tmp_path / "q.npy", rows[:40] + np.float32(1e-3) * (np.arange(40)[:, None] >= 20))
    options = ["--queries", tmp_path / "q.npy", "--base", tmp_path / "base.npy", "-k", 5, "-S", 1]
    (row,) = run_json("score", tmp_path / "ix", *options)
    found = indexmill.open(tmp_path / "ix").search(np.load(tmp_path / "q.npy"), 5, candidates=1)
    assert row["short"] == np.isnan(found.scores).any(axis=1).sum() > 0
    shown = run("score", tmp_path / "ix", *options).stdout
    assert f"S 1: queries that met fewer than 5 vectors: {row['short']:.0f}" in shown


def test_what_a_ratio_leaves_out_is_said_for_each_number_of_candidates() -> None:
    rows = [{"S": 5, "k": 2, "skipped": 3.0, "short": 0.0}, {"S": 9, "k": 2, "skipped": 0.0, "short": 1.0}]
    assert left_out(rows) == [
        "S 5: queries without overall ratio (a true neighbour at distance 0 was not found): 3",
        "S 9: queries that met fewer than 2 vectors: 1",
    ]
    assert left_out([{"S": 5, "k": 2, "ratio": None}]) == []


def test_a_truth_of_other_distances_has_no_ratio(folder: Path) -> None:
    queries = QuerySet(QUERIES, *_truth(5))
    index = indexmill.open(folder / "ix")
    (right,) = score_rows(index, queries, [2000], Setting(5))
    (other,) = score_rows(
        index, replace(queries, truth_distances=queries.truth_distances * 7 + 3), [2000], Setting(5)
    )
    assert right["ratio"] >= 1
    assert other["ratio"] is None
    assert other["recall"] == pytest.approx(right["recall"], abs=0.02)


def _truth(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids, shape (n, k), of the nearest, and their squared distances."""
    squares = ((QUERIES[:, None].astype(np.float64) - BASE[None]) ** 2).sum(axis=2)
    ids = np.argsort(squares, axis=1, kind="stable")[:, :k]
    return ids, np.take_along_axis(squares, ids, axis=1).astype(np.float32)


@pytest.mark.parametrize(
    "flags",
    [
        ["-L", "10"],
        ["--nprobe", "2"],
        ["--sweep"],
        ["--policy", "beam"],
        ["--entry", "medoid"],
        ["--device", "x"],
    ],
)
def test_flags_of_other_kinds_are_refused(folder: Path, flags: list[str]) -> None:
    result = run("score", folder / "ix", "--queries", folder / "q.npy", "--base", folder / "base.npy", *flags)
    assert result.exit_code == 2
    assert f"{flags[0]}: for an index of kind " in result.output
    assert "this one is of kind lsh" in result.output
