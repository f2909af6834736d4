"""The benchmark of the service of builds, on a small set: both sides build, and faiss searches both."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, write_bin
from indexmill.jobs.bench.serve.__main__ import BENCHMARK, LIST_SIZES

N, DIM = 2000, 16


@pytest.mark.bench
def test_both_build_and_are_searched(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    for name, n in (("base", N), ("query", 50)):
        write_bin(tmp_path / f"{name}.fbin", random.standard_normal((n, DIM)).astype(np.float32))
    run = Run("serve-2000", {"embed768": Dataset(tmp_path)}, tmp_path / "out", N, Namespace(rounds=1))
    run.out.mkdir()
    assert BENCHMARK.run(run) == []
    found = record.load(run.results)
    part = found["parts"]["builds"]
    assert (part["rows"], part["dim"]) == (N, DIM)
    for name in ("ours", "faiss"):
        assert len(part["seconds"][name]) == 1
        assert [one["list_size"] for one in part["searches"][name]] == list(LIST_SIZES)
        assert part["searches"][name][-1]["recall"] > 0.99
    assert f"| {N:,} x {DIM} |" in BENCHMARK.render(found, "here")
    assert not (run.out / "serve").exists()
