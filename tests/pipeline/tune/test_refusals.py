"""Jobs, targets, limits and inputs that `tune` refuses."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run
from tests.support.indexes.append import points
from tests.support.tune import GRAPH

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.jobs.api.tuning import job_text
from indexmill.pipeline.kinds.common.recall import Recall
from indexmill.pipeline.kinds.graph.candidates import LEAST_VECTORS
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.pipeline.tune.choice import Cost
from indexmill.pipeline.tune.graphs import run as run_module
from indexmill.pipeline.tune.graphs.report import GraphRow, GraphsReport
from indexmill.pipeline.tune.graphs.space import Candidate, CodeFormat, GraphCandidate
from indexmill.pipeline.tune.growth import Growth, Outlook
from indexmill.pipeline.tune.report import Reached
from indexmill.pipeline.tune.request import Target, TuneRequest


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
    monkeypatch.setattr("indexmill.pipeline.tune.graphs.searches.MOST_CANDIDATES", 12)
    result = run("tune", base, *GRAPH, "--pq-bytes", "1", "--target-recall", "0.99", "--json")
    assert result.exit_code == 8
    assert json.loads(result.stdout)["recommended"] is None
    assert "target-recall: no setting reaches recall@10 0.99 on 3,960 vectors" in result.stderr
    assert "the best is 0." in result.stderr
    assert (
        "nodes as in the input. Leave -R, -L and --alpha open, leave --pq-bytes open, or accept"
        in result.stderr
    )
    assert "--cache" not in result.stderr  # of no use to the recall


def test_memory_that_holds_no_codes_or_no_sample_is_refused(base: Path) -> None:
    result = run("tune", base, *GRAPH, "--search-memory", "1KiB")
    assert result.exit_code == 4
    assert "--search-memory: 1KiB holds no codes of 4,400 vectors; give at least" in result.stderr
    result = run("tune", base, *GRAPH, "--memory", "1MiB")
    assert result.exit_code == 4
    assert "memory:" in result.stderr


def test_other_kinds_and_wrong_words_are_refused(base: Path, tmp_path: Path) -> None:
    job = tmp_path / "ivf.toml"
    job.write_text(f'input = "{base}"\nout = "x"\n[parameters]\nkind = "ivf"\n')
    result = run("tune", job)
    assert result.exit_code == 2
    assert "tune is for graph and lsh, got ivf" in result.stderr
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
    for kind in ("graph", "lsh"):
        with pytest.raises(ConfigError, match="parts: one index is tuned; leave parts out"):
            indexmill.tune(base, kind=kind, parts=2)


def report(recall: float, stated: dict[str, Any], **settled: Any) -> GraphsReport:
    """A report in which nothing was good enough."""
    spec = BuildSpec(input=["x.npy"], out="x.index", parameters=Parameters(**stated))
    p = spec.parameters.model_copy(update=settled)
    spec = spec.model_copy(update={"parameters": p})
    request = TuneRequest(spec=spec, target=Target("recall", recall), max_reads=3)
    candidate = Candidate(GraphCandidate(63, 148, 1.2), CodeFormat(64, "opq"))
    reads = math.inf if recall > 0.99 else 20.0
    row = GraphRow(
        candidate=candidate,
        cost=Cost(reads, 1, 1, (1, 1, 1, 1)),
        growth=Growth((reads,), (None, None), Outlook(reads, np.array([reads]))),
        reached=Reached(list_size=0, best=0.99, recall=Recall(0.99, 0.98, 1.0)),
        list_size=0,
    )
    return GraphsReport(
        request=request,
        n_vectors=10_000,
        n_queries=200,
        rows=(row,),
        stated=frozenset(Parameters(**stated).model_fields_set),
        sizes=(4_000,),
        job=None,
        left_out=(),
    )


def test_what_helps_depends_on_what_is_missed_and_on_what_the_job_stated() -> None:
    words = str(report(0.999, {}, node_dtype="sq8").failure())
    assert "codes of 64 bytes (opq), nodes sq8. Keep exact vectors (--keep-vectors), or accept" in words
    words = str(report(0.999, {"node_dtype": "sq16", "R": 63}).failure())
    assert (
        "leave --node-dtype open, leave -R, -L and --alpha open, or accept a lower --target-recall" in words
    )
    assert str(report(0.999, {}, node_dtype="same").failure()).endswith(". Accept a lower --target-recall")
    words = str(report(0.95, {}, node_dtype="same").failure())
    assert words.endswith("Keep hot pages in memory (`score --cache`), or allow more reads")
    words = str(report(0.95, {"node_dtype": "same", "search_memory": "9/vector"}).failure())
    assert "Raise --search-memory for longer codes, store smaller nodes" in words


@pytest.mark.parametrize("order", [None, "agglomerative", "identity"])
def test_a_stated_order_is_in_the_job_even_if_it_is_the_default(order: str | None) -> None:
    """Without one a build may take another, where the default does not suit its memory."""
    asked = report(0.9, {"search_memory": None} | ({} if order is None else {"order": order}))
    job = tomllib.loads(job_text(replace(asked, job=asked.request.spec)))
    assert job["parameters"].get("order") == order
    assert Parameters(**job["parameters"]).order == (order or "agglomerative")
    assert "search_memory" not in job["parameters"]


def test_refusals_come_before_formats_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "base.npy", points(LEAST_VECTORS, 1))
    monkeypatch.setattr(run_module, "format_of_each_size", lambda *_: pytest.fail("tried formats"))
    assert run("tune", tmp_path / "base.npy", "-k", "4000").exit_code == 3
    np.save(tmp_path / "few.npy", points(20, 1))
    few = run("tune", tmp_path / "base.npy", "--queries", tmp_path / "few.npy")
    assert "queries: 20; expected at least 200" in few.stderr

    def full(place: Path, need: int, what: str) -> None:
        raise BudgetError(f"no room for the {what}")

    monkeypatch.setattr(run_module, "check_free", full)
    assert "no room for the comparison of formats" in run("tune", tmp_path / "base.npy").stderr
