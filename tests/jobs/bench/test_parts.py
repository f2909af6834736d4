"""Parts of the benchmark with searches that need no disk: their choices and their tables."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.bench import N_QUERIES, FakeOurs, faked

from indexmill.jobs.bench.common import tables
from indexmill.jobs.bench.common.dataset import Dataset, write_bin
from indexmill.jobs.bench.programs.ours import Setting
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.jobs.bench.sift1m import (
    ablation,
    bandwidth,
    completion,
    cpu,
    device_limit,
    latency,
    page_reads,
    plots,
    qps,
)
from indexmill.jobs.bench.sift1m.__main__ import BENCHMARK, TARGETS

__all__ = ["faked"]
PARTS = {
    "reads": page_reads, "qps": qps, "latency": latency, "cpu": cpu, "ablation": ablation, "bandwidth": bandwidth,
    "completion": completion, "device": device_limit,
}  # fmt: skip


@pytest.fixture
def space(disk: Path) -> Workspace:
    folder = Path(tempfile.mkdtemp(dir=disk))  # a part looks at the drive that it lies on
    write_bin(folder / "query.u8bin", np.zeros((2 * N_QUERIES, 4), np.uint8))
    (folder / "indexmill-identity").mkdir()
    (folder / "indexmill-identity" / "graph.imx").touch()
    return Workspace(Dataset(folder), folder, folder / "sift1m.json")


def record_of(space: Workspace) -> dict[str, Any]:
    """Measure all parts and return them as a record that was written and read."""
    about = {"started": "2026-01-02T03:04:05", "commit": "abc", "load_before": 0.1}
    record = {
        "data": {"name": "fake", "n_vectors": 10, "dim": 4, "dtype": "uint8"},
        "machine": {"cpu": "a", "cores": 2, "memory_bytes": 1 << 30, "kernel": "b"},
        "versions": {"python": "3", "peer": ["diskannpy==0.7.0"]},
        "parts": {name: about | part.measure(space) for name, part in PARTS.items()},
    }
    found: dict[str, Any] = json.loads(json.dumps(record))
    return found


@pytest.mark.usefixtures("faked")
def test_every_part_is_measured_recorded_and_rendered(space: Workspace, tmp_path: Path) -> None:
    record = record_of(space)
    text = BENCHMARK.render(record, "record.json")
    assert "not reached" not in text.split("### Completion")[0]
    for target in TARGETS:
        if tables.part_of(target.figure) in PARTS:
            assert target.what in text
            assert target.measured(record["parts"]) is not None
    plots.write_all(record, tmp_path / "images")
    pictures = {path.name for path in (tmp_path / "images").iterdir()}
    assert pictures == {
        f"{name}.{kind}" for name in ("sift1m", "completion", "read-times") for kind in ("png", "svg")
    }
    assert '"queries": {"hits"' not in json.dumps(record), "what each query cost stays out of the record"


@pytest.mark.usefixtures("faked")
def test_recalls_that_were_not_reached_are_told_and_stop_nothing(
    space: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeOurs, "hardness", 0.1)  # the shortest list finds everything
    record = record_of(space)
    text = BENCHMARK.render(record, "record.json")
    assert "| queries a second at 0.95, indexmill / DiskANN | not reached | >= 2.5 | x | **no** |" in text
    plots.write_all(record, tmp_path / "images")


@pytest.mark.usefixtures("faked")
def test_the_setting_is_the_fastest_on_the_tuning_queries(space: Workspace) -> None:
    found = qps.measure(space)
    assert (found["setting"]["policy"], found["setting"]["entry"]) == ("pipeline", "navigation")
    assert found["ratio"]["0.95"]["value"] >= 2
    space.results.write_text(json.dumps({"parts": {"qps": found}}))
    assert qps.chosen_setting(space) == Setting(**found["setting"])


@pytest.mark.usefixtures("faked")
def test_components_are_compared_with_the_plain_search_at_the_same_recall(space: Workspace) -> None:
    rows = ablation.measure(space)["rows"]
    assert rows["-"]["0.98"]["ratio"]["value"] == 1
    # The fake's pages: 1.3 times from the medoid, 1.5 times in identity order, 2 to 1.2 from beam to page search.
    assert rows["ABC"]["0.98"]["ratio"]["value"] == pytest.approx(1.3 * 1.5 * 2 / 1.2)
    assert rows["A"]["0.90"]["ratio"]["value"] == pytest.approx(1.3)
