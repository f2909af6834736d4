"""`tune` for hash tables: what a build and the searches of an index take for an overall ratio or a recall."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run, run_json
from tests.support.indexes.append import points
from tests.support.indexes.lsh import build_lsh

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, InputError
from indexmill.pipeline.kinds.common.ratio import query_ratios
from indexmill.pipeline.tune.choice import Cost
from indexmill.pipeline.tune.request import SearchesRequest, Target
from indexmill.pipeline.tune.tables.index import search_rows
from indexmill.pipeline.tune.tables.report import SearchesReport
from indexmill.pipeline.tune.tables.run import candidates_of, kept_costs
from indexmill.pipeline.tune.tables.searches import Choices, TableCurve

#: Width and scale of the functions, so that a run takes seconds: probes and candidates are tuned.
FIXED = ("--kind", "lsh", "--gamma", "0.5", "-w", "4")
ASKED = ("--target-ratio", "1.05", "-k", "5")
TIMES = ("build_seconds", "build_memory_bytes")


@pytest.fixture(scope="module")
def job(base: Path) -> Path:
    return base.parent / "lsh.toml"


@pytest.fixture(scope="module")
def found(base: Path, job: Path) -> Any:
    return run_json("tune", base, *FIXED, *ASKED, "--out", job)


@pytest.fixture(scope="module")
def index(base: Path) -> Path:
    out = base.parent / "index"
    build_lsh(out, np.load(base), gamma=0.5, workers=1)
    return out


def mean_ratio(vectors: np.ndarray, queries: np.ndarray, ids: np.ndarray) -> float:
    """Overall ratio of results, by all distances."""
    distances = np.sqrt(((vectors[None] - queries[:, None]) ** 2).sum(axis=2))
    truth = np.sort(distances, axis=1)[:, : ids.shape[1]]
    return float(np.nanmean(query_ratios(np.take_along_axis(distances, ids, axis=1), truth)))


def taken(result: Any) -> tuple[float, float]:
    """Reads and distances of a query."""
    counters = result.counters
    return (counters["table_reads"] + counters["block_reads"]).mean(), counters["distances"].mean()


def without_times(report: Any) -> Any:
    rows = [{name: row[name] for name in row if name not in TIMES} for row in report["settings"]]
    return {**report, "settings": rows}


def test_tune_recommends_probes_and_candidates_for_a_ratio(found: Any, job: Path) -> None:
    assert (found["target_ratio"], found["target_recall"], found["k"]) == (1.05, None, 5)
    assert found["samples"] == [990, 3960]
    rows = found["settings"]
    assert {(row["gamma"], row["width"]) for row in rows} == {(0.5, 4.0)}
    assert {row["probes"] for row in rows} == {0, 4, 16}
    (chosen,) = [row for row in rows if row["recommended"]]
    assert chosen["on_frontier"]
    assert chosen["build_seconds"] > 0
    assert chosen["ratio"] == pytest.approx(1.05, abs=0.01)
    assert chosen["work_low"] <= chosen["work"] <= chosen["work_high"]
    assert len({row["n_tables"] for row in rows}) > 1
    said = found["recommended"]
    assert (said["kind"], said["probes"], said["candidates"]) == (
        "lsh",
        chosen["probes"],
        chosen["candidates"],
    )
    assert tomllib.loads(job.read_text())["parameters"] == said


def test_equal_runs_find_the_same_whatever_the_workers(found: Any, base: Path, tmp_path: Path) -> None:
    again = run_json("tune", base, *FIXED, *ASKED, "--workers", "1", "--work", tmp_path / "work")
    assert without_times(again) == without_times(found)
    assert list((tmp_path / "work").iterdir()) == []


def test_the_recommended_job_builds_an_index_with_the_ratio(
    found: Any, base: Path, job: Path, tmp_path: Path
) -> None:
    assert run("build", job, "--out", tmp_path / "index").exit_code == 0
    opened, queries = indexmill.open(tmp_path / "index"), points(400, 77)
    result = opened.search(queries, 5)
    assert mean_ratio(np.load(base), queries, result.vector_ids) == pytest.approx(1.05, abs=0.006)
    chosen = next(row for row in found["settings"] if row["recommended"])
    assert taken(result) == pytest.approx((chosen["reads"], chosen["distances"]), rel=0.1)


def test_gamma_and_width_are_tried_where_they_are_open(base: Path) -> None:
    report = indexmill.tune(
        base, kind="lsh", target_recall=0.5, probes=0, effort="low", workers=2, metric="l2"
    )
    assert len(report.rows) == 9  # of twelve on the smallest sample
    assert len({(row.candidate.gamma, row.candidate.width) for row in report.rows}) == 9
    assert report.recommended.reached.recall.mean == pytest.approx(0.5, abs=0.06)
    assert report.parameters["gamma"] == report.recommended.candidate.gamma
    costs = [row.cost for row in report.rows if row.on_frontier]
    assert len({cost.index_bytes for cost in costs}) == len(costs)


def test_of_the_settings_the_best_and_those_that_nothing_beats_are_kept() -> None:
    costs = [Cost(reads, 1, size, (size, 1)) for reads, size in ((30, 1), (20, 2), (25, 3), (10, 4), (11, 4))]
    assert kept_costs(costs, 3, None) == [0, 1, 3]
    assert kept_costs(costs, 4, None) == [0, 1, 3, 4]
    assert kept_costs(costs, 2, 25) == [1, 3]
    assert kept_costs(costs, 9, 5) == [0, 1, 2, 3, 4]


def test_candidates_for_all_vectors_are_no_fewer_than_for_a_sample() -> None:
    sizes = [6_250, 25_000, 100_000]
    assert candidates_of(sizes, [40.0, 30, 24.5], 10, 100_000_000) == 25
    assert candidates_of(sizes, [20.0, 25, 30], 10, 100_000) == 30
    assert candidates_of(sizes, [20.0, 25, 30], 10, 1_600_000) == 43
    assert candidates_of(sizes, [20.0, 25, np.inf], 10, 1_600_000) == 0


def test_a_target_knows_which_way_is_better() -> None:
    ratio, recall = Target("ratio", 1.2), Target("recall", 0.8)
    assert ratio.quality(1.1) > ratio.least > ratio.quality(1.3)
    assert ratio.beyond == pytest.approx(-1.15)
    assert recall.beyond == pytest.approx(0.85)
    assert Choices(0, 2.0, 7).sizes(10, 4000) == [7]
    sizes = Choices(0, 2.0).sizes(10, 4000)
    assert (sizes[0], sizes[-1]) == (10, 1000)
    assert Choices(0, 2.0).sizes(10, 20) == [10]


def curve_of(tuning: float, reporting: float) -> TableCurve:
    """Searches that reach recall 0.75 by 20 candidates, in so many reads of each half of the queries."""
    q = 200
    recalls = np.tile(np.array([0.5, 0.75, 1.0], np.float32), (q, 1))
    reads = np.repeat(np.array([tuning, reporting], np.float32), q // 2)[:, None] * [1, 2, 3]
    return TableCurve(np.array([10, 20, 30]), recalls, recalls, reads.astype(np.float32), 0 * recalls, 128)


def test_probes_are_chosen_and_limited_by_the_half_of_the_queries_that_is_not_reported() -> None:
    curves = {0: curve_of(5, 8), 4: curve_of(7, 6)}
    target = Target("recall", 0.75)
    rows = search_rows(curves, target, None)
    assert [row.recommended for row in rows] == [True, False]
    assert [row.reads for row in rows] == [10, 14]
    assert [row.reached.work for row in rows] == [16, 12]
    assert [row.reached.interval for row in rows] == [(16, 16), (12, 12)]
    assert [row.recommended for row in search_rows(curves, target, 11)] == [True, False]
    request = SearchesRequest(target=target, max_reads=9, path="index", memory=1 << 30, workers=1)
    rows = search_rows(curves, target, 9)
    none = SearchesReport(request=request, n_vectors=1000, n_queries=200, rows=rows)
    assert "the least is 10.0 with 0 probes and S = 20" in str(none.failure())


def test_searches_of_an_index_get_the_probes_and_candidates_with_the_least_work(
    index: Path, base: Path
) -> None:
    found = run_json("tune", index, "--target-ratio", "1.03", "-k", "5")
    assert found["queries_from"] == "the index"
    rows = {row["probes"]: row for row in found["settings"]}
    assert {0, 1, 2, 4, 8, 16, 32} == set(rows)
    (chosen,) = [row for row in rows.values() if row["recommended"]]
    tuned = [row["work_tuning"] for row in rows.values() if row["work_tuning"] is not None]
    assert chosen["work_tuning"] == min(tuned)
    for row in rows.values():
        assert row["work"] is None or row["work_low"] <= row["work"] <= row["work_high"]
    assert found["recommended"] == {"candidates": chosen["candidates"], "probes": chosen["probes"]}
    opened, queries = indexmill.open(index), points(400, 77)
    result = opened.search(queries, 5, **found["recommended"])
    assert mean_ratio(np.load(base), queries, result.vector_ids) == pytest.approx(1.03, abs=0.006)
    assert taken(result) == pytest.approx((chosen["reads"], chosen["distances"]), rel=0.1)
    assert found == run_json("tune", index, "--target-ratio", "1.03", "-k", "5", "--workers", "1")


def test_queries_of_the_caller_and_a_limit_of_work_are_kept(index: Path) -> None:
    found = indexmill.tune(index, target_recall=0.6, queries=points(300, 5), workers=1)
    assert found.queries_from == "the caller"
    assert found.n_queries == 300
    assert found.recommended.reached.recall.mean == pytest.approx(0.6, abs=0.08)
    least = min(row.reads for row in found.rows)
    none = indexmill.tune(index, target_recall=0.6, queries=points(300, 5), workers=1, max_reads=least - 1)
    assert none.parameters is None
    assert "max-reads: no setting takes the work of at most" in none.failure()


def test_deleted_vectors_are_neither_asked_for_nor_neighbours(
    index: Path, base: Path, tmp_path: Path
) -> None:
    out = tmp_path / "index"
    left = np.load(base)[1000:]
    build_lsh(out, np.load(base), gamma=0.5, workers=1)
    indexmill.delete(out, np.arange(1000))
    found = indexmill.tune(out, target_ratio=1.03, k=5)
    assert found.n_vectors == len(left)
    queries = points(400, 77)
    result = indexmill.open(out).search(queries, 5, **found.parameters)
    assert mean_ratio(left, queries, result.vector_ids - 1000) == pytest.approx(1.03, abs=0.006)


def test_a_ratio_that_no_candidates_reach_is_told_with_the_best(base: Path, tmp_path: Path) -> None:
    build_lsh(tmp_path / "index", np.load(base), n_tables=1, n_functions=12, workers=1)
    result = run("tune", tmp_path / "index", "--target-recall", "0.9", "--effort", "low")
    assert result.exit_code == 8
    assert "no setting reaches recall@10 0.9 of this index" in result.stderr
    assert "by measuring up to a quarter of the vectors in a radius; the best is" in result.stderr
    assert "accept a lower --target-recall" in result.stderr
    result = run(
        "tune", base, *FIXED, "-m", "30", "--n-tables", "1", "--probes", "0", "--target-ratio", "1.0005",
        "-S", "50",
    )  # fmt: skip
    assert result.exit_code == 8
    assert "on 3,960 vectors with -S 50; the best is" in result.stderr
    assert "leave -m open" in result.stderr
    assert "leave -S open" in result.stderr
    assert "accept a higher --target-ratio" in result.stderr


def test_a_parameter_that_does_not_suit_a_sample_is_told_with_the_sample(base: Path) -> None:
    result = run("tune", base, *FIXED, *ASKED, "--probes", "0", "--n-radii", "6", "--effort", "low")
    assert result.exit_code == 2
    assert "--n-radii: 6 radii" in result.stderr
    assert "(in a sample of 990 vectors; leave --n-radii open to tune)" in result.stderr


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"target_ratio": 1.05, "target_recall": 0.9}, "target_ratio: searches are tuned for one target"),
        ({"target_ratio": 1.0}, "target_ratio: expected more than 1"),
        ({"metric": "ip"}, "there is no ratio of distances under inner product"),
    ],
)
def test_targets_that_make_no_sense_are_refused(base: Path, keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        indexmill.tune(base, kind="lsh", **keywords)


def test_what_does_not_go_with_a_kind_or_an_index_is_refused(
    base: Path, index: Path, graph_index: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="target_ratio: for hash tables"):
        indexmill.tune(base, target_ratio=1.1)
    with pytest.raises(ConfigError, match="tune is for graph and lsh, got ivf"):
        indexmill.tune(base, kind="ivf")
    with pytest.raises(ConfigError, match="gamma: for a build"):
        indexmill.tune(index, gamma=0.4)
    with pytest.raises(ConfigError, match="measure some with `indexmill score`"):
        indexmill.tune(graph_index)
    with pytest.raises(BudgetError, match=r"searching .* vectors takes"):
        indexmill.tune(index, memory=1 << 20)
    with pytest.raises(BudgetError, match=r"searching a sample of .* takes"):
        indexmill.tune(base, kind="lsh", memory=1 << 20)
    with pytest.raises(InputError, match="expected at least 200"):
        indexmill.tune(index, queries=points(20, 1))
    with pytest.raises(InputError, match="expected shape"):
        indexmill.tune(index, queries=np.zeros((300, 5), np.float32))
    assert "--out: for the job" in run("tune", index, "--out", tmp_path / "x.toml").stderr


@pytest.fixture(scope="module")
def graph_index(base: Path) -> Path:
    out = base.parent / "graph"
    indexmill.build(np.load(base)[:500], out, R=8, L=16, pq_bytes=2)
    return out


def test_tables_show_what_to_build_and_what_to_search_with(base: Path, index: Path) -> None:
    done = run("tune", base, *FIXED, *ASKED, "--probes", "0")
    assert done.exit_code == 0
    assert "work of a query in reads at overall ratio 1.05: 220 queries from the input" in done.stdout
    assert "build with * (--kind lsh --gamma 0.5 -w 4 --probes 0 -S " in done.stdout
    given = ("--kind", "lsh", "-m", "10", "-w", "4", "--probes", "0", "-S", "5")
    done = run("tune", base, *given, "--target-ratio", "1.5", "-k", "10", "--effort", "low")
    assert "build with * (--kind lsh -m 10 -w 4 --probes 0 -S 5), and tune" in done.stdout
    done = run("tune", index, "--target-recall", "0.5")
    assert done.exit_code == 0
    assert f"search with *: indexmill search {index} --queries FILE -S" in done.stdout
