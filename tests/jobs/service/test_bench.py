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
    longer = found["parts"]["longer"]
    assert (longer["rows"], longer["ef_construction"]) == (N, 200)
    for name in ("ours", "faiss"):
        assert longer["searches"][name][-1]["recall"] > 0.99
    tables = BENCHMARK.render(found, "here")
    assert f"| {N:,} x {DIM} |" in tables
    assert f"| {N:,} x {DIM}, `ef_construction` 200 |" in tables
    guide = BENCHMARK.render(found, "here", "guide")
    assert f"Of {N:,} embeddings of {DIM} floats (`m` 16, `ef_construction` 100, 2 threads" in guide
    assert "not S3 as storage" in guide
    assert "The target for this ratio, <= 0.33, was " in guide
    recalls = [line for line in guide.splitlines() if line.startswith("| recall@10, ")]
    assert [line.count("|") for line in recalls] == [len(LIST_SIZES) + 2] * 4
    assert " below that of faiss's insertions at the same `ef_search`." in guide
    assert not (run.out / "serve").exists()
