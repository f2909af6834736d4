"""Expected overall ratios against hand-computed ones and searches of hash tables, and what is chosen by them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.asked import asked
from tests.support.indexes.lsh import build_lsh

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.lsh import choose as choose_module
from indexmill.builders.lsh.choose import FACTORS, LEAST_VECTORS, TARGET, choose
from indexmill.builders.lsh.expected import Expectation, Sampled, Tables
from indexmill.builders.lsh.solve import solve
from indexmill.pipeline.kinds.lsh.tasks import sampled_distances
from indexmill.reader.lsh import LshIndex

#: One function in one table of width 4: vectors at distances 1, 2, R / 2 share its cell with these probabilities.
ONE = Tables(n_functions=1, n_tables=1, probes=0, width=4.0, ratio=2.0)
AT_1, AT_2, AT_HALF = 0.80053, 0.60953, 0.90026
#: A query with neighbours at 1 and 2, and no others.
TWO = Sampled(np.array([[1.0, 2.0]]), np.array([[0.0]]))


def test_with_one_radius_the_ratio_is_that_of_what_the_table_holds() -> None:
    found = Expectation(ONE, [1.0], TWO, 3).of(10)
    # The nearest is met: 1. It is not, and the other is: 2 / 1. Neither is: c = 2.
    assert found.ratio == pytest.approx(AT_1 + (1 - AT_1) * 2, abs=1e-3)
    assert found.distances == pytest.approx(AT_1 + AT_2, abs=1e-3)
    assert found.radii == 1


def test_a_second_radius_is_searched_where_the_first_met_nothing_near_enough() -> None:
    found = Expectation(ONE, [1.0, 2.0], TWO, 3).of(10)
    first = AT_1 + (1 - AT_1) * AT_2 * 2  # both lie within c R, so that either ends the search
    goes_on = (1 - AT_1) * (1 - AT_2)
    # What was not met at the first radius is met at the second: the nearest, or the other one alone.
    nearest = (AT_HALF - AT_1) * (1 - AT_2)
    other = (AT_1 - AT_2) * (1 - AT_HALF)
    second = nearest + other * 2 + (goes_on - nearest - other) * 2
    assert found.ratio == pytest.approx(first + second, abs=1e-3)
    assert found.radii == pytest.approx(1 + goes_on, abs=1e-3)


def test_candidates_end_the_scan_of_tables_and_copies_do_not_count() -> None:
    tables = replace(ONE, n_functions=8, n_tables=30)
    rng = np.random.default_rng(1)
    near = np.sort(rng.uniform(1, 2, (20, 10)), axis=1)
    sampled = Sampled(near, rng.uniform(2, 4, (20, 100)))
    expectation = Expectation(tables, [1.0, 2.0, 4.0], sampled, 10_000)
    few, many, all_ = (expectation.of(candidates) for candidates in (20, 200, 10_000))
    assert few.ratio > many.ratio > all_.ratio > 1
    assert few.distances <= 20 * few.radii + 1e-6
    assert few.distances < many.distances < all_.distances
    copies = Sampled(np.vstack([near, np.zeros((5, 10))]), np.vstack([sampled.others, np.ones((5, 100))]))
    assert len(Expectation(tables, [1.0], copies, 10_000)) == 20
    again = Expectation(tables, [1.0, 2.0, 4.0], copies, 10_000)
    assert again.of(200) == many


@pytest.mark.parametrize(("probes", "gamma"), [(0, 0.55), (8, 0.55), (0, 0.4)])
def test_searches_have_the_ratio_that_is_expected(tmp_path: Path, probes: int, gamma: float) -> None:
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(8000, 24)).astype(np.float32)
    queries = rng.normal(size=(500, 24)).astype(np.float32)
    build_lsh(tmp_path / "index", vectors, probes=probes, gamma=gamma, workers=1)
    index = LshIndex(tmp_path / "index", "memory")
    native = index.native
    sampled = sampled_distances(vectors, "l2", 1, 1)
    tables = Tables(native.n_functions, native.n_tables, probes, 4.0, 2.0)
    truth = np.sqrt(exact_neighbours(vectors, queries, 1)[1][:, 0])
    for candidates in (native.candidates // 4, native.candidates, 4 * native.candidates):
        result = index.search(queries, 1, candidates=candidates)
        expected = Expectation(tables, native.radii, sampled, len(vectors)).of(candidates)
        ratio = np.nanmean(np.sqrt(np.maximum(result.scores[:, 0], 0)) / truth)
        assert expected.ratio == pytest.approx(ratio, abs=0.04)  # few candidates: a little less
        assert expected.distances == pytest.approx(result.counters["distances"].mean(), rel=0.25)


def alike(n_queries: int = 60) -> Sampled:
    """Distances as of embeddings: a few have a near neighbour, and those of all others are alike."""
    rng = np.random.default_rng(4)
    near = np.sort(rng.normal(0.85, 0.05, (n_queries, 1)) + rng.uniform(0, 0.5, (n_queries, 50)), axis=1)
    near[: n_queries // 12, 0] = 0.5
    return Sampled(near, rng.normal(1.6, 0.07, (n_queries, 400)))


def spread(n_queries: int = 60) -> Sampled:
    """Distances as of SIFT: searches take several radii, from that of the few near neighbours on."""
    rng = np.random.default_rng(4)
    near = np.sort(rng.normal(226, 35, (n_queries, 1)) + rng.uniform(0, 280, (n_queries, 50)), axis=1)
    near[: n_queries // 12, 0] = 85
    return Sampled(near, rng.normal(530, 60, (n_queries, 400)))


@pytest.mark.parametrize(
    ("sampled", "n", "grows"), [(alike(), 40_000, "candidates"), (spread(), 1_000_000, "first_radius")]
)
def test_a_first_radius_and_candidates_that_miss_the_ratio_are_replaced_by_some_that_reach_it(
    sampled: Sampled, n: int, grows: str
) -> None:
    given, extent = asked(gamma=0.55, success=0.8), 4 * float(sampled.others.max())
    before = solve(given, n, extent, sampled.nearest[:, 0])
    chosen = choose(given, n, extent, sampled)
    after = solve(chosen, n, extent, sampled.nearest[:, 0])
    tables = Tables(after.n_functions, after.n_tables, 0, 4.0, 2.0)
    assert Expectation(tables, before.radii, sampled, n).of(before.candidates).ratio > TARGET
    assert {
        "candidates": after.candidates > before.candidates,
        "first_radius": after.radii[0] > before.radii[0],
    }[grows]
    assert len(after.radii) <= len(before.radii)
    assert Expectation(tables, after.radii, sampled, n).of(after.candidates).ratio <= TARGET
    assert (after.n_functions, after.n_tables) == (before.n_functions, before.n_tables)
    assert before.candidates <= after.candidates <= FACTORS[-1] * before.candidates


@pytest.mark.parametrize(
    "changes", [{"first_radius": 0.8}, {"candidates": 100}, {"n_radii": 2}, {"gamma": 0.4}]
)
def test_what_is_given_or_good_enough_stays(changes: dict[str, object]) -> None:
    given = asked(**{"gamma": 0.55, "success": 0.8, **changes})
    assert choose(given, 40_000, 4.0, alike()) is given


def test_few_vectors_and_vectors_that_are_all_copies_keep_the_quantile() -> None:
    given = asked(gamma=0.55, success=0.8)
    assert choose(given, LEAST_VECTORS - 1, 4.0, alike()) is given
    copies = Sampled(np.zeros((9, 5)), np.zeros((9, 5)))
    assert choose(given, 40_000, 4.0, copies) is given
    assert choose(given, 40_000, 4.0, Sampled(np.empty((0, 1)), np.empty((0, 1)))) is given


def test_without_a_setting_that_reaches_the_ratio_the_least_ratio_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choose_module, "TARGET", 1.0)
    given, sampled = asked(gamma=0.55, success=0.8), alike()
    chosen = choose(given, 40_000, 4.0, sampled)
    found = solve(chosen, 40_000, 4.0, sampled.nearest[:, 0])
    tables = Tables(found.n_functions, found.n_tables, 0, 4.0, 2.0)
    best = Expectation(tables, found.radii, sampled, 40_000).of(found.candidates).ratio
    worse = solve(given, 40_000, 4.0, sampled.nearest[:, 0])
    assert best < Expectation(tables, worse.radii, sampled, 40_000).of(worse.candidates).ratio
