"""The benchmark of tens of millions with made-up builds: its ratios, targets and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.large import builds
from indexmill.jobs.bench.large.__main__ import BENCHMARK, TARGETS
from indexmill.jobs.bench.plans.jobs import FIGURES


def built(n: int, seconds: float, pages: float, build_id: str = "a", **others: Any) -> dict[str, Any]:
    at = {"value": pages, "low": pages, "high": pages}
    return {
        "commit": "c" * 40, "started": "2026-01-01T00:00:00", "load_before": 0.0,
        "n": n, "memory": "8GiB", "parameters": {"builder": "partition"}, "build_id": build_id,
        "wall_s": seconds + 1, "index_s": seconds, "order_s": 2.0,
        "peak_bytes": 100, "scratch_bytes": 100, "to_budget": 0.5,
        "planned": dict.fromkeys(FIGURES, 90), "error": dict.fromkeys(FIGURES, -0.1),
        "pages_read": {"0.90": at, "0.95": at, "0.98": None}, **others,
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of which some parts were measured."""
    run = Run("large", {}, tmp_path)
    parts = {
        "n1-8GiB": built(10**6, 10, 20),
        "n10-8GiB": built(10**7, 100, 30),
        "n10-2GiB": built(10**7, 120, 30, "b"),
        "n10-whole": built(10**7, 80, 30, "b"),
        "n1-diskann": built(10**6, 200, 40, call_s=1.0),
        "n10-diskann": built(10**7, 999, 80, call_s=1.0),
    }
    machine = {"cpu": "a", "cores": 1, "memory_bytes": 2**30, "kernel": "k"}
    found = {
        "benchmark": "large",
        "format": record.FORMAT,
        "data": [],
        "machine": machine,
        "versions": {"python": "3", "peer": []},
    }
    record.save(found | {"parts": parts}, run.results)
    return run


def test_builds_are_compared_with_those_that_were_measured(run: Run) -> None:
    assert builds.ratios(run) == {
        "to_diskann": pytest.approx(0.1),
        "exponent": {"1 to 10": pytest.approx(1.0), "10 to 30": None},
        "within": pytest.approx(1.5),
        "same_bytes": 1.0,
        "reads": {"indexmill": pytest.approx(1.5), "diskann": 2.0, "ratio": pytest.approx(0.75)},
    }


def test_other_bytes_in_less_memory_are_told(run: Run) -> None:
    found = record.load(run.results)
    found["parts"]["n10-2GiB"]["build_id"] = "c"
    record.save(found, run.results)
    assert builds.ratios(run)["same_bytes"] == 0.0


def test_the_page_shows_what_was_measured_and_judges_it(run: Run) -> None:
    found = record.load(run.results)
    found["parts"]["ratios"] = builds.ratios(run) | record.start_part()
    rows = [
        {
            "step": "verify",
            **dict.fromkeys(("wall_s", "cpu_s", "peak_bytes", "scratch_bytes", "written_bytes"), 1),
        }
    ]
    found["parts"]["n10-8GiB-steps"] = {"of": "n10-8GiB", "n": 10**7, "rows": rows} | record.start_part()
    text = BENCHMARK.render(found, "record.json")
    assert "| 10M, seconds of the index in 8 GiB, partition / DiskANN | 0.100 | <= 0.12 | x | yes |" in text
    assert "| 10M to 30M: the same | not reached |" in text
    assert "| plan of memory, n10-2GiB, off by at most | 0.100 | <= 0.15 |  | yes |" in text
    assert "30M within" not in text, "what was not measured is not judged"
    assert "| verify | 1.0 |" in text
    assert {target.part for target in TARGETS} <= {name.replace("-", "_") for name in BENCHMARK.parts}


def test_a_trial_takes_so_many_vectors_for_each_million(tmp_path: Path) -> None:
    data = builds.given(Run("large", {}, tmp_path, rows=50), 3)
    assert data.shape() == (150, 128)
    assert (read_bin(data.base)[:50] == read_bin(builds.given(Run("large", {}, tmp_path, 50), 1).base)).all()
