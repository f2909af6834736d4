"""Disk space of samples and trials."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import run
from tests.support.indexes.append import points
from tests.support.tune import GRAPH, N

import indexmill
from indexmill.pipeline.tune import sample, scratch
from indexmill.pipeline.tune.curve import Curve
from indexmill.pipeline.tune.effort import EFFORTS, Effort
from indexmill.pipeline.tune.graphs.searches import measure_curve


def held_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def test_every_degree_and_longer_list_goes_through_the_halving_in_the_scratch_space_that_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexmill.pipeline.tune.graphs.space.DEGREES", (6, 32))
    monkeypatch.setattr("indexmill.pipeline.tune.graphs.space.ALPHAS", (1.2,))
    monkeypatch.setitem(EFFORTS, "low", Effort(3_300, 200))
    monkeypatch.setattr("indexmill.pipeline.tune.graphs.run.LAST_DEGREES", 1)
    looked_for, held = list[int](), list[int]()
    monkeypatch.setattr(scratch, "check_free", lambda _, need, *__: looked_for.append(need))

    def measure(*arguments: Any) -> Curve:
        held.append(held_bytes(tmp_path))  # when most is there
        return measure_curve(*arguments)

    monkeypatch.setattr("indexmill.pipeline.tune.graphs.trials.measure_curve", measure)
    report = indexmill.tune(
        points(N, 1), target_recall=0.9, effort="low", pq_bytes=6, entries=16, work=tmp_path
    )
    assert report.sizes == (825, 3_300)
    assert {row.candidate.graph.max_degree for row in report.rows} <= {6, 32}
    assert len(report.rows) == 1
    assert report.parameters is not None
    assert report.parameters["pq_bytes"] == 6
    assert report.parameters["entries"] == 16
    assert report.parameters["max_degree"] == report.recommended.candidate.graph.max_degree
    assert max(held) <= looked_for[0] < 2 * max(held) + (2 << 20)


def test_no_room_for_the_samples_is_told_before_they_are_drawn(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.disk_usage

    def full(path: Path) -> Any:
        return real(path)._replace(free=4096) if path == tmp_path else real(path)

    monkeypatch.setattr("indexmill.pipeline.mill.disk_space.shutil.disk_usage", full)
    monkeypatch.setattr(sample, "draw", lambda *_: pytest.fail("drew a sample"))
    result = run("tune", base, *GRAPH, "--work", tmp_path / "scratch")
    assert result.exit_code == 4
    assert "the tuning needs" in result.stderr
    assert "4,096 are free; make room, or name a --work directory elsewhere" in result.stderr
    assert list(tmp_path.iterdir()) == []
