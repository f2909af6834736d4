"""The benchmark of a cluster with made-up plans and builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.formats.device import read_profile
from indexmill.jobs.bench.cluster import __main__ as bench
from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, write_bin

MIB = 1 << 20


@pytest.fixture
def run(tmp_path: Path) -> Run:
    data = Dataset(tmp_path / "set")
    data.folder.mkdir()
    write_bin(data.folder / "base.u8bin", np.ones((600, 4), np.uint8))
    return Run("cluster", {"sift1m": data}, tmp_path, 600)


def fake_plan(space: Any, nodes: int) -> dict[str, Any]:
    memory = 3072 * MIB // nodes
    return {
        "seconds": 90.0 / nodes,
        "memory_bytes": memory,
        "read_bytes": 10**9,
        "cuts": [{"memory_bytes": memory, "pieces": 3 * nodes - 2, "seconds": 90.0 / nodes}],
        "stages": {"pack": {"seconds": 3.0}, "publish": {"seconds": 1.0}},
    }


def fake_build(space: Any, nodes: int, memory: int, meanwhile: Any = None) -> dict[str, Any]:
    lost = 20.0 * (meanwhile is not None)
    return {
        "wall_s": 120.0 / nodes + lost, "net_s": 100.0 / nodes + lost, "server_cpu_s": 12.0, "ray_cpu_s": 8.0,
        "requests": 400, "received_bytes": 7 * 10**6, "sent_bytes": 9 * 10**6, "memory_bytes": memory,
        "stage_s": {"pack": 4.0}, "build_id": "same" if not lost else "other",
    }  # fmt: skip


def test_figures_are_those_of_one_node_beside_two(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.Space, "plan", fake_plan)
    monkeypatch.setattr(bench.Space, "build", fake_build)
    monkeypatch.setattr(bench.Space, "compile", lambda space, plan, nodes: None)
    assert bench.BENCHMARK.run(run, ["builds", "lost"]) == []
    found = record.load(run.results)["parts"]
    assert found["builds"]["speedup"] == pytest.approx(2)
    assert found["builds"]["worst_off"] == pytest.approx(0.1)
    assert found["builds"]["same_bytes"]
    assert (found["lost"]["lost_at_s"], found["lost"]["more_s"]) == (30, 20)
    assert found["lost"]["ratio"] == pytest.approx(1.4)
    assert not found["lost"]["same_bytes"]
    text = bench.BENCHMARK.render(record.load(run.results), "record.json")
    assert "| 2 | 1536 MiB | 4 | 45.0 | 50.0 | -10% | 60.0 | 12.0 | 8.0 | 400 | 9 | 7 |" in text
    assert "| 1 | 3.0 / 4.0 | 1.0 /  |" in text
    assert "**Not the same bytes.**" in text
    for target in bench.TARGETS:
        assert target.what in text


def test_the_link_is_measured_and_kept_as_a_profile(run: Run) -> None:
    space = bench.Space(run)
    found = bench.storage(space)
    model = read_profile(space.profile).model
    assert model.mb_per_s == pytest.approx(found["mb_per_s"])
    assert model.latency_us[0][1] == pytest.approx(1e3 * found["request_ms"])
