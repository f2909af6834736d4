"""The benchmark of Lance datasets: its tables and its targets."""

from __future__ import annotations

from indexmill.jobs.bench.lance.__main__ import BENCHMARK, MOST_BELOW, PROBES

ABOUT = {"started": "2026-01-02T03:04:05", "commit": "abc", "load_before": 0.1}
MACHINE = {"cpu": "a", "cores": 2, "memory_bytes": 1 << 30, "kernel": "b"}


def part(below: float) -> dict[str, object]:
    theirs = {"value": 0.9, "low": 0.89, "high": 0.91}
    rows = [{"nprobe": probes, "ours": 0.9 - below, "theirs": theirs} for probes in PROBES]
    return {
        **ABOUT, "vectors": 9_000, "dim": 8, "fragments": 8, "lists": 256, "queries": 50, "rows": rows,
        "seconds": {"ours": [1.5], "theirs": [3.0, 4.0, 2.0]}, "least_difference": -below,
    }  # fmt: skip


def test_recalls_of_both_are_shown_and_held_to_a_difference() -> None:
    found = {
        "benchmark": "lance", "data": [], "machine": MACHINE, "versions": {"python": "3", "peer": ["pylance==1"]},
        "parts": {"flat": part(0.0), "pq": part(2 * MOST_BELOW)},
    }  # fmt: skip
    lines = BENCHMARK.render(found, "r.json").splitlines()
    shown = [line for line in lines if line.startswith(("| flat | ", "| pq | "))]
    assert [line.split(" | ")[:3] for line in shown] == [
        ["| flat", "indexmill", "0.9000"],
        ["| flat", "Lance, 3 indexes", "0.9000 (0.8900 to 0.9100)"],
        ["| pq", "indexmill", "0.8900"],
        ["| pq", "Lance, 3 indexes", "0.9000 (0.8900 to 0.9100)"],
    ]
    assert [line.split(" | ")[-1] for line in shown] == ["1.5 |", "3.0 |"] * 2
    assert lines.index(shown[-1]) - lines.index(shown[0]) == 3, "one table"
    assert sum(line.endswith("| **no** |") for line in lines) == 1
