"""`tune`: what it tries, how it predicts, what it recommends and what it refuses."""

from __future__ import annotations

import json
import math
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.append import points
from tests.support.cli import run, run_json

import indexmill
from indexmill.builders import gpu
from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.sources.source import array_source, open_source
from indexmill.jobs.cli.commands.tune import index_name
from indexmill.pipeline.kinds.graph import seconds
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.pipeline.tune import run as tune
from indexmill.pipeline.tune.choice import (
    Cost,
    fewest_of_each_degree,
    frontier,
    kept_graphs,
    recommended,
    worthwhile_lists,
)
from indexmill.pipeline.tune.curve import AtRecall, Curve, at_recall, list_sizes, measure_curve, recall_with
from indexmill.pipeline.tune.growth import Outlook, predict
from indexmill.pipeline.tune.prices import Prices, buildable, sample_within, within_memory
from indexmill.pipeline.tune.sample import check_enough, check_k, draw, level_of, sample_sizes
from indexmill.pipeline.tune.space import ALPHAS, DEGREES, Candidate, GraphCandidate, space_of

N = 4400
#: One graph, so that a run takes seconds; codes are left open.
GRAPH = ("-R", "12", "-L", "30", "--alpha", "1.2")
#: What may differ between two equal runs.
TIMES = ("build_seconds", "build_memory_bytes")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tune") / "base.npy"
    np.save(path, points(N, 1))
    return path


@pytest.fixture(scope="module", autouse=True)
def short_probe() -> Iterator[None]:
    """Plans that try the machine for half a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seconds, "TRIAL_SECONDS", 0.5)
        patch.setattr(seconds, "GRAPH_SECONDS", 0.2)
        yield


@pytest.fixture(scope="module")
def job(base: Path) -> Path:
    """Where the recommended job of `found` is."""
    return base.parent / "job.toml"


@pytest.fixture(scope="module")
def found(base: Path, job: Path) -> Any:
    return run_json("tune", base, *GRAPH, "--target-recall", "0.9", "--out", job)


def spread(mean: float, by: float = 0.0) -> np.ndarray:
    """Draws around a mean."""
    return mean + by * np.random.default_rng(3).normal(size=2000)


def at(reads: float, by: float = 0.0) -> Outlook:
    return Outlook(reads, spread(reads, by))


def searched(*reads: float, by: float = 0.0) -> list[AtRecall]:
    """What samples take, with noise of their own."""
    rng = np.random.default_rng(1)
    return [AtRecall(one, 20.0, 0.95, one + by * rng.normal(size=2000)) for one in reads]


def cost(reads: float, memory: int = 1, index: int = 1, list_size: int = 1, degree: int = 1) -> Cost:
    return Cost(reads, memory, index, list_size, degree)


def without_times(report: Any) -> Any:
    rows = [{name: row[name] for name in row if name not in TIMES} for row in report["candidates"]]
    return {**report, "candidates": rows}


# What is tried


def test_a_job_that_says_nothing_leaves_everything_open() -> None:
    space = space_of(Parameters(), 128)
    assert space.degrees == DEGREES
    assert space.alphas == ALPHAS
    assert space.pq_sizes == (8, 16, 32, 64)
    assert GraphCandidate(32, 75, 1.2) in space.graphs()


def test_what_a_job_says_stays_as_it_is() -> None:
    space = space_of(Parameters(R=20, L=44, alpha=1.1, pq_bytes=7), 128)
    assert space.graphs() == [GraphCandidate(20, 44, 1.1)]
    assert space.pq_sizes == (7,)
    assert space.with_longer_list(space.graphs()[0]) == space.graphs()


def test_a_builder_without_searches_has_one_build_list() -> None:
    space = space_of(Parameters(builder="partition"), 128)
    assert space.with_longer_list(space.graphs()[0]) == [space.graphs()[0]]


def test_the_slacks_with_the_fewest_reads_are_kept_for_each_degree() -> None:
    graphs = [GraphCandidate(r, 9, a) for r in (16, 32) for a in (1.0, 1.2, 1.4)]
    found = [at(reads) for reads in (30, 20, 25, 18, 19, np.inf)]
    assert fewest_of_each_degree(graphs, found, 1) == [graphs[1], graphs[3]]
    assert fewest_of_each_degree(graphs, found, 2) == [graphs[1], graphs[2], graphs[3], graphs[4]]


def test_small_degrees_go_on_where_reads_are_limited() -> None:
    graphs = [GraphCandidate(r, 9, 1.2) for r in (16, 24, 32, 48, 64)]
    found = [at(reads) for reads in (50, 38, 36, 20, 22)]
    assert kept_graphs(graphs, found, 3, None) == graphs[2:]
    assert kept_graphs(graphs, found, 3, 40) == graphs[1:4]
    assert kept_graphs(graphs, found, 3, 21) == graphs[2:]
    assert kept_graphs(graphs, found, 9, 40) == graphs


@pytest.mark.parametrize(("longer", "kept"), [(19.9, 0), (17.0, 1), (22.0, 0)])
def test_a_longer_build_list_is_kept_only_if_noise_does_not_make_it_better(longer: float, kept: int) -> None:
    graphs = [GraphCandidate(16, 9, 1.2), GraphCandidate(16, 18, 1.2)]
    rng = np.random.default_rng(5)
    found = [Outlook(reads, reads + 0.5 * rng.normal(size=2000)) for reads in (20, longer)]
    assert worthwhile_lists(graphs, found) == [graphs[kept]]


@pytest.mark.parametrize(("usual", "longer", "kept"), [(np.inf, 20, 1), (20, np.inf, 0), (np.inf, np.inf, 0)])
def test_a_longer_build_list_that_alone_reaches_the_recall_is_kept(
    usual: float, longer: float, kept: int
) -> None:
    graphs = [GraphCandidate(8, 19, 1.2), GraphCandidate(8, 38, 1.2)]
    assert worthwhile_lists(graphs, [at(usual, 0.5), at(longer, 0.5)]) == [graphs[kept]]


def test_what_reaches_the_recall_in_few_draws_is_not_like_what_always_does() -> None:
    draws = spread(20, 0.5)
    seldom = np.where(np.arange(2000) < 1960, np.inf, draws)
    costs = [cost(20, memory=8), cost(20, memory=4)]
    assert recommended(costs, [Outlook(20, draws), Outlook(20, seldom)], None) == 0


# Samples


def test_samples_grow_fourfold_and_leave_queries_out() -> None:
    assert sample_sizes(1_000_000, 100_000, 2_000, None) == ((6_250, 25_000, 100_000), 2_000)
    assert sample_sizes(4_000, 100_000, 2_000, None) == ((900, 3_600), 400)
    assert sample_sizes(20_000, 100_000, 2_000, 501) == ((1_250, 5_000, 20_000), 500)


def test_too_few_vectors_or_queries_or_too_many_neighbours_are_refused() -> None:
    with pytest.raises(InputError, match=r"3,999 vectors; expected at least 4,000"):
        check_enough(3_999)
    with pytest.raises(InputError, match=r"queries: 199; expected at least 200"):
        sample_sizes(9_000, 100_000, 2_000, 199)
    with pytest.raises(InputError, match=r"k: 91 neighbours wanted; expected 1 to 90"):
        check_k(91, (900, 3_600))
    with pytest.raises(InputError, match=r"use a smaller -k, or --effort high"):
        check_k(91, (900, 3_600), ", or --effort high")


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_samples_are_nested_and_truth_is_that_of_brute_force(metric: str, tmp_path: Path) -> None:
    vectors = points(1500, 2)
    drawn = draw(array_source(vectors), None, 1200, 300, metric, 1, tmp_path, Silent())
    order = np.argsort(np.lexsort(vectors.T))
    rank = {row.tobytes(): int(i) for row, i in zip(vectors, order, strict=True)}
    taken = [rank[row.tobytes()] for row in (*drawn.rows, *drawn.queries)]
    assert sorted(taken) == list(range(1500))  # all of them once: no query is a vector of a sample
    level = level_of(drawn, 400, metric, 10, 1, tmp_path)
    rows = np.load(level.path)
    assert np.array_equal(rows, drawn.rows[:400])
    wide, asked = rows.astype(np.float64), drawn.queries.astype(np.float64)
    if metric == "cosine":
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
        asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    scores = ((wide[None] - asked[:, None]) ** 2).sum(axis=2)
    if metric == "ip":
        largest = (wide**2).sum(axis=1).max()
        scores = largest + (asked**2).sum(axis=1)[:, None] - 2 * asked @ wide.T
    np.testing.assert_allclose(level.queries.kth, np.sort(scores, axis=1)[:, 9], rtol=1e-4, atol=1e-5)


def test_an_unusable_vector_is_named_by_its_row(tmp_path: Path) -> None:
    vectors = points(900, 2)
    vectors[321, 4] = np.nan
    with pytest.raises(InputError, match=r"row 321: component 4 is nan"):
        draw(array_source(vectors), None, 800, 100, "l2", 1, tmp_path, Silent())


# Curves


def test_list_sizes_begin_with_k_and_end_with_the_most() -> None:
    sizes = list_sizes(10, 1000)
    assert sizes[0] == 10
    assert sizes[-1] == 1000
    assert all(a < b <= 1.3 * a for a, b in pairwise(sizes))
    assert list_sizes(1, 3) == [1, 2, 3]


def test_a_cost_at_a_recall_lies_between_two_list_sizes() -> None:
    recalls = np.tile(np.array([0.8, 0.9, 1.0], np.float32), (50, 1))
    curve = Curve(np.array([10, 20, 40]), recalls, np.tile(np.array([5, 9, 17], np.float32), (50, 1)))
    there = at_recall(curve, 0.95)
    assert there.reads == pytest.approx(13)
    assert there.list_size == pytest.approx(30)
    assert there.interval() == pytest.approx((13, 13))
    np.testing.assert_allclose(recall_with(curve, 30), 0.95)
    below = at_recall(curve, 0.5)  # the shortest list is above it
    assert (below.reads, below.list_size, below.recall) == pytest.approx((5, 10, 0.8))
    beyond = at_recall(curve.part(slice(0, 10)), 1.0 + 1e-3)
    assert not beyond.reached
    assert beyond.recall == pytest.approx(1.0)


# Growth


def test_the_outlook_lies_between_the_same_number_and_the_same_factor_a_doubling() -> None:
    there = predict([4_000, 8_000, 16_000], searched(12, 17, 18), 256_000)
    assert there.reads == pytest.approx((18 + 6 + 6 + 18 * 1.5 * 1.5) / 2)
    low, high = there.interval()
    assert low == pytest.approx(30 + 0.025 * 10.5, abs=0.2)
    assert high == pytest.approx(40.5 - 0.025 * 10.5, abs=0.2)


def test_a_sample_that_is_all_there_is_has_its_own_reads_for_an_outlook() -> None:
    there = predict([4_000, 16_000], searched(12, 18, by=0.1), 16_000)
    assert there.reads == 18
    assert there.interval() == pytest.approx((17.8, 18.2), abs=0.02)


def test_reads_that_stay_are_foretold_to_stay() -> None:
    assert predict([4_000, 16_000], searched(7, 7), 10**9).reads == pytest.approx(7)


def test_noise_of_the_queries_grows_with_what_is_carried_on() -> None:
    widths = []
    for n in (16_000, 64_000, 1_024_000):
        low, high = predict([4_000, 16_000], searched(16, 16.1, by=0.1), n).interval()
        assert low is not None
        assert high is not None
        widths.append(high - low)
    assert widths[0] == pytest.approx(0.4, abs=0.05)
    assert widths[0] < widths[1] < widths[2]


def test_what_a_sample_does_not_reach_is_not_foretold() -> None:
    there = predict([1_000, 4_000], searched(10, np.inf), 9_000)
    assert there.reads == np.inf
    assert there.interval() == (None, None)


# Choice


def test_the_frontier_is_what_nothing_beats() -> None:
    rng = np.random.default_rng(2)
    costs = [Cost(float(r), *(int(x) for x in row)) for r, row in zip(
        rng.integers(1, 6, 60), rng.integers(1, 4, (60, 4)), strict=True
    )]  # fmt: skip
    costs.append(cost(np.inf, 0))

    def beaten(one: Cost) -> bool:
        mine = (one.reads, *one.price)
        return any(
            all(a <= b for a, b in zip((o.reads, *o.price), mine, strict=True))
            and (o.reads, *o.price) != mine
            for o in costs
        )

    assert frontier(costs) == [i for i, one in enumerate(costs[:-1]) if not beaten(one)]


def test_within_a_limit_of_reads_the_least_memory_is_taken() -> None:
    costs = [cost(20, memory=8), cost(30, memory=4, index=2), cost(31, memory=4, index=1), cost(50, memory=2)]
    draws = [at(one.reads) for one in costs]
    assert recommended(costs, draws, 40) == 2
    assert recommended(costs, draws, 60) == 3
    assert recommended(costs, draws, 30) == 1
    assert recommended(costs, draws, 19) is None


def test_without_a_limit_it_is_the_cheapest_of_those_that_noise_does_not_tell_apart() -> None:
    costs = [cost(20, memory=8), cost(20.5, memory=4), cost(30, memory=2), cost(np.inf, memory=1)]
    rng = np.random.default_rng(8)
    draws = [Outlook(r, r + rng.normal(size=2000)) for r in (20, 20.5, 30)]
    draws.append(Outlook(np.inf, np.full(2000, np.inf)))
    assert recommended(costs, draws, None) == 1
    assert recommended(costs[3:], draws[3:], None) is None


# The command


def test_tune_recommends_a_job_on_the_frontier(found: Any) -> None:
    assert found["samples"] == [990, 3960]
    assert found["queries"] == 440
    rows = found["candidates"]
    assert {row["pq_bytes"] for row in rows} == {1, 3, 6}
    assert {(row["max_degree"], row["build_list_size"], row["alpha"]) for row in rows} == {(12, 30, 1.2)}
    chosen = [row for row in rows if row["recommended"]]
    assert len(chosen) == 1
    assert chosen[0]["on_frontier"]
    assert chosen[0]["build_seconds"] > 0
    assert found["recommended"]["pq_bytes"] == chosen[0]["pq_bytes"]
    for row in rows:
        if row["pages_read"] is not None:
            assert row["pages_read_low"] <= row["pages_read"] <= row["pages_read_high"]


def test_equal_runs_try_the_same_and_find_the_same(found: Any, base: Path, tmp_path: Path) -> None:
    again = run_json(
        "tune", base, *GRAPH, "--target-recall", "0.9", "--workers", "1", "--work", tmp_path / "new" / "work"
    )
    assert without_times(again) == without_times(found)
    assert list((tmp_path / "new" / "work").iterdir()) == []  # scratch files are gone


def test_the_recommended_job_builds_an_index_that_reads_what_was_foretold(
    tmp_path: Path, base: Path, job: Path, found: Any
) -> None:
    row = next(row for row in found["candidates"] if row["recommended"])
    said = tomllib.loads(job.read_text())
    assert said["parameters"] == found["recommended"]
    assert run("build", job, "--out", tmp_path / "index").exit_code == 0
    index = indexmill.open(tmp_path / "index")
    queries = points(400, 77)
    result = index.search(queries, 10, L=row["search_list_size"])
    vectors = np.load(base)
    distances = ((vectors[None] - queries[:, None]) ** 2).sum(axis=2)
    kth = np.sort(distances, axis=1)[:, 9:10]
    recall = (np.take_along_axis(distances, result.vector_ids, 1) <= kth * (1 + 1e-5)).mean()
    assert recall == pytest.approx(0.9, abs=0.03)
    assert result.counters["pages_read"].mean() == pytest.approx(row["pages_read"], rel=0.15)
    assert run("tune", base, *GRAPH, "--out", job).exit_code == 5


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
    result = run("tune", base, *GRAPH, "--max-memory", "1KiB")
    assert result.exit_code == 4
    assert "max-memory: searches would hold" in result.stderr
    result = run("tune", base, *GRAPH, "--memory", "1MiB")
    assert result.exit_code == 4
    assert "memory:" in result.stderr


def test_codes_above_the_memory_of_searches_are_left_out(base: Path, found: Any) -> None:
    need = {row["pq_bytes"]: row["search_memory_bytes"] for row in found["candidates"]}
    spec = BuildSpec(input=[str(base)], out="x.index", parameters=Parameters(R=12, L=30))
    left_out: list[str] = []
    space = within_memory(
        space_of(spec.parameters, 12), Prices(spec, open_source(str(base))), need[3], left_out
    )
    assert space.pq_sizes == (1, 3)
    assert left_out == [f"codes of 6 bytes: searches would hold {need[6]:,} bytes, the limit is {need[3]:,}"]


@dataclass(frozen=True)
class Said:
    """Vectors of which only the sizes are looked at."""

    n_vectors: int
    dim: int
    dtype: np.dtype[Any]
    id_type: str = "none"
    metadata_schema: None = None
    paths: tuple[str, ...] = ("base.u8bin",)


def test_codes_too_large_for_the_memory_of_the_build_leave_degrees_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def enough(*_: Any, **__: Any) -> None:
        """There is enough of disk."""

    monkeypatch.setattr("indexmill.pipeline.kinds.kind.check_free", enough)
    spec = BuildSpec(input=["base.u8bin"], out="x.index", memory=4 << 30)
    left_out: list[str] = []
    space = buildable(
        space_of(Parameters(), 128), Prices(spec, Said(100_000_000, 128, np.dtype(np.uint8))), left_out
    )
    assert space.degrees == DEGREES
    assert space.pq_sizes == (8, 16, 32)
    assert [line.partition(":")[0] for line in left_out] == ["codes of 64 bytes"]
    assert "stage certify needs" in left_out[0]


def test_more_workers_make_no_sample_smaller() -> None:
    space, found = space_of(Parameters(), 128), {}
    for workers in (1, 2, 32):
        spec = BuildSpec(input=["base.u8bin"], out="x.index", memory=340 << 20, workers=workers)
        source = Said(10_000_000, 128, np.dtype(np.uint8))
        found[workers] = sample_within(spec, source, space, 400_000, 3_200)
    sizes = {size for size, _ in found.values()}
    assert len(sizes) == 1
    assert 3_200 <= sizes.pop() < 400_000
    assert found[1][1] == 1
    assert found[2][1] <= 2
    assert 1 <= found[32][1] < 32


def test_the_memory_of_searches_is_kept_to_with_every_degree(base: Path) -> None:
    spec = BuildSpec(input=[str(base)], out="x.index", parameters=Parameters())
    prices, small, large = (
        Prices(spec, open_source(str(base))), GraphCandidate(16, 38, 1.2), GraphCandidate(96, 225, 1.2),
    )  # fmt: skip
    most = prices.price(Candidate(small, 3)).memory_bytes
    assert prices.price(Candidate(large, 3)).memory_bytes > most
    left_out: list[str] = []
    space = within_memory(space_of(spec.parameters, 12), prices, most, left_out)
    assert space.degrees == DEGREES
    assert space.pq_sizes == (1, 3)
    found = space.coded([small, large])
    assert found == [Candidate(small, 1), Candidate(small, 3), Candidate(large, 1)]
    assert all(prices.price(one).memory_bytes <= most for one in found)
    assert [line.partition(":")[0] for line in left_out] == [
        "codes of 6 bytes",
        *(f"R={r} with codes of 3 bytes" for r in DEGREES[1:]),
    ]


def test_degrees_whose_smallest_codes_are_too_much_are_left_out(base: Path) -> None:
    spec = BuildSpec(input=[str(base)], out="x.index", parameters=Parameters(pq_bytes=3))
    prices = Prices(spec, open_source(str(base)))
    most = prices.price(Candidate(GraphCandidate(48, 112, 1.2), 3)).memory_bytes
    left_out: list[str] = []
    space = within_memory(space_of(spec.parameters, 12), prices, most, left_out)
    assert space.degrees == (16, 24, 32, 48)
    assert [line.partition(":")[0] for line in left_out] == ["R=64", "R=96"]


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ConfigError("compute: cuda needs CuPy")

    monkeypatch.setattr(gpu, "cuda_gpu", refuse)


def test_a_job_that_takes_a_gpu_if_there_is_one_is_priced_without_one(base: Path, no_gpu: None) -> None:
    candidate = Candidate(GraphCandidate(12, 30, 1.2), 3)
    auto, cpu = (
        Prices(
            BuildSpec(input=[str(base)], out="x.index", parameters=Parameters(device=name)),
            open_source(str(base)),
        )
        for name in ("auto", "cpu")
    )
    auto.check_fits(candidate)
    assert auto.price(candidate) == cpu.price(candidate)
    assert auto.job(candidate).parameters.compute == "auto"


def test_a_gpu_that_is_not_there_is_told_before_anything_is_tried(base: Path, no_gpu: None) -> None:
    with pytest.raises(ConfigError, match="cuda needs CuPy"):
        indexmill.tune(base, compute="cuda", memory="1MiB")  # of which a trial would complain


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("data/base.npy", "base.index"), ("data/", "data.index"), ("data/*", "data.index"),
        ("data/*.parquet", "data.index"), ("s3://bucket/x/part-[0-3]?.npy", "x.index"), ("*.npy", "tuned.index"),
    ],
)  # fmt: skip
def test_an_index_is_called_by_its_file_or_folder(source: str, name: str) -> None:
    assert index_name(source) == name


def test_a_rotation_is_tuned_for_and_goes_into_the_job(base: Path, tmp_path: Path) -> None:
    options = (*GRAPH, "--pq-bytes", "6", "--pq-rotation", "opq", "--compute", "auto")
    found = run_json("tune", base, *options, "--target-recall", "0.9", "--out", tmp_path / "job.toml")
    assert found["recommended"]["pq_rotation"] == "opq"
    assert found["recommended"]["compute"] == "auto"
    assert tomllib.loads((tmp_path / "job.toml").read_text())["parameters"] == found["recommended"]


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


def test_queries_of_the_caller_are_used(base: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", points(300, 5))
    report = run_json("tune", base, *GRAPH, "--pq-bytes", "6", "--queries", tmp_path / "q.npy")
    assert report["queries"] == 300
    assert report["queries_from"] == "the caller"
    assert report["samples"] == [1100, N]
    np.save(tmp_path / "wrong.npy", np.zeros((300, 5), np.float32))
    result = run("tune", base, *GRAPH, "--queries", tmp_path / "wrong.npy")
    assert result.exit_code == 3
    assert "queries: expected shape (q, 12)" in result.stderr


def held_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def test_every_degree_and_longer_list_goes_through_the_halving_in_the_scratch_space_that_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexmill.pipeline.tune.space.DEGREES", (6, 10))
    monkeypatch.setattr("indexmill.pipeline.tune.space.ALPHAS", (1.2,))
    monkeypatch.setitem(tune.EFFORTS, "low", tune.Effort(3_300, 200))
    monkeypatch.setattr(tune, "LAST_DEGREES", 1)
    looked_for, held = list[int](), list[int]()
    monkeypatch.setattr(tune, "check_free", lambda _, need, *__: looked_for.append(need))

    def measure(*arguments: Any) -> Curve:
        held.append(held_bytes(tmp_path))  # when most is there
        return measure_curve(*arguments)

    monkeypatch.setattr("indexmill.pipeline.tune.trials.measure_curve", measure)
    report = indexmill.tune(
        points(N, 1), target_recall=0.9, effort="low", pq_bytes=6, entries=16, work=tmp_path
    )
    assert report.sizes == (825, 3_300)
    assert {row.candidate.graph.max_degree for row in report.rows} <= {6, 10}
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
    monkeypatch.setattr(tune, "draw", lambda *_: pytest.fail("drew a sample"))
    result = run("tune", base, *GRAPH, "--work", tmp_path / "scratch")
    assert result.exit_code == 4
    assert "the tuning needs" in result.stderr
    assert "4,096 are free; make room, or name a --work directory elsewhere" in result.stderr
    assert list(tmp_path.iterdir()) == []
