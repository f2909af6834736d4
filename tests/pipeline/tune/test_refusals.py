"""Jobs, targets, limits and inputs that `tune` refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from tests.support.cli import run
from tests.support.indexes.append import points
from tests.support.tune import GRAPH

import indexmill
from indexmill.formats.errors import ConfigError


def test_a_limit_that_nothing_keeps_is_told_with_what_comes_nearest(base: Path) -> None:
    result = run("tune", base, *GRAPH, "--pq-bytes", "6", "--max-reads", "1")
    assert result.exit_code == 8
    assert (
        "page reads a query at recall@10 0.95: 220 queries from the input, which tuned nothing; 4,400"
        in result.stdout
    )
    assert "max-reads: no setting is predicted to read at most 1 pages" in result.stderr
    assert "Leave --pq-bytes open" in result.stderr


def test_a_recall_that_nothing_reaches_is_told_with_the_best_there_is(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexmill.pipeline.tune.curve.MOST_CANDIDATES", 12)
    result = run("tune", base, *GRAPH, "--pq-bytes", "1", "--target-recall", "0.99", "--json")
    assert result.exit_code == 8
    assert json.loads(result.stdout)["recommended"] is None
    assert "target-recall: no setting reaches recall@10 0.99 on 3,960 vectors" in result.stderr
    assert "the best is 0." in result.stderr


def test_memory_that_holds_no_codes_or_no_sample_is_refused(base: Path) -> None:
    result = run("tune", base, *GRAPH, "--search-memory", "1KiB")
    assert result.exit_code == 4
    assert "--search-memory: 1KiB holds no codes of 4,400 vectors; give at least" in result.stderr
    result = run("tune", base, *GRAPH, "--memory", "1MiB")
    assert result.exit_code == 4
    assert "memory:" in result.stderr


def test_other_kinds_and_wrong_words_are_refused(base: Path, tmp_path: Path) -> None:
    job = tmp_path / "lsh.toml"
    job.write_text(f'input = "{base}"\nout = "x"\n[parameters]\nkind = "lsh"\n')
    result = run("tune", job)
    assert result.exit_code == 2
    assert "tune is for graphs" in result.stderr
    assert run("tune", base, "--effort", "huge").exit_code == 2
    assert run("tune", tmp_path / "missing.npy").exit_code == 3
    np.save(tmp_path / "few.npy", points(300, 1))
    assert "need no tuning" in run("tune", tmp_path / "few.npy").stderr
    too_many = run("tune", base, *GRAPH, "-k", "400")
    assert too_many.exit_code == 3
    assert "use a smaller -k\n" in too_many.stderr  # more effort finds no more vectors
    for reads in (math.nan, math.inf, 0.5):
        with pytest.raises(ConfigError, match="max_reads: a search reads at least one page"):
            indexmill.tune(base, max_reads=reads)
