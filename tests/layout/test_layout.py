"""Layouts are bijections that put a vertex beside its nearest neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.layout import star as oracle
from tests.support.indexes.layout import as_lists, random_graph, random_order

from indexmill.layout import star as star_module
from indexmill.layout.ffd import first_fit_decreasing
from indexmill.layout.metrics import layout_metrics, page_compactness
from indexmill.layout.order import Work, invert
from indexmill.layout.star import star_order

graphs = st.tuples(st.integers(1, 60), st.integers(1, 8), st.integers(0, 2**31))


@settings(max_examples=60, deadline=None)
@given(graphs, st.integers(1, 9))
def test_star_order_is_a_bijection(graph: tuple[int, int, int], b: int) -> None:
    order = star_order(*random_graph(*graph), b)
    assert sorted(order) == list(range(graph[0]))


@settings(max_examples=60, deadline=None)
@given(graphs, st.integers(1, 9))
def test_star_order_lays_out_the_stars_of_the_oracle(graph: tuple[int, int, int], b: int) -> None:
    neighbours, degrees = random_graph(*graph)
    stars = oracle.pack(as_lists(neighbours, degrees), b)
    bins = oracle.first_fit_decreasing([len(s) for s in stars], b)
    full = [bin_ for bin_ in bins if sum(len(stars[i]) for i in bin_) == b]
    partial = [bin_ for bin_ in bins if sum(len(stars[i]) for i in bin_) < b]
    pages = [sorted(v for i in bin_ for v in stars[i]) for bin_ in full]
    order = star_order(neighbours, degrees, b)
    ours = [sorted(order[i * b : (i + 1) * b].tolist()) for i in range(len(full))]
    assert sorted(ours) == sorted(pages)
    assert sorted(order[len(full) * b :].tolist()) == sorted(
        v for bin_ in partial for i in bin_ for v in stars[i]
    )


@pytest.mark.parametrize("b", [1, 4])
def test_places_of_in_neighbours_may_take_64_bits(b: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(200, 6, 3)
    narrow = star_order(*graph, b)
    monkeypatch.setattr(star_module, "WIDE_EDGES", 0)
    assert star_order(*graph, b).tolist() == narrow.tolist()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 15), min_size=1, max_size=60))
def test_ffd_needs_the_same_number_of_full_bins_as_the_textbook(sizes: list[int]) -> None:
    order = first_fit_decreasing(np.array(sizes), 15)
    assert sorted(order.tolist()) == list(range(len(sizes)))
    full = [b for b in oracle.first_fit_decreasing(sizes, 15) if sum(sizes[i] for i in b) == 15]
    taken = {i for b in full for i in b}
    assert set(order[: len(taken)].tolist()) == taken


def test_star_puts_a_clique_on_one_page() -> None:
    n, b = 30, 5  # six cliques of five
    groups = np.random.default_rng(0).permutation(n).reshape(6, 5)
    neighbours = np.zeros((n, 4), np.uint32)
    for group in groups:
        for v in group:
            neighbours[v] = group[group != v]
    degrees = np.full(n, 4, np.int32)
    order = star_order(neighbours, degrees, b)
    assert {frozenset(page) for page in order.reshape(6, 5).tolist()} == {
        frozenset(g) for g in groups.tolist()
    }
    metrics = layout_metrics(neighbours, degrees, order, b, 1.0)
    assert metrics.overlap_ratio == pytest.approx(1.0)
    assert metrics.page_compactness == pytest.approx(5.0)  # lambda_2 of K5 is 5, its diameter 1


def test_star_beats_random_order_on_overlap() -> None:
    neighbours, degrees = random_graph(400, 8, 3)
    star = layout_metrics(neighbours, degrees, star_order(neighbours, degrees, 6), 6, 1.0)
    shuffled = layout_metrics(neighbours, degrees, random_order(400, 1), 6, 1.0)
    assert star.overlap_ratio > 3 * shuffled.overlap_ratio


def test_overlap_ratio_is_the_mean_share_of_page_mates() -> None:
    neighbours = np.array([[1, 2], [0, 0], [3, 0], [2, 0], [0, 0]], np.uint32)
    degrees = np.array([2, 1, 2, 1, 0], np.int32)
    # pages {0, 1}, {2, 3}, {4}: each of the first four has its one page mate as neighbour, vertex 4 has none
    assert layout_metrics(
        neighbours, degrees, np.arange(5, dtype=np.uint32), 2, 1.0
    ).overlap_ratio == pytest.approx(4 / 5)


def test_page_compactness_of_known_graphs() -> None:
    star = np.zeros((4, 4), bool)
    star[0, 1:] = star[1:, 0] = True
    path = np.zeros((4, 4), bool)
    for i in range(3):
        path[i, i + 1] = path[i + 1, i] = True
    apart = np.zeros((4, 4), bool)
    apart[0, 1] = apart[1, 0] = True
    expected = [1 / 2, (2 - np.sqrt(2)) / 3, 0.0]  # lambda_2 of a star is 1, of the path P4 2 - sqrt 2
    np.testing.assert_allclose(page_compactness(np.stack([star, path, apart])), expected, atol=1e-12)


def test_invert_undoes_an_order() -> None:
    order = random_order(100, 7)
    np.testing.assert_array_equal(order[invert(order)], np.arange(100))


def test_random_order_depends_on_the_seed_alone() -> None:
    np.testing.assert_array_equal(random_order(50, 3), random_order(50, 3))
    assert (random_order(50, 3) != random_order(50, 4)).any()


def test_work_is_counted_beyond_its_limit_and_none_is_left() -> None:
    work = Work(10)
    assert work.spend(10)
    assert work.left == 0
    assert not work.spend(5)
    assert (work.spent, work.left) == (15, 0)
    assert Work().spend(1 << 60)
