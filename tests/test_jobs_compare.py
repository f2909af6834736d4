"""Comparison at equal recall, its intervals, its noise floor and its plots, on sweeps made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.bootstrap import slow_ratio_interval
from tests.report_support import QUERIES, SIZES, measurements

from indexmill.formats.errors import ConfigError
from indexmill.jobs import measure
from indexmill.jobs.cmd_compare import choose_sizes
from indexmill.jobs.contenders import Contender, unique_names
from indexmill.jobs.costs import compare_rows, cost_at_recall, show
from indexmill.jobs.detail import bin_edges, choose_point, paired
from indexmill.jobs.intervals import crossing, curve_of, draws, intervals_at
from indexmill.jobs.measure import Measurement
from indexmill.jobs.noise import aa_ratios, noise_floor
from indexmill.jobs.plot import save_plot
from indexmill.jobs.score import Run, Setting

NASTY = '<script>alert("1")</script>&$x$'


def row(index: str, size: int, recall: float, pages: float, policy: str = "page") -> dict[str, Any]:
    return {
        "index": index,
        "again": False,
        "policy": policy,
        "L": size,
        "k": 10,
        "recall": recall,
        "pages_read": pages,
        "latency_us_mean": 100.0 * pages,
        "latency_us_p99": 200.0 * pages,
        "qps": 1000.0 / pages,
    }


def curve(index: str, factor: float) -> list[dict[str, Any]]:
    return [
        row(index, 10, 0.80, 10 * factor),
        row(index, 20, 0.92, 20 * factor),
        row(index, 40, 0.96, 40 * factor),
    ]


def of(found: list[Measurement], name: str) -> list[Measurement]:
    return [m for m in found if (m.row["index"], m.row["policy"]) == (name, "pipeline")]


def test_cost_is_linear_between_the_two_neighbouring_rows() -> None:
    assert cost_at_recall(curve("a", 1), "pages_read", 0.94).value == pytest.approx(30)
    assert cost_at_recall(curve("a", 1), "pages_read", 0.92).value == pytest.approx(20)


def test_a_recall_above_the_curve_is_not_reached() -> None:
    at = cost_at_recall(curve("a", 1), "pages_read", 0.98)
    assert at.value is None
    assert show(at.value, at.bound) == "not reached"


def test_a_recall_below_the_curve_is_only_a_bound_and_has_no_ratio() -> None:
    at = cost_at_recall(curve("a", 1), "pages_read", 0.70)
    assert at.bound
    assert show(at.value, at.bound) == "≤ 10.0"
    lines = compare_rows([*curve("a", 1), *curve("b", 2)], targets=[0.70])
    assert [line["pages_read_ratio"] for line in lines] == [None, None]


def test_ratios_are_against_the_first_index() -> None:
    lines = compare_rows([*curve("a", 1), *curve("b", 0.5)], targets=[0.94])
    assert [line["pages_read_ratio"] for line in lines] == [pytest.approx(1.0), pytest.approx(0.5)]
    assert lines[1]["qps_ratio"] == pytest.approx(2.0)


def test_the_queries_of_a_measurement_have_the_means_of_its_row() -> None:
    for runs in (2, 3):
        for m in measurements():
            cut = Measurement(m.row, m.runs[:runs])
            means = [float(run.counters["latency_us"].mean()) for run in cut.runs]
            assert cut.counter("latency_us").mean() == pytest.approx(np.median(means), rel=1e-6)


def test_intervals_are_those_of_a_loop_over_draws() -> None:
    found = measurements()
    base, other = of(found, "before"), of(found, "after")
    low, high = intervals_at([curve_of(base), curve_of(other)], [0.94], 200)[1][0]["pages_read_ratio"] or (
        0,
        0,
    )
    expected = slow_ratio_interval(base, other, 0.94, np.concatenate(list(draws(QUERIES, 200))))
    assert (low, high) == pytest.approx(expected, rel=1e-4)
    assert low < 0.5 < high


def test_draws_are_queries_with_replacement_and_the_same_each_time() -> None:
    weights = np.concatenate(list(draws(50, 300)))
    counts = weights * 50
    np.testing.assert_allclose(counts, counts.round(), atol=1e-4)
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
    assert counts.var() == pytest.approx(1 - 1 / 50, rel=0.05)
    np.testing.assert_array_equal(weights, np.concatenate(list(draws(50, 300))))


def test_an_index_against_itself_has_a_ratio_of_one_for_certain() -> None:
    curve = curve_of(of(measurements(), "before"))
    both = intervals_at([curve, curve], [0.90], 100)[1][0]
    assert both["pages_read_ratio"] == (1.0, 1.0)
    assert both["pages_read"] is not None


def test_a_recall_that_many_draws_miss_has_no_interval() -> None:
    curve = curve_of(of(measurements(), "before"))
    assert (
        intervals_at([curve], [0.99], 200)[0][0]["pages_read"] is None
    )  # the mean itself: half of the draws


def test_draws_that_start_above_the_recall_cost_what_the_smallest_size_costs() -> None:
    recalls, costs = (
        np.array([[0.9, 0.95], [0.7, 0.9], [0.5, 0.6]]),
        np.array([[10.0, 20], [10, 20], [10, 20]]),
    )
    np.testing.assert_allclose(crossing(recalls, costs, 0.8), [10, 15, np.nan])


def test_the_noise_floor_is_what_the_first_index_differs_from_itself() -> None:
    rows = [m.row for m in measurements()]
    floor = noise_floor(rows)
    assert floor["pages_read"] == 0
    assert 0 < floor["qps"] < 0.05
    loud = [r | {"qps": r["qps"] * (1.3 if r["again"] else 1)} for r in rows]
    assert noise_floor(loud)["qps"] == pytest.approx(0.3, abs=0.05)
    quick = [r | {"qps": r["qps"] / (1.3 if r["again"] else 1)} for r in rows]
    assert noise_floor(quick)["qps"] == pytest.approx(0.3, abs=0.05)
    assert len(aa_ratios(rows)) == 2 * len(SIZES)


def test_queries_are_looked_at_where_all_indexes_have_the_same_recall() -> None:
    rows = [m.row for m in measurements()]
    point = choose_point(rows)
    assert (point.policy, point.recall) == ("pipeline", 0.95)
    assert point.sizes == {"before": 35, "after": 35}
    only_low = [r for r in rows if r["L"] < 40]
    assert choose_point(only_low).recall == 0.90
    assert choose_point([r for r in rows if r["L"] < 20]).recall is None


def test_paired_differences_are_of_the_same_query() -> None:
    base = np.array([10.0, 20, 30, 40])
    found = paired(base, base[::-1] - 5)
    assert found["difference"] == -5
    assert (found["less"], found["equal"], found["more"]) == (0.5, 0, 0.5)
    assert found["difference_low"] < -5 < found["difference_high"]
    assert sum(found["counts"]) == 4


def test_no_outlier_presses_a_histogram_into_one_bar() -> None:
    values = np.append(np.arange(10_000) % 30, 1e6).astype(np.float64)
    edges = bin_edges(values)
    assert edges.tolist() == list(range(0, 31))
    assert len(bin_edges(np.full(5, 7.0))) == 2


@pytest.mark.parametrize(("name", "magic"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml")])
def test_plots_are_saved_in_the_format_of_their_suffix(tmp_path: Path, name: str, magic: bytes) -> None:
    save_plot([*curve("a", 1), *curve(NASTY, 0.5)], tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_names_of_indexes_are_short_and_never_repeat() -> None:
    assert unique_names(["x/a", "x/b/"]) == ["a", "b"]
    assert unique_names(["x/a", "y/a"]) == ["x/a", "y/a"]
    assert unique_names(["x/a", "x/a"]) == ["x/a (1)", "x/a (2)"]
    assert unique_names(["x/\udcff", "x/b"]) == ["?", "b"]


def test_sweep_sizes_below_k_are_left_out_or_refused() -> None:
    assert choose_sizes(None, 20) == [20, 25, 32, 40, 50, 64, 80, 100, 130, 170, 240]
    assert choose_sizes("40,20,20", 10) == [20, 40]
    for sizes in ("5,20", None):
        with pytest.raises(ConfigError, match="at least 300"):
            choose_sizes(sizes, 300)


def test_indexes_take_turns_and_the_whole_sweep_comes_before_any_repetition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, int]] = []

    def search_once(index: str, queries: object, size: int, setting: Setting) -> Run:
        asked.append((index, size))
        return measurements()[0].runs[0]

    monkeypatch.setattr(measure, "search_once", search_once)
    monkeypatch.setattr(
        measure, "summarise", lambda index, size, setting, runs: {"L": size, "repeat": len(runs)}
    )
    a, b = (Contender(name, name, {}) for name in "ab")  # type: ignore[arg-type]
    turns = [[measure.Turn(one, Setting(), size) for one in (a, b)] for size in (10, 20)]
    found = measure.measure(turns, None, 2)  # type: ignore[arg-type]
    assert asked == [("a", 10), ("b", 10), ("a", 20), ("b", 20), ("b", 10), ("a", 10), ("b", 20), ("a", 20)]
    assert [(m.row["index"], m.row["L"], m.row["repeat"]) for m in found] == [
        ("a", 10, 2), ("b", 10, 2), ("a", 20, 2), ("b", 20, 2)
    ]  # fmt: skip
