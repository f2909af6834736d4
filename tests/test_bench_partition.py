"""The benchmark of the partition builder: a part that is measured small, and its tables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import bench_support
from typer.testing import CliRunner

from indexmill.jobs.cli import app

import partition  # isort: skip  # found by bench_support
import tables_partition  # isort: skip
from dataset import Dataset, write_bin, write_truth  # isort: skip
from process import Usage  # isort: skip

__all__ = ["bench_support"]
PART = {"started": "2026-11-21T00:00:00+00:00", "commit": "0", "load_before": 0.1}
RECORD: dict[str, Any] = {
    "machine": {"cpu": "x", "cores": 2, "memory_bytes": 1, "kernel": "k"},
    "versions": {"peer": []},
    "data": [{"name": "d", "n_vectors": 1, "dim": 1, "dtype": "uint8"}],
}


def run_here(command: Sequence[object], log: Path) -> Usage:
    """Run an indexmill command in this process, which has its kernels loaded."""
    began = time.perf_counter()
    done = CliRunner().invoke(app, [str(part) for part in command[1:]])
    assert done.exit_code == 0, done.output
    return Usage(time.perf_counter() - began, 1.0, 1)


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> partition.Builds:
    rng = np.random.default_rng(1)
    write_bin(tmp_path / "base.u8bin", rng.integers(0, 256, (1500, 24), dtype=np.uint8))
    write_bin(tmp_path / "query.u8bin", rng.integers(0, 256, (50, 24), dtype=np.uint8))
    write_truth(Dataset(tmp_path))
    monkeypatch.setattr(partition, "_WARM_UP_ROWS", 300)
    monkeypatch.setattr(partition, "run_measured", run_here)
    return partition.Builds({"sift1m": Dataset(tmp_path)}, tmp_path, 1, None)


def test_builders_are_measured_in_turns_and_their_graphs_by_one_search(space: partition.Builds) -> None:
    found = partition.case(space, "sift1m", 12, 30)
    assert found["graph_ratio"] == found["partition"]["graph_s"] / found["vamana"]["graph_s"]
    for builder in partition.BUILDERS:
        one = found[builder]
        assert 0 < one["graph_s"] < one["index_s"] < one["wall_s"]
        assert one["rows"][-1]["recall"] > 0.99 > one["rows"][0]["recall"]
        assert one["distances"]["0.95"] < one["distances"]["0.99"]
    assert 0.7 < found["distances_to_vamana"]["0.95"] < 1.3
    grown = {
        "rows": [{"n": 10, "graph_s": 1.0, "index_s": 2.0, "peak_bytes": 1}],
        "graph_exponent": 1.0,
        "index_exponent": 1.2,
    }
    parts = {"sift1m-R32": PART | found, "growth": PART | grown}
    text = tables_partition.render(RECORD | {"parts": parts}, "r.json")
    assert "### sift1m, R = 12, L = 30" in text
    assert "| growth of the index's seconds, n to the power of | 1.200 | <= 1.1 |  | **no** |" in text
