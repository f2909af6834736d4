"""The kind of index that is recommended, and the advice of `explain` for every kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.cli import run

import indexmill
from indexmill.formats.errors import BudgetError
from indexmill.jobs.kinds.registry import KINDS
from indexmill.pipeline.bisection import least as least_of
from indexmill.pipeline.cost import recommend as rule
from indexmill.pipeline.cost.recommend import Advice, Cost, Recommendation, Task, join_breakeven
from indexmill.pipeline.kinds.graph.candidates import open_formats
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.spec import Parameters

GRAPH, LSH, IVF = "graph", "lsh", "ivf"
SIFT = Task(n_vectors=1_000_000, dim=128, dtype=np.dtype(np.uint8))


def recommend(task: Task) -> Recommendation:
    return rule.recommend(task, {name: kind.advice(task) for name, kind in KINDS.items()})


def cost(kind: str, task: Task) -> Cost:
    return KINDS[kind].advice(task).cost


def test_any_kind_that_needs_the_least_reads_is_recommended() -> None:
    cheap = Advice("rows", Cost(1, 1, 1), 0, "Rows suit.")
    rivals = {"flat": cheap, "graph": replace(cheap, name="a graph", place=1, because="A graph suits.")}
    assert rule.recommend(SIFT, rivals) == Recommendation("flat", ("Rows suit.",))
    rivals["flat"] = replace(cheap, refusal="too slow")
    assert rule.recommend(SIFT, rivals) == Recommendation("graph", ("A graph suits.", "Not rows: too slow."))


def test_single_queries_get_a_graph_and_are_told_from_when_a_join_pays() -> None:
    found = recommend(SIFT)
    assert found.kind == GRAPH
    assert f"{join_breakeven(SIFT):,} queries" in found.words[0]


def test_a_join_pays_once_a_graph_would_read_more_than_all_vectors() -> None:
    breakeven = join_breakeven(SIFT)
    assert recommend(replace(SIFT, at_once=breakeven)).kind == IVF
    assert recommend(replace(SIFT, at_once=breakeven - 1)).kind == GRAPH
    assert join_breakeven(replace(SIFT, n_vectors=10_000_000)) == pytest.approx(10 * breakeven, abs=10)


def test_near_neighbours_without_memory_for_a_graph_get_hash_tables() -> None:
    narrow = replace(SIFT, recall=0.3, memory=2_000_000)
    found = recommend(narrow)
    assert found.kind == LSH
    assert any(word.startswith("Not a graph: memory") for word in found.words)
    assert recommend(replace(narrow, recall=0.95)).kind is None


def test_a_limit_on_the_disk_refuses_hash_tables_and_names_what_they_take() -> None:
    short = replace(SIFT, recall=0.3, memory=2_000_000, disk=500_000_000)
    found = recommend(short)
    assert found.kind is None
    needs = f"{cost(LSH, short).disk:,.0f} bytes, more than 500,000,000"
    assert any(needs in word for word in found.words)


def test_queries_at_once_are_joined_where_no_other_kind_fits_memory() -> None:
    many = replace(SIFT, n_vectors=100_000_000, at_once=5)
    assert recommend(replace(many, memory=100_000_000)).kind == IVF
    assert recommend(replace(many, memory=50_000_000)).kind is None


@pytest.mark.parametrize(("dim", "dtype"), [(128, "uint8"), (768, "float32")])
def test_a_graph_is_refused_where_a_build_is(dim: int, dtype: str) -> None:
    task = Task(n_vectors=1_000_000, dim=dim, dtype=np.dtype(dtype))

    def fits(memory: int) -> bool:
        try:
            open_formats(GraphShape(10**6, dim, np.dtype(dtype), 0.0, Parameters(search_memory=str(memory))))
        except BudgetError:
            return False
        return True

    least = least_of(fits, 1, 10**9)
    assert recommend(replace(task, memory=least)).kind == GRAPH
    assert recommend(replace(task, memory=least - 1)).kind is None
    assert cost(GRAPH, replace(task, memory=least - 1)).memory == least
    assert cost(GRAPH, replace(task, memory=40_000_000)).memory <= 40_000_000


def test_estimates_are_near_what_indexes_of_sift1m_took() -> None:
    """Of the comparison of kinds in docs/benchmarks.md; a factor of 1.5 is what the rule needs."""
    for kind, disk in ((GRAPH, 311e6), (LSH, 2.16e9), (IVF, 130e6)):
        assert cost(kind, SIFT).disk == pytest.approx(disk, rel=0.5)


def test_explain_recommends_for_hash_tables_and_refuses_what_makes_no_sense(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    indexmill.build(rows, tmp_path / "ix", kind="lsh", memory="1GiB")
    told = run("explain", str(tmp_path / "ix"), "--at-once", "1000000").stdout
    assert "Inverted lists suit" in told
    found = json.loads(run("explain", str(tmp_path / "ix"), "--json").stdout)
    assert found["recommendation"]["kind"] == GRAPH
    assert "layout_can_help" not in found
    assert run("explain", str(tmp_path / "ix"), "--at-once", "0").exit_code == 2
    assert run("explain", str(tmp_path / "ix"), "--recall", "1.5").exit_code == 2


def test_explain_of_a_graph_says_how_pages_lie_and_what_suits(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    indexmill.build(rows, tmp_path / "ix", R=8, L=16, order="identity", memory="1GiB")
    found = json.loads(run("explain", str(tmp_path / "ix"), "--json", "--search-memory", "1KiB").stdout)
    assert found["vectors"] == 300
    assert found["recommendation"]["kind"] is None
    assert any("memory" in word for word in found["recommendation"]["words"])


def test_explain_says_which_hash_tables_keep_the_promise(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    indexmill.build(rows, tmp_path / "usual", kind="lsh", memory="1GiB")
    indexmill.build(
        rows, tmp_path / "sure", kind="lsh", memory="1GiB", gamma=1.0, success=0.632, first_radius=0.5
    )
    usual, sure = (run("explain", str(tmp_path / name)).stdout for name in ("usual", "sure"))
    assert "promise: none for a single query" in usual
    assert "gamma is 0.55" in usual
    assert "no nearer to any vector than the first radius, 0.5, a vector within 4 times" in sure
    promises = [
        json.loads(run("explain", str(tmp_path / name), "--json").stdout)["promise"]
        for name in ("usual", "sure")
    ]
    assert promises[0] is None
    assert promises[1]["within"] == 4
    assert promises[1]["probability"] == pytest.approx(0.132, abs=0.001)
