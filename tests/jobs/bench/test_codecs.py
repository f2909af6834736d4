"""The benchmark of codecs: its parts on few vectors, and its tables."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from tests.support.indexes.ivf import build_lists

from indexmill.jobs.bench.codecs import __main__ as codecs
from indexmill.jobs.bench.codecs import rotated as part_rotated
from indexmill.jobs.bench.codecs.__main__ import BENCHMARK, Case
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, K, facts, read_bin, write_bin, write_truth


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    def build(data: Dataset, index: Path, centroids: Path, case: Case) -> float:
        build_lists(
            index,
            read_bin(data.base),
            codec=case.codec,
            centroids=str(centroids),
            batch_vectors=None,
            **case.flags,
        )
        return 1.0

    def build_rotated(data: Dataset, folder: Path, size: int, rotation: str) -> tuple[Path, float]:
        how = {"pq_bytes": size, "pq_rotation": rotation, "keep_vectors": True, "batch_vectors": None}
        centroids = str(folder / "centroids.npy")
        index = folder / f"{rotation}-{size}"
        return build_lists(index, read_bin(data.base), codec="pq", centroids=centroids, **how), 1.0

    monkeypatch.setattr(part_rotated, "build", build_rotated)
    monkeypatch.setattr(part_rotated, "LISTS", {"embed768": 8})
    monkeypatch.setattr(part_rotated, "N_QUERIES", 30)
    monkeypatch.setattr(codecs, "build", build)
    monkeypatch.setattr(codecs, "LISTS", 4)
    monkeypatch.setattr(codecs, "N_QUERIES", 30)
    data = Dataset(tmp_path / "data")
    data.folder.mkdir()
    random = np.random.default_rng(1)
    for name, n in (("base", 1500), ("query", 60)):
        write_bin(data.folder / f"{name}.fbin", random.normal(size=(n, 64)).astype(np.float32))
    write_truth(data)
    (tmp_path / "out").mkdir()
    return Run("codecs", {"embed768": data}, tmp_path / "out", options=Namespace(rounds=1))


def test_every_part_is_measured_recorded_and_rendered(run: Run) -> None:
    about = {"started": "2026-01-02T03:04:05", "commit": "abc", "load_before": 0.1}
    record = json.loads(json.dumps({
        "data": [facts("embed768", run.sets["embed768"])],
        "machine": {"cpu": "a", "cores": 2, "memory_bytes": 1 << 30, "kernel": "b"},
        "versions": {"python": "3", "peer": []},
        "parts": {name: about | part(run) for name, part in BENCHMARK.parts.items()},
    }))  # fmt: skip
    rows = {
        (row["codec"], row.get("code_bits"), row["row_bytes"]): row
        for row in record["parts"]["codes"]["rows"]
    }
    assert list(rows) == [
        ("rabitq", 1, 16), ("rabitq", 2, 24), ("rabitq", 4, 40), ("rabitq", 8, 72),
        ("pq", None, 16), ("pq", None, 24), ("pq", None, 40), ("sq8", None, 64),
    ]  # fmt: skip
    recalls = [row["recall"] for row in rows.values()]
    assert recalls[:4] == sorted(recalls[:4])
    assert min(recalls[3], recalls[-1]) > 0.9
    assert all(row["candidates"] is None or K <= row["candidates"] <= 100 for row in rows.values())
    of_rotations = record["parts"]["rotated"]["rows"]
    assert [(row["row_bytes"], row["rotation"]) for row in of_rotations] == [
        (size, rotation) for size in (2, 4, 8, 16) for rotation in ("none", "opq")
    ]
    for row in of_rotations:
        assert row["nprobe"] in (1, 2, 4, 8)
        assert 0 < row["recall_of_codes"] < row["recall"] <= 1
        assert row["list_reads"] >= 1
        assert 0 < row["vector_reads"] <= (row["candidates"] or 1000)
    wanted = [row["candidates"] or 1001 for row in of_rotations if row["rotation"] == "none"]
    assert wanted == sorted(wanted, reverse=True), "more bytes need fewer candidates"
    for row in record["parts"]["bound"]["rows"]:
        assert row["recall"] > 0.9
        assert row["candidates"] >= K * row["recall"]
        assert row["measured"] >= K * row["recall"]
    text = BENCHMARK.render(record, "record.json")
    assert all(
        title in text
        for title in (
            "### Codecs at equal bytes",
            "### Rotated product codes",
            "### Candidates by the error bound",
        )
    )
    lines = [line for line in text.splitlines() if line.startswith("| embed768 | ")]
    assert len(lines) == 8
    assert {line.count("|") for line in lines} == {13}
    assert "| rabitq, 2 bits | 24 | 0." in text
    guide = BENCHMARK.render(record, "record.json", "guide")
    assert "| rabitq, 1 bit | 16 | 0." in guide
    assert guide.count("| embed768, ") == 8


def test_estimates_are_those_by_which_a_search_ranks(run: Run) -> None:
    codecs.codes(run)
    data = run.sets["embed768"]
    queries, (ids, distances) = codecs.asked(data)
    case = Case("rabitq", {"code_bits": 2})
    estimates, margins = codecs.estimated(codecs.index_of(run, case), queries)
    found = codecs.IvfIndex(codecs.index_of(run, case)).search(queries, K, nprobe=4)
    np.testing.assert_allclose(np.sort(estimates, axis=1)[:, :K], found.scores, rtol=1e-4)
    errors = np.abs(np.take_along_axis(estimates, ids.astype(np.int64), 1) - distances)
    assert 0.9 < np.mean(errors <= np.take_along_axis(margins, ids.astype(np.int64), 1)) < 1


def test_candidates_are_the_first_results_that_hold_a_share_of_the_nearest() -> None:
    truth = np.tile(np.arange(K), (2, 1))
    found = np.array([[*range(K), 50, 51], [50, *range(K), 51]])
    assert codecs.candidates(found, truth, 0.95) == K
    assert codecs.candidates(found, truth, 1.0) == K + 1
    assert codecs.candidates(found[:, 5:], truth, 0.95) is None
