"""A kind of index that is named in three tables is in every command, without an edit of another file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.support import new_kind

ROOT = Path(__file__).parents[3]


Run = Callable[..., SimpleNamespace]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run the command line with kind `flat` in a process of its own: tables are read when modules are loaded."""
    command = [sys.executable, "-m", new_kind.__name__]
    wide = {**os.environ, "COLUMNS": "110"}
    with subprocess.Popen(
        command, cwd=ROOT, env=wide, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def run(*arguments: str | Path) -> SimpleNamespace:
            print(json.dumps([*map(str, arguments)]), file=process.stdin, flush=True)
            return SimpleNamespace(**json.loads(process.stdout.readline()))

        yield run


def test_help_of_build_has_a_panel_with_the_parameters_of_the_kind(run: Run) -> None:
    shown = run("build", "--help").stdout
    assert "graph, lsh, ivf or flat" in " ".join(shown.replace("│", " ").split())
    assert "--stride" in shown.split(new_kind.PANEL)[1].split("╰")[0]
    assert "--hurry" in run("search", "--help").stdout.split(new_kind.PANEL)[1].split("╰")[0]


def test_a_job_of_the_kind_is_checked_and_planned(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((10, 3), np.float32))
    job = ("--kind", "flat", "--input", tmp_path / "rows.npy", "--out", tmp_path / "index")
    plan = json.loads(run("plan", *job, "--stride", "5", "--json").stdout)
    assert plan["flat"] == {"strides": 2}
    assert plan["stages"]["ingest"]["seconds"] == 7.0
    assert "strides      3" in run("plan", *job).stdout
    assert "--stride: input should be greater than or equal to 1" in run("plan", *job, "--stride", "0").stderr
    assert "order: belongs to kind graph, and the kind is flat" in run("plan", *job, "--order", "star").stderr


def test_an_index_of_the_kind_is_inspected_and_refused_where_it_does_not_fit(
    run: Run, tmp_path: Path
) -> None:
    run("write", tmp_path / "index")
    shown = run("inspect", tmp_path / "index").stdout
    assert "in strides of 4" in shown
    assert "ids.imx: IDMP" in shown
    assert "Rows suit (--kind flat)." in run("explain", tmp_path / "index").stdout
    refused = run("export", tmp_path / "index", "--to", "diskann", "--out", tmp_path / "out").stderr
    assert "diskann holds indexes of kind graph, but" in refused
    assert "is of kind flat" in refused
