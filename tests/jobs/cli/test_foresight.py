"""The plan that a large build on a terminal begins with."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from indexmill.jobs.cli import foresight
from indexmill.jobs.console.progress import Lines
from indexmill.jobs.console.whole import WholeBuild
from indexmill.jobs.jobfile import make_spec
from indexmill.pipeline.spec import BuildSpec


@pytest.fixture
def spec(tmp_path: Path) -> BuildSpec:
    rows = np.random.default_rng(3).normal(size=(1000, 8)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    kind = {"kind": "ivf", "lists": 8}
    return make_spec(
        {"input": [str(tmp_path / "rows.npy")], "out": str(tmp_path / "out"), "parameters": kind}
    )


def line_after(spec: BuildSpec) -> str:
    """The line of a build that was foreseen, in its first stage."""
    out, bar = io.StringIO(), WholeBuild(Console(file=io.StringIO()))
    foresight.foresee(spec, bar)
    bar.start("ingest", 1, "vectors")
    Console(file=out, width=160).print(bar.line())
    return out.getvalue()


def test_a_large_build_has_a_plan(spec: BuildSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexmill.pipeline.plan.PLANNED_FROM", 8000)
    line = line_after(spec)
    assert "ingest (1 of 8)" in line  # as many as an index of inverted lists has
    assert "left" in line
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npy"]


@pytest.mark.parametrize("memory", [1, 8 << 30])
def test_the_planning_is_no_stage_of_the_build(
    memory: int, spec: BuildSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexmill.pipeline.plan.PLANNED_FROM", 8000)
    bar = WholeBuild(Console(file=io.StringIO()))
    foresight.foresee(spec.model_copy(update={"memory": memory}), bar)
    bar.start("ingest", 1, "vectors")
    bar.finish()
    assert bar.summary().startswith("1 stage in ")


def test_a_small_build_begins_at_once(spec: BuildSpec) -> None:
    assert "left" not in line_after(spec)


def test_a_job_that_cannot_be_planned_is_left_to_the_build(
    spec: BuildSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexmill.pipeline.plan.PLANNED_FROM", 8000)
    assert "left" not in line_after(spec.model_copy(update={"memory": 1}))
    assert "left" not in line_after(spec.model_copy(update={"input": ["none.npy"]}))


def test_without_a_terminal_nothing_is_planned(
    spec: BuildSpec, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("indexmill.pipeline.plan.PLANNED_FROM", 0)
    foresight.foresee(spec, Lines())
    assert capsys.readouterr().err == ""
