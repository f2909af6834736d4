"""The benchmark of sets: its parts on few vectors, and its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from indexmill.jobs.bench.common import intervals, record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, write_bin, write_truth
from indexmill.jobs.bench.sets import __main__ as sets
from indexmill.jobs.bench.sets.__main__ import BENCHMARK, PARTS
from indexmill.pipeline.sets.margin import SHARE
from indexmill.reader import set as searches

N, N_QUERIES, DIM = 3000, 60, 8


def test_all_parts_are_measured_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Dataset(tmp_path)
    random = np.random.default_rng(6)
    for name, n in (("base", N), ("query", N_QUERIES)):
        rows = random.standard_normal((n, DIM))
        write_bin(
            tmp_path / f"{name}.fbin", (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        )
    write_truth(data)

    def build(data: Dataset, index: Path, parts: int | None, flags: dict[str, Any]) -> None:
        small: dict[str, Any] = {"R": 12, "L": 24, "pq_bytes": 8}
        if "kind" in flags:
            small = {"kind": "ivf", "lists": 32 if parts is None else 8}
        indexmill.build(data.base, index, parts=parts, metric=flags.get("metric", "l2"), **small)

    monkeypatch.setattr(intervals, "DRAWS", 8)
    monkeypatch.setattr(sets, "build", build)
    monkeypatch.setattr(sets, "PROBES", (1, 2, 4, 6, 8))
    run = Run("sets", dict.fromkeys(sets.SETS, data), tmp_path)
    assert BENCHMARK.run(run) == []
    found = record.load(run.results)
    for name in sets.SETS:
        told = found["parts"][name]
        assert [row["parts"] for row in told["parts"]] == list(PARTS)
        chosen = [row["margin"] for row in told["parts"]]
        assert all(row["share"] >= SHARE for row in told["parts"])
        assert tuple(row["margin"] for row in told["margins"]) == sets.MARGINS[name]
        margins = (chosen[1], *sets.MARGINS[name])
        searched = [row["rows"][0]["parts"] for row in (told["whole_lists"], *told["margins"])]
        assert np.argsort(searched).tolist() == np.argsort(margins).tolist()
        recalls = [row["by_default"]["recall"] for row in (told["one"], *told["parts"])]
        assert min(recalls) >= 0.97 * recalls[0] > 0.9
        shortened, whole = (row["rows"][-1] for row in (told["parts"][1], told["whole_lists"]))
        assert shortened["pages_read"] / shortened["L"] < whole["pages_read"] / whole["L"]
    told = found["parts"]["lists"]
    assert told["parts"]["highest_recall"] > 0.95
    fewer, equal = (row["rows"][-1] for row in (told["parts"], told["whole_lists"]))
    assert fewer["bytes_read"] / fewer["L"] < equal["bytes_read"] / equal["L"]
    assert searches.QUARTERS == (4, 2, 1)
    text = BENCHMARK.render(found, "r.json")
    assert text.count("| 4 parts, whole lists |") == 2
    assert text.count("| 8 parts |") == 2
    assert text.count(", chosen |") == 2 * len(PARTS) + 1
    assert BENCHMARK.render(found, "r.json", "guide").count("| | 4 parts |") == 2
