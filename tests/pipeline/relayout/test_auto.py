"""`--order auto`: the reader judges every order, noise does not, and nothing is pretended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.files.verify import verify_index
from tests.support.cli import run
from tests.support.indexes.append import build, manifest, points
from tests.support.indexes.builds import data_files

import indexmill
from indexmill.formats.errors import NothingToGain
from indexmill.layout.order import Adjacency
from indexmill.layout.portfolio import ORDERS
from indexmill.pipeline.bootstrap import mean_interval, same_rows
from indexmill.pipeline.kinds.common.judge import Cost, Judge, TuningQueries
from indexmill.pipeline.relayout import auto
from indexmill.pipeline.relayout.auto import Candidate, Effort, decide
from indexmill.pipeline.relayout.region import ball, induced

VECTORS = points(3000, 1)
TINY = Effort(sample=1200, queries=60, work=100_000)


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("auto") / "shuffled", VECTORS, order="random", R=24)


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Low effort tries orders on two vectors of five."""
    monkeypatch.setitem(auto.EFFORTS, "low", TINY)


def test_auto_finds_an_order_that_reads_fewer_pages(shuffled: Path, tmp_path: Path) -> None:
    indexmill.lay_out(shuffled, out=tmp_path / "ix", effort="low")
    record = manifest(tmp_path / "ix")["layout"]
    tried = {row["order"]: row for row in record["choice"]["candidates"]}
    assert set(tried) == {"current", *ORDERS} - {"random"}
    assert tried[record["order"]]["pages_read"] < 0.9 * tried["current"]["pages_read"]
    assert record["choice"]["sample_vectors"] == len(VECTORS)
    queries = points(200, 7)
    before, after = (
        indexmill.open(path).search(queries, 10, L=40).counters["pages_read"].mean()
        for path in (shuffled, tmp_path / "ix")
    )
    assert after < 0.9 * before


def test_a_sample_tells_what_the_whole_would(shuffled: Path, tmp_path: Path, sampled: None) -> None:
    indexmill.lay_out(shuffled, out=tmp_path / "ix", effort="low")
    record = manifest(tmp_path / "ix")["layout"]
    assert record["choice"]["sample_vectors"] == TINY.sample
    assert record["choice"]["queries"] == TINY.queries
    assert record["order"] not in ("random", "identity")
    assert verify_index(tmp_path / "ix") == []


def test_the_same_index_and_effort_give_the_same_bytes_on_any_number_of_threads(
    shuffled: Path, tmp_path: Path, sampled: None
) -> None:
    for workers in (1, 3):
        indexmill.lay_out(shuffled, out=tmp_path / str(workers), effort="low", workers=workers)
    assert data_files(tmp_path / "1") == data_files(tmp_path / "3")


@pytest.mark.parametrize("with_truth", [True, False])
def test_only_the_queries_given_are_looked_at(shuffled: Path, tmp_path: Path, with_truth: bool) -> None:
    queries = points(80, 9)
    distances = ((queries[:, None].astype(float) - VECTORS[None]) ** 2).sum(axis=2)
    truth = np.argsort(distances, axis=1, kind="stable")[:, :10] if with_truth else None
    indexmill.lay_out(shuffled, out=tmp_path / "ix", effort="low", queries=queries, truth=truth)
    choice = manifest(tmp_path / "ix")["layout"]["choice"]
    assert (choice["queries"], choice["queries_from"], choice["recall"]) == (80, "the caller", 0.95)


def test_vectors_of_a_sample_make_up_for_given_queries_that_lie_outside_of_it(
    shuffled: Path, tmp_path: Path, sampled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[TuningQueries] = []
    judge = auto.Judge
    monkeypatch.setattr(
        auto, "Judge", lambda rows, queries, threads: (seen.append(queries), judge(rows, queries, threads))[1]
    )
    given = points(120, 9)
    indexmill.lay_out(shuffled, out=tmp_path / "ix", effort="low", queries=given)
    choice = manifest(tmp_path / "ix")["layout"]["choice"]
    assert (choice["queries"], choice["queries_from"]) == (TINY.queries, "the caller and the index")
    own = seen[0].own
    assert own is not None
    assert 50 <= np.count_nonzero(own < 0) < TINY.queries
    inside = {row.tobytes() for row in given}
    assert [row.tobytes() in inside for row in seen[0].vectors] == (own < 0).tolist()


def test_counts_are_those_of_the_index_that_is_published(shuffled: Path, tmp_path: Path) -> None:
    queries = points(64, 9)
    indexmill.lay_out(shuffled, out=tmp_path / "ix", effort="low", queries=queries)
    record = manifest(tmp_path / "ix")["layout"]
    row = next(row for row in record["choice"]["candidates"] if row["order"] == record["order"])
    opened = indexmill.open(tmp_path / "ix")
    low, share = divmod(row["search_list_size"], 1)
    reads = [opened.search(queries, 10, L=int(low) + more).counters["pages_read"].mean() for more in (0, 1)]
    assert row["pages_read"] == pytest.approx(reads[0] + share * (reads[1] - reads[0]), rel=1e-5)


@pytest.mark.parametrize(
    "how", [{"metric": "cosine"}, {"metric": "ip"}, {"node_dtype": "sq8"}, {"pq_rotation": "opq"}], ids=str
)
def test_the_judge_knows_every_metric_and_format(tmp_path: Path, how: dict[str, Any], sampled: None) -> None:
    index = build(tmp_path / "ix", points(2000, 3), order="random", **how)
    indexmill.lay_out(index, out=tmp_path / "out", effort="low", queries=points(60, 4))
    laid_out = manifest(tmp_path / "out")
    assert how.items() <= laid_out["parameters"].items()
    assert laid_out["layout"]["choice"]["recall"] > 0.9
    before, after = (
        indexmill.open(path).search(points(100, 7), 10, L=20).counters["pages_read"].mean()
        for path in (index, tmp_path / "out")
    )
    assert after < before
    assert verify_index(tmp_path / "out") == []


def test_an_index_laid_out_best_is_left_alone(shuffled: Path, tmp_path: Path) -> None:
    indexmill.lay_out(shuffled, out=tmp_path / "ix", effort="low")
    before = data_files(tmp_path / "ix")
    indexmill.lay_out(tmp_path / "ix", effort="low")
    assert data_files(tmp_path / "ix") == before


def cost(pages: np.ndarray) -> Cost:
    return Cost(pages, 0.95, 20.0, True)


def test_noise_does_not_pay_for_a_dearer_order() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(30, 8, 400)
    nobody = np.arange(3, dtype=np.uint32)
    cheap = Candidate("cheap", nobody, cost(base), 10, False)
    hardly = Candidate("hardly", nobody, cost(base - 0.05 + rng.normal(0, 3, 400)), 1000, False)
    better = Candidate("better", nobody, cost(base - 2), 5000, False)
    assert hardly.cost.mean < cheap.cost.mean or decide([cheap, hardly])[0] is cheap
    assert decide([cheap, hardly])[0] is cheap
    winner, rows = decide([cheap, hardly, better])
    assert winner is better
    assert [row["order"] for row in rows] == ["cheap", "hardly", "better"]
    missed = Candidate("missed", nobody, Cost(base - 10, 0.7, 512.0, False), 1, False)
    assert decide([cheap, missed])[0] is cheap


def test_the_bootstrap_interval_covers_the_mean() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(100):
        low, high = mean_interval(rng.normal(0.3, 1, 150))
        inside += low <= 0.3 <= high
    assert 88 <= inside <= 100


def test_repeats_do_not_narrow_the_bootstrap_interval() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(-1, 3, 20)
    repeated, groups = np.repeat(values, 10), np.repeat(np.arange(20), 10)
    assert mean_interval(repeated, groups) == pytest.approx(mean_interval(values))
    low, high = mean_interval(repeated)
    assert high - low < 0.5 * np.subtract(*mean_interval(values)[::-1])


def test_groups_of_the_bootstrap_count_as_often_as_they_came() -> None:
    values = np.array([1.0] * 900 + [0.0] * 100)
    low, high = mean_interval(values, np.concatenate([np.arange(900) % 30, 30 + np.arange(100)]))
    assert low < 0.9 < high < 1
    assert high - low > 0.04  # of single queries 0.037


def test_equal_rows_are_one_group() -> None:
    rows = np.array([[2, 1], [1, 2], [2, 1], [1, 1]], np.float32)
    groups = same_rows(rows)
    assert groups[0] == groups[2]
    assert sorted(set(groups.tolist())) == [0, 1, 2]


class Searched:
    """Stands for an index: recall and reads grow with the list."""

    def __len__(self) -> int:
        return 10_000

    def search(self, queries: np.ndarray, k: int, L: int, threads: int, deterministic: bool) -> object:
        found = np.where(np.arange(k) < min(k, L // 10), 0, 1)  # row 0 is near, row 1 far
        ids = np.broadcast_to(found, (len(queries), k))
        return type(
            "Found", (), {"vector_ids": ids, "counters": {"pages_read": np.full(len(queries), 2 * L)}}
        )


def test_page_reads_are_interpolated_to_the_recall_aimed_at() -> None:
    rows = np.array([[0.0], [9.0]], np.float32)
    queries = TuningQueries(np.zeros((5, 1), np.float32), np.zeros((5, 1), np.float32), np.ones(5), 10, None)
    judge = Judge(rows, queries, 1)
    found = judge.cost(Searched())  # type: ignore[arg-type]
    # recall is 0.9 from L = 90 to 99 and 1.0 from 100 on
    assert found.list_size == pytest.approx(99.5)
    assert found.pages == pytest.approx(np.full(5, 199.0))
    assert found.reached


def test_a_ball_holds_the_nearest_and_the_graph_they_induce() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(300, 6)).astype(np.float32)
    region = ball(rows, 17, 90)
    distances = ((rows - rows[17]) ** 2).sum(axis=1)
    assert set(region.vertices.tolist()) == set(np.argsort(distances)[:90].tolist())
    neighbours = rng.integers(0, 300, (300, 8)).astype(np.uint32)
    degrees = rng.integers(0, 9, 300).astype(np.int32)
    graph = induced(Adjacency(neighbours, degrees), region.vertices)
    place = {int(v): i for i, v in enumerate(region.vertices)}
    for i, v in enumerate(region.vertices):
        kept = [place[int(u)] for u in neighbours[v, : degrees[v]] if int(u) in place]
        assert graph.neighbours[i, : graph.degrees[i]].tolist() == kept


def test_explain_says_whether_pages_hold_strangers(shuffled: Path, tmp_path: Path) -> None:
    assert "a read brings strangers" in run("explain", str(shuffled)).stdout
    indexmill.lay_out(shuffled, "star", out=tmp_path / "ix")
    assert "it is laid out by star" in run("explain", str(tmp_path / "ix")).stdout
    one_page = build(tmp_path / "few", points(9, 3))
    found = json.loads(run("explain", str(one_page), "--json").stdout)
    assert (found["layout_can_help"], found["proposals"]) == (False, [])
    with pytest.raises(NothingToGain, match="One page holds all of them"):
        indexmill.lay_out(one_page)
