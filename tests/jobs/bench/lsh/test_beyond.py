"""Hash tables beyond memory: what is compared, under which limits, and what a side tells."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.lsh import beyond, beyond_child, sets
from indexmill.jobs.bench.lsh.__main__ import BENCHMARK
from indexmill.jobs.bench.lsh.space import LEAN, Space

#: A limit that the fake tells of SRS.
SRS_LIMIT = 10**9


def test_all_sides_are_searched_under_the_limit_of_srs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[tuple[str, int]] = []

    def run_lowered(command: list[str], cache_bytes: int = 0, *, at_least: int = 0) -> dict[str, Any]:
        """Without a control group."""
        done = subprocess.run(command, input="go\n", capture_output=True, text=True, check=True)
        held, told = done.stdout.splitlines()
        side = command[command.index("indexmill.jobs.bench.lsh.beyond_child") + 1]
        limits.append((side, at_least))
        return {**json.loads(told), "held_bytes": int(held), "limit_bytes": at_least or SRS_LIMIT}

    monkeypatch.setattr(beyond, "run_lowered", run_lowered)
    monkeypatch.setattr(beyond, "VECTORS", 1_000_000)
    monkeypatch.setattr(beyond, "QUERIES", 100)
    monkeypatch.setattr(beyond, "ROUNDS", 1)
    monkeypatch.setattr(beyond, "LEANER", LEAN)  # so few vectors do not reach the ratio with fewer tables
    run = Run("lsh", {}, tmp_path, 2000)
    found = beyond.measure(Space(run, sets.Sets(tmp_path, {})))
    assert limits == [("srs", 0), ("io_uring", SRS_LIMIT), ("mmap", SRS_LIMIT)]
    assert not list(tmp_path.glob("*.lsh"))
    direct, mapped = found["sides"]["io_uring"], found["sides"]["mmap"]
    for name in ("reads", "ratio", "recall"):
        assert direct[name] == mapped[name]
    assert direct["reads"] > 0
    assert found["sides"]["srs"]["reads"] == 0
    assert found["to"]["srs"]["value"] == pytest.approx(
        found["sides"]["srs"]["us"]["value"] / direct["us"]["value"]
    )
    about: dict[str, Any] = {}
    record.begin(about, run.results, "lsh", [], {})
    about["parts"]["beyond"] = record.start_part() | found
    text = BENCHMARK.render(about, "somewhere.json")
    assert "### Beyond memory" in text
    assert "| SRS |" in text
    missing = {name: value for name, value in found.items() if name not in ("sides", "to", "rounds")}
    about["parts"]["beyond"] = record.start_part() | missing | {"candidates": None}
    assert "The ratio was not reached: S not reached" in BENCHMARK.render(about, "somewhere.json")


def test_a_side_ends_when_it_is_late_and_counts_what_it_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(queries: Any, **options: Any) -> Any:
        counters = {"table_reads": np.full(len(queries), 3), "block_reads": np.full(len(queries), 4)}
        return np.zeros((len(queries), options["k"]), np.int64), counters

    queries = np.zeros((60, 2))
    rows, costs = beyond_child.searched(search, queries, {"k": 5})
    assert (rows.shape, costs["reads"]) == ((60, 5), 7.0)
    monkeypatch.setattr(beyond_child, "MOST_SECONDS", -1.0)
    rows, costs = beyond_child.searched(search, queries, {"k": 5})
    assert (rows.shape, costs["reads"]) == ((beyond_child.CHUNK, 5), 7.0)
