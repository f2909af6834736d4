"""`indexmill score` of hash tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cli_support import run, run_json
from tests.lsh_support import build_lsh, clusters

import indexmill

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


@pytest.mark.parametrize("flags", [["-L", "10"], ["--nprobe", "2"]])
def test_flags_of_other_kinds_are_refused(folder: Path, flags: list[str]) -> None:
    result = run("score", folder / "ix", "--queries", folder / "q.npy", "--base", folder / "base.npy", *flags)
    assert result.exit_code == 2
    assert f"{flags[0]}: not for indexes of kind lsh" in result.output
