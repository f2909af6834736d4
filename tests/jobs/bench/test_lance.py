"""The benchmark of Lance datasets: its tables and its targets."""

from __future__ import annotations

from indexmill.jobs.bench.lance.__main__ import BENCHMARK, MOST_BELOW, PROBES

ABOUT = {"started": "2026-01-02T03:04:05", "commit": "abc", "load_before": 0.1}
MACHINE = {"cpu": "a", "cores": 2, "memory_bytes": 1 << 30, "kernel": "b"}


def part(below: float) -> dict[str, object]:
    theirs = {"value": 0.9, "low": 0.89, "high": 0.91}
    ours = {name: value - below for name, value in theirs.items()}
    rows = [{"nprobe": probes, "ours": ours, "theirs": theirs} for probes in PROBES]
    return {
        **ABOUT, "vectors": 9_000, "dim": 8, "fragments": 8, "lists": 256, "queries": 50, "rows": rows,
        "seconds": {"model": [7.0, 9.0, 8.0], "ours": [1.5, 1.3, 1.6], "theirs": [3.0, 4.0, 2.0]},
        "least_difference": -below,
    }  # fmt: skip


def test_recalls_of_both_are_shown_and_held_to_a_difference() -> None:
    found = {
        "benchmark": "lance", "data": [], "machine": MACHINE, "versions": {"python": "3", "peer": ["pylance==1"]},
        "parameters": {"code_bytes": 4}, "parts": {"flat": part(0.0), "pq": part(2 * MOST_BELOW)},
    }  # fmt: skip
    lines = BENCHMARK.render(found, "r.json").splitlines()
    shown = [line for line in lines if line.startswith(("| flat | ", "| pq | "))]
    assert [line.split(" | ")[:3] for line in shown] == [
        ["| flat", "indexmill, 3 indexes", "0.9000 (0.8900 to 0.9100)"],
        ["| flat", "Lance, 3 indexes", "0.9000 (0.8900 to 0.9100)"],
        ["| pq", "indexmill, 3 indexes", "0.8900 (0.8800 to 0.9000)"],
        ["| pq", "Lance, 3 indexes", "0.9000 (0.8900 to 0.9100)"],
    ]
    assert [line.split(" | ")[-1] for line in shown] == ["1.5 + 8.0 |", "3.0 |"] * 2
    assert lines.index(shown[-1]) - lines.index(shown[0]) == 3, "one table"
    assert sum(line.endswith("| **no** |") for line in lines) == 1
    guide = BENCHMARK.render(found, "r.json", "guide").splitlines()
    differences = [line.split(" | ")[1:-2] for line in guide if line.startswith(("| flat | ", "| pq | "))]
    assert differences == [["+0.0000"] * len(PROBES), ["-0.0100"] * len(PROBES)]
    assert guide[-1].startswith(
        "The target, >= -0.005 everywhere, was met by flat lists and missed by codes."
    )
