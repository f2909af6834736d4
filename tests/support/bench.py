"""Fake searches for the tests of jobs/bench; they need no index and no disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.jobs.bench.common import disk, intervals
from indexmill.jobs.bench.common.curves import Half, Span
from indexmill.jobs.bench.common.serving import Cost, make_row
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.sift1m import bandwidth, completion, cpu_profile

#: Queries of a half.
N_QUERIES = 200
HALVES: dict[str, Span] = {"tune": (0, N_QUERIES), "report": (N_QUERIES, 2 * N_QUERIES)}


def fake_row(
    size: int, queries: Half | Span, cost: float, hardness: float = 11.0, k: int = 10
) -> dict[str, Any]:
    """Return a row as the children answer: queries need list sizes of very different lengths, and pages by theirs."""
    first, last = HALVES[queries] if isinstance(queries, str) else queries
    random = np.random.default_rng(1 + first // N_QUERIES)
    needed = hardness * random.lognormal(0, 0.6, N_QUERIES)
    hits = np.clip(np.round(k * (1 - np.exp(-2 * size / needed))), 0, k).astype(int)
    pages = cost * size**0.8 * random.uniform(0.8, 1.2, N_QUERIES)
    each = {
        "hits": hits,
        "hits1": (hits > 4).astype(int),
        "pages_read": pages,
        "hops": pages / 4,
        "latency_us": 40 * pages,
        "call_us": 50 * pages,
        "io_wait_us": 30 * pages,
    }
    asked = {name: values[first % N_QUERIES :][: last - first] for name, values in each.items()}
    spent = Cost(wall_s=float(20e-6 * pages.sum()), cpu_s=float(10e-6 * pages.sum()))
    return make_row(size, spent, 1, asked, bytes_used=1000.0, bytes_read=4096.0)


class FakeOurs:
    """Stands in for `ours.Ours`; `hardness` says what list sizes queries need."""

    hardness = 11.0

    def __init__(self, space: Any, native: Any = None) -> None:
        self.space = space

    def __enter__(self) -> FakeOurs:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def ask(self, index: str, setting: Any, size: int, queries: Half | Span, **others: Any) -> dict[str, Any]:
        cost = {"beam": 2.0, "completion": 2.0, "page": 1.2, "pipeline": 1.0}[setting.policy]
        cost *= 1.3 if setting.entry == "medoid" else 1.0
        if not index.startswith("star"):  # on a simulated device an order brings less
            cost *= 1.25 if str(others.get("engine")).startswith("simulated:") else 1.5
        return fake_row(size, queries, cost, self.hardness)

    def search(self, index: str, setting: Any, **others: Any) -> Callable[[int, Half], dict[str, Any]]:
        return lambda size, half: self.ask(index, setting, size, half, **others)


class FakeDiskAnn:
    """Stands in for `diskann.DiskAnn`."""

    def __init__(self, space: Any, threads: int = 2, index: Path | None = None, width: int = 4) -> None:
        return None

    def __enter__(self) -> FakeDiskAnn:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def ask(self, size: int, queries: Half | Span, way: str = "batch") -> dict[str, Any]:
        return fake_row(size, queries, 3.0)

    def search(self, way: str = "batch") -> Callable[[int, Half], dict[str, Any]]:
        return lambda size, half: self.ask(size, half, way)


def read_rate(path: Path, depth: int, seconds: float, block_bytes: int = 4096) -> dict[str, Any]:
    how = {"depth": depth, "jobs": 2, "seconds": seconds, "method": "fio"}
    return {**how, "reads_per_s": 90_000 * 4096 // block_bytes, "read_us_mean": 700}


def read_times(path: Path, depth: int, seconds: float) -> dict[str, Any]:
    return read_rate(path, depth, seconds) | {"percentiles_us": {"50": 80.0, "99": 200.0}, "slow": 0.001}


def fake(patch: pytest.MonkeyPatch) -> None:
    """Let the parts measure the searches above."""
    times = [[share, 100.0 + 1000 * share] for share in (0.0, 0.5, 0.95, 1.0)]
    reads = {
        "depth": 1, "threads": 1, "reads": 9, "reads_per_s": 9000, "below_100_us": 0.5, "curve": times,
        "percentiles_us": {str(p): 100.0 for p in completion.PERCENTILES},
    }  # fmt: skip
    patch.setattr(ours, "Ours", FakeOurs)
    patch.setattr(ours, "ensure", lambda space, order, entries=1024: order)
    patch.setattr(ours, "ensure_shape", lambda space, shape: shape.order)
    patch.setattr(diskann, "DiskAnn", FakeDiskAnn)
    patch.setattr(diskann, "ensure", lambda space: None)
    patch.setattr(disk, "read_rate", read_rate)
    patch.setattr(disk, "read_times", read_times)
    patch.setattr(cpu_profile, "why_not", lambda: "perf: not installed")
    patch.setattr(bandwidth, "read_latency", lambda path: times)
    patch.setattr(completion, "read_times", lambda space: [reads])
    patch.setattr(intervals, "DRAWS", 40)


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    """`fake`, for one test."""
    fake(monkeypatch)
