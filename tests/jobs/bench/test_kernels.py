"""The benchmark of kernels: parts that are measured small, and their tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from indexmill.jobs.bench.common import tables
from indexmill.jobs.bench.kernels import __main__ as kernels

SMALL = kernels.Sizes(near_bytes=1 << 12, far_bytes=1 << 16, rounds=1, queries=8, pruned=10, vectors=400)
PART = {"started": "2026-11-21T00:00:00+00:00", "commit": "0", "load_before": 0.1}


def test_both_sides_find_the_same_and_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "DIMS", (20,))
    monkeypatch.setattr(kernels, "CANDIDATES", (40,))
    record: dict[str, Any] = {
        "machine": {"cpu": "x", "cores": 2, "memory_bytes": 1, "kernel": "k"},
        "versions": {"peer": []},
        "data": {"name": "generated", "n_vectors": 1, "dim": 1, "dtype": "uint8"},
        "parts": {name: PART | part(SMALL) for name, part in kernels.BENCHMARK.parts.items()},
    }
    rows = record["parts"]["distances"]["rows"]
    assert {(row["dtype"], row["metric"]) for row in rows} == {
        (dtype, metric) for dtype in kernels.TYPES for metric in ("l2", "ip")
    }
    assert all(
        row[f"{where}_{side}_ns"] > 0
        for row in rows
        for where in ("near", "far")
        for side in ("native", "numba")
    )
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- kernels: begin -->\n<!-- kernels: end -->\nafter")
    tables.write_into(page, kernels.BENCHMARK.render(record, "record.json"), "kernels")
    text = page.read_text()
    assert text.count("| uint8 | l2 | 20 |") == 1
    assert all(title in text for title in ("### Distances", "### Codes", "### Prunes"))
    assert text.startswith("before")
    assert text.endswith("after")
