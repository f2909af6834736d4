"""Comparison at equal recall, its intervals, its noise floor and its plots, on sweeps made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.bootstrap import slow_ratio_interval
from tests.support.report import QUERIES, SIZES, measurements

from indexmill.formats.errors import ConfigError
from indexmill.jobs.cli.commands.compare import choose_sizes, print_result
from indexmill.jobs.compare import measure
from indexmill.jobs.compare.contenders import Contender, unique_names
from indexmill.jobs.compare.costs import compare_rows, cost_at_recall, layout_cells, show
from indexmill.jobs.compare.detail import bin_edges, choose_point, paired
from indexmill.jobs.compare.intervals import curve_of, intervals_at
from indexmill.jobs.compare.measure import Measurement
from indexmill.jobs.compare.noise import aa_ratios, noise_floor
from indexmill.jobs.report.summary import markdown
from indexmill.jobs.score.graph import Setting
from indexmill.jobs.score.plot import save_plot
from indexmill.jobs.score.rows import Run
from indexmill.pipeline.bootstrap import crossing, draws, percentiles

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
    low, high = intervals_at([curve_of(base), curve_of(other)], [0.94], 200)[1][0]["pages_read_ratio"]
    expected = slow_ratio_interval(base, other, 0.94, np.concatenate(list(draws(QUERIES, 200))))
    assert (low, high) == pytest.approx(expected, rel=1e-4)
    assert low is not None
    assert high is not None
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
    assert None not in both["pages_read"]


def test_a_recall_that_many_draws_miss_has_an_interval_open_above() -> None:
    curve = curve_of(of(measurements(), "before"))
    at = intervals_at([curve], [0.99], 200)[0][0]  # the largest size's own recall: half of the draws miss it
    low, high = at["pages_read"]
    assert low is not None
    assert high is None
    assert at["pages_read_ratio"] == (None, None)


def test_a_recall_that_many_draws_start_above_has_an_interval_open_below() -> None:
    curve = curve_of(of(measurements(), "before"))
    at = intervals_at([curve], [0.80], 200)[0][0]
    low, high = at["pages_read"]
    assert low is None
    assert high is not None
    assert at["pages_read_ratio"] == (None, None)


def test_draws_that_start_above_the_recall_and_draws_that_miss_it_are_told_apart() -> None:
    recalls = np.array([[0.9, 0.95], [0.8, 0.9], [0.7, 0.9], [0.5, 0.6]])
    costs = np.array([[10.0, 20]] * 4)
    np.testing.assert_allclose(crossing(recalls, costs, 0.8), [-np.inf, 10, 15, np.inf])


@pytest.mark.parametrize(("below", "above"), [(0, 0), (5, 5), (6, 0), (0, 6), (6, 6)])
def test_an_end_is_known_while_no_more_draws_than_one_in_forty_lie_beyond(below: int, above: int) -> None:
    values = np.arange(200.0)
    values[:below], values[200 - above :] = -np.inf, np.inf
    assert percentiles(values) == (None if below > 5 else 5.0, None if above > 5 else 194.0)


@pytest.mark.parametrize("unknown", [0, 3, 5, 6])
def test_unknown_ratios_widen_the_interval_until_there_is_none(unknown: int) -> None:
    values = np.arange(200.0)
    values[100 : 100 + unknown] = np.nan
    expected = (5.0 - unknown, 194.0 + unknown) if unknown <= 5 else (None, None)
    assert percentiles(values) == expected


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


def test_numbers_that_json_does_not_have_are_printed_as_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_result({"layout": [{"overlap_ratio": float("nan"), "fill": float("inf")}]}, [], True)
    assert json.loads(capsys.readouterr().out) == {"layout": [{"overlap_ratio": None, "fill": None}]}


def test_a_summary_as_markdown_has_tables_and_escapes_names() -> None:
    rows = [*curve("a|b", 1), *curve(NASTY, 0.5)]
    result = {
        "setting": {"k": 10},
        "at_recall": compare_rows(rows, (0.94, 0.99)),
        "layout": [
            {"index": "a|b", "order": "star", "fill": 0.93},
            {"index": NASTY, "order": "agglomerative", "fill": 1.0},
        ],
        "noise": {"floor": {"latency_us_mean": 0.3, "latency_us_p99": 0.5, "qps": 0.1}},
        "gate": [{"outcome": "passed", "sentence": "page reads of a_b: 0.5x"}],
    }
    text = markdown(result)
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    for table in tables:
        assert len({line.replace("\\|", "").count("|") for line in table}) == 1, "as many cells in each line"
    costs, layouts = tables
    assert costs[1].startswith("| ---: | --- | --- | ---: | ---: |")
    assert "| 0.94 | page | a\\|b | 30.0 | 1.00x |" in costs[2]
    assert "| 15.0 | 0.50x |" in costs[3]
    assert "not reached" in costs[4]
    assert layouts[1] == "| --- | --- | ---: |"
    assert r'\<script\>alert("1")\</script\>\&\$x\$' in text
    assert "**The machine was not quiet" in text
    assert text.endswith("### Gate\n\n* **passed**: page reads of a\\_b: 0.5x")


def test_a_table_of_layouts_has_no_cell_of_mappings_or_lists() -> None:
    lines = [
        {"index": "a", "order": "star", "build_id": "ab"},
        {"index": "b", "order": {"any": 1}, "choice": {"k": 10}, "tried": [1, 2], "work": 7},
    ]
    headings, cells = layout_cells(lines)
    assert headings == ["index", "order", "work"]
    assert cells == [["a", "star", "-"], ["b", "-", "7"]]
