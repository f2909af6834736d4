"""The benchmark of indexes that live: its tables, of made-up figures of all parts."""

from __future__ import annotations

from typing import Any

import pytest

from indexmill.jobs.bench.common import tables
from indexmill.jobs.bench.live import __main__ as live
from indexmill.jobs.bench.live import living, pages


def figure(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.1, "high": value + 0.1}


def record() -> dict[str, Any]:
    """Figures of every part of every set: the parts that are shown, and no more."""
    about = {"started": "2026-01-02T03:04:05", "commit": "abc", "load_before": 0.1}
    search = {"reads": 20.0, "rows": []}
    rebuilt = {"seconds": 40.0, "default": {"seconds": 20.0}, "search": search}
    ratios = {"time": 0.25, "time_default": 0.5, "reads": 1.01, "recall": 0.001}
    one = {"seconds": 10.0, "search": search, "ratio": ratios}
    tombstones = {"search": search, "ratio": {"reads": 1.03, "recall": 0.0}}
    grown = {
        "added": 10,
        "seconds": 2.0,
        "rebuilt": {"seconds": 50.0},
        "ratio": {"time": 0.04},
        "opening": 0.3,
    }
    chained = [{"added": 0, "reads": 120.0}, {"added": 10, "reads": 190.0, "seconds": 2.5}]
    whole = {"seconds": 49.0, "reads": 121.0, "recall": 0.34}
    chain = {"rows": chained, "recall_before": 0.33, "recall": 0.32, "rebuilt": whole}
    kinds = {"whole_us": figure(4.0), "deleted_us": figure(4.04), "ratio": figure(1.01), "rounds": [{}] * 15}
    parts = {
        "delete": {"tombstones": tombstones, "compacted": one, "rebuilt": rebuilt},
        "rounds": {**one, "n": 2500, "rounds": 20, "rebuilt": rebuilt},
        "merge": {"indexes": 8, "merged": one, "rebuilt": rebuilt, "twice_to_once": 1.0},
        "grow": {"ivf": grown, "lsh": {**grown, "chain": chain}},
        "pages": {"n": 3500, **{kind: kinds for kind in pages.SEARCHES}},
    }
    return {
        "data": {"name": "fake", "n_vectors": 10, "dim": 4, "dtype": "uint8"},
        "machine": {"cpu": "a", "cores": 2, "memory_bytes": 1 << 30, "kernel": "b"},
        "versions": {"python": "3", "peer": []},
        "parts": {f"{part}-{of}": about | found for of in live.SETS for part, found in parts.items()},
    }


def test_tables_show_every_part_and_every_target() -> None:
    found = record()
    assert list(found["parts"]) == list(live.BENCHMARK.parts)
    text = live.BENCHMARK.render(found, "record.json")
    for target in live.BENCHMARK.targets:
        assert f"| {target.what} | " in text
    assert text.count("| **no** |") == 0
    assert "| rounds-sift1m, a round of 20, 2,500 vectors | 10.0 | 0.25 | 0.50 | 20.0 |" in text
    assert "| grow-sift1m, lsh | 10 | 2.0 | 50.0 | 0.04 | 0.30 |" in text
    assert "| 0 |  | 120.0 | 0.330 |" in text
    assert "| 10 | 2.5 | 190.0 | 0.320 |" in text
    assert "| rebuild of all | 49.0 | 121.0 | 0.340 |" in text
    assert "Medians of 15 rounds, with the least and the greatest" in text
    assert "| pages-embed768, lsh, 3,500 vectors | 4.000 (3.900 to 4.100) |" in text
    shown = {tables.part_of(target.figure) for target in live.BENCHMARK.targets}
    assert shown == {part.replace("-", "_") for part in found["parts"]}


def test_tables_leave_out_what_older_records_lack() -> None:
    found = record()
    del found["parts"]["grow-sift1m"]["lsh"]["chain"]["recall_before"]
    del found["parts"]["grow-sift1m"]["lsh"]["opening"]
    text = live.BENCHMARK.render(found, "record.json")
    assert "| 0 |  | 120.0 |  |" in text
    assert "| grow-sift1m, lsh | 10 | 2.0 | 50.0 | 0.04 |  |" in text


def test_times_are_medians(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(living, "timed", lambda run: {"seconds": next(times), "cpu_s": 1.0})
    found = living.repeated(lambda: None)
    assert (found["seconds"], found["cpu_s"]) == (2.0, 1.0)
    assert [one["seconds"] for one in found["times"]] == [3, 1, 2]
