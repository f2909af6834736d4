"""Progress: a line for each stage in a log, bars on a terminal, never on stdout."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from indexmill.jobs.console.progress import Bar, Lines, stderr_progress


def test_without_a_terminal_each_finished_stage_is_one_line_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with stderr_progress() as progress:
        assert isinstance(progress, Lines)
        progress.start("ingest", 2000, "vectors")
        progress.advance(1500)
        progress.advance(500)
        progress.finish("0.1 s")
        progress.start("build", 1, "tasks")
        progress.finish("reused")
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.split() for line in said.err.splitlines()] == [
        ["ingest", "2,000", "vectors", "0.1", "s"],
        ["build", "reused"],
    ]


def test_on_a_terminal_a_bar_shows_rate_and_leaves_a_line() -> None:
    out = io.StringIO()
    with Bar(Console(file=out, force_terminal=True, width=100)) as bar:
        bar.start("ingest", 100, "vectors")
        bar.advance(40)
        bar.bars.refresh()
        bar.advance(60)
        bar.finish()
    said = out.getvalue()
    assert "40 / 100 vectors" in said
    assert "/s" in said
    assert "100 vectors" in said.splitlines()[-2] + said.splitlines()[-1]
