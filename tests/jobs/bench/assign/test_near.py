"""Parts *tree-near* and *drives-near* of the benchmark of assignment, on small vectors: which tree they have."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from indexmill.builders.leaders.base import ExactLeaders
from indexmill.jobs.bench.assign import drives, large
from indexmill.jobs.bench.assign.__main__ import BENCHMARK
from indexmill.jobs.bench.assign.large import NEAR, PLAIN
from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, write_bin
from indexmill.jobs.bench.common.generate import generate
from indexmill.jobs.bench.common.loop import Drive, Rates
from indexmill.jobs.grouping.setting import Leaders

pytestmark = pytest.mark.bench


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Small vectors, leaves and in-buffers; folders stand in for drives."""

    @contextmanager
    def drive(n_bytes: int) -> Iterator[Drive]:
        folder = tmp_path / f"drive-{len(list(tmp_path.glob('drive-*')))}"
        folder.mkdir()
        yield Drive(folder, "7:0")

    @contextmanager
    def held(one: Drive, rates: Rates) -> Iterator[None]:
        yield

    for module in (large, drives):
        monkeypatch.setattr(module, "PAPER_BUFFER", 1 << 17)
    monkeypatch.setattr(large, "LEAF_KIB", 1)
    monkeypatch.setattr(large, "BUFFERS", (1 << 17,))
    monkeypatch.setattr(drives, "drive", drive)
    monkeypatch.setattr(drives, "held", held)
    data = Dataset(tmp_path / "set")
    generate(data.folder, 300, 5, 1)
    (tmp_path / "scratch").mkdir()
    options = Namespace(scratch=[tmp_path / "scratch"], rounds=1, leaders=260)
    return Run("assign", {"sift1m": data}, tmp_path, 300, options)


def test_the_near_tree_agrees_with_brute_force_more_often_in_both_tables(tried: Run) -> None:
    assert BENCHMARK.run(tried, ["tree", "tree-near", "drives-near"]) == []
    found = record.load(tried.results)
    plain, near, drives_near = (found["parts"][name] for name in ("tree", "tree-near", "drives-near"))
    assert (plain["leaders"]["depth"], plain["leaders"]["beam"]) == PLAIN
    assert (near["leaders"]["depth"], near["leaders"]["beam"]) == NEAR
    assert drives_near["leaders"] == near["leaders"]
    assert near["leaders"]["agreement"] > plain["leaders"]["agreement"] + 0.2
    assert near["leaves"]["small"] < plain["leaves"]["small"]
    assert drives_near["leaves"] == near["leaves"]
    # The paper's drives alone, and the same tree: the same file.
    assert list(drives_near["medians"]) == ["I", "I-I-I", "F-I-F"]
    assert {run["sha256"] for run in (*near["runs"], *drives_near["runs"])} == {near["runs"][0]["sha256"]}
    text = BENCHMARK.render(found, "r.json")
    assert "### Leaders in a tree: 3,000 vectors" in text
    assert "### Leaders in a tree, 2 levels and 8 nodes: 3,000 vectors" in text
    assert "### One drive and two, 2 levels and 8 nodes: 3,000 vectors" in text
    assert "(the study: 30% and 21%)" in text
    assert "| F-I-F | chunk |" in text
    assert "*disk*" not in text


def test_leaves_are_counted_over_all_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "ROWS_AT_ONCE", 4)
    write_bin(tmp_path / "base.u8bin", np.array([[0]] * 9 + [[100]] * 2 + [[200]], np.uint8))
    leaders = Leaders(ExactLeaders(np.array([[0], [100], [200]], np.uint8)), {})
    # Leaves of 9, 2 and 1 vectors: 4 on average.
    found = large.leaves(Dataset(tmp_path), leaders)
    assert found == {"small": 1 / 3, "large": 1 / 3, "largest": 9 / 4}
