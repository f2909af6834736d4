"""Recall curves of the benchmarks: figures at a recall, their intervals, and list sizes to measure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.bench import fake_row

from indexmill.jobs.bench.common import curves, intervals
from indexmill.jobs.bench.common.dataset import count_hits


def rows_of(pairs: list[tuple[int, float]]) -> list[dict[str, Any]]:
    return [{"L": size, "recall": recall, "cost": 10.0 * size} for size, recall in pairs]


def test_a_cost_between_two_list_sizes_is_on_the_line_between_them() -> None:
    assert curves.value_at(rows_of([(10, 0.9), (20, 1.0)]), "cost", 0.95) == pytest.approx(150)


def test_a_recall_that_no_two_rows_enclose_is_not_reached() -> None:
    for recalls in ((0.8, 0.94), (0.96, 0.99)):
        assert curves.value_at(rows_of(list(zip((10, 20), recalls, strict=True))), "cost", 0.95) is None


def test_a_coarse_sweep_ends_where_recall_is_high_enough() -> None:
    asked: list[int] = []

    def search(size: int, half: str) -> dict[str, Any]:
        asked.append(size)
        assert half == "tune"
        return {"L": size, "recall": 1 - 1 / size}

    curves.coarse_sweep(search, 0.975)
    assert asked == [10, 14, 20, 28, 40]


def test_list_sizes_lie_at_the_wanted_recalls_and_at_the_ends_where_those_are_out_of_reach() -> None:
    rows = rows_of([(10, 0.90), (20, 0.95), (40, 0.97)])
    assert curves.sizes_at(rows, (0.85, 0.925, 0.96, 0.99)) == [10, 15, 30, 40]


def test_an_interval_holds_the_figure_and_shrinks_with_more_queries() -> None:
    rows = [fake_row(size, "report", 2.0) for size in (10, 20, 30, 45)]
    found = intervals.curve([rows], "pages_read")
    figure = intervals.figure_at(found, 0.95)
    assert figure is not None
    value, low, high = (float(figure[name] or 0) for name in ("value", "low", "high"))
    assert value == pytest.approx(curves.value_at(rows, "pages_read", 0.95))
    assert low < value < high
    few = intervals.Curve(found.sizes, found.hits[:, :, :50], found.costs[:, :, :50])
    fewer = intervals.figure_at(few, 0.95)
    assert fewer is not None
    assert float(fewer["high"] or 0) - float(fewer["low"] or 0) > high - low


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution_where_recall_is_certain() -> None:
    """Slow twin: with the same recall for all queries only the costs are uncertain."""
    random = np.random.default_rng(7)
    costs = random.normal(50, 8, (1, 400))
    hits = np.stack([np.full((1, 400), 9), np.full((1, 400), 10)])
    found = intervals.Curve([10, 20], hits, np.stack([costs, costs]))
    figure = intervals.figure_at(found, 0.95)
    assert figure is not None
    half = 1.96 * costs.std() / 20
    assert figure["low"] == pytest.approx(costs.mean() - half, abs=0.2)
    assert figure["high"] == pytest.approx(costs.mean() + half, abs=0.2)


def test_the_ratio_of_a_curve_to_itself_is_one_without_doubt() -> None:
    found = intervals.curve([[fake_row(size, "report", 2.0) for size in (10, 20, 30, 45)]], "call_us")
    assert intervals.ratio_at(found, found, 0.95) == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_no_interval_is_told_where_many_draws_miss_the_recall() -> None:
    rows = [fake_row(size, "report", 2.0) for size in (20, 30)]
    edge = float(rows[0]["recall"]) + 1e-9
    figure = intervals.figure_at(intervals.curve([rows], "pages_read"), edge)
    assert figure is not None
    assert (figure["low"], figure["high"]) == (None, None)


def test_rounds_count_only_if_all_of_them_reached_the_recall() -> None:
    assert intervals.over_rounds([3.0, 1.0, 2.0]) == {"value": 2.0, "low": 1.0, "high": 3.0}
    assert intervals.over_rounds([3.0, None, 2.0]) is None


def test_ties_count_as_right_and_a_row_that_is_named_twice_is_refused() -> None:
    base = np.array([[0, 0], [3, 4], [4, 3], [9, 9]], np.uint8)
    queries, truth = np.zeros((1, 2), np.uint8), np.array([[0.0, 25.0]], np.float32)
    assert count_hits(np.array([[0, 2]]), base, queries, truth, 2).tolist() == [2]
    assert count_hits(np.array([[3, 0]]), base, queries, truth, 1).tolist() == [0]
    with pytest.raises(ValueError, match="twice"):
        count_hits(np.array([[1, 1]]), base, queries, truth, 2)
