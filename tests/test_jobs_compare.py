"""Comparison at equal recall, its plots and its page, on sweeps made by hand."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from indexmill.formats.errors import ConfigError
from indexmill.jobs.cmd_compare import choose_sizes
from indexmill.jobs.compare import compare_rows, cost_at_recall, show, unique_names
from indexmill.jobs.plot import inline_svg, save_plot
from indexmill.jobs.report import headline, write_report

NASTY = '<script>alert("1")</script>&$x$'


def row(index: str, size: int, recall: float, pages: float, policy: str = "page") -> dict[str, Any]:
    return {
        "index": index,
        "policy": policy,
        "L": size,
        "k": 10,
        "recall": recall,
        "pages_read": pages,
        "hops": pages,
        "distances": 20.0 * pages,
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


def result(*names: str) -> dict[str, Any]:
    sweep = [line for i, name in enumerate(names) for line in curve(name, 1 / (i + 1))]
    return {
        "setting": {
            "k": 10,
            "queries": 50,
            "leave_one_out": False,
            "entry": "centroids",
            "threads": 1,
            "beam_width": 4,
        },
        "sweep": sweep,
        "at_recall": compare_rows(sweep),
        "layout": [
            {"index": name, "order": "star", "overlap_ratio": 0.5, "build_id": "ab"} for name in names
        ],
    }


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


def test_the_headline_uses_the_highest_recall_that_all_reach() -> None:
    text = headline(result("a", "b")["at_recall"], 10)
    assert text.startswith("At recall@10 of 0.95, b with page search needs 17.5")
    assert "2.00 times" in text


class _Scripts(HTMLParser):
    """Collects script tags and links to elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        outside = [value for name, value in attrs if name in ("src", "href") and value and "//" in value]
        self.found += [tag] if tag in ("script", "link", "iframe", "img") else outside


def test_the_report_escapes_names_and_needs_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(result(NASTY, "plain"), path)
    page = path.read_text(encoding="utf-8")
    scripts = _Scripts()
    scripts.feed(page)
    assert scripts.found == []
    assert "&lt;script&gt;" in page
    assert page.count("<svg") == 2
    assert "$title" not in page
    assert "prefers-color-scheme" in page


def test_plots_take_the_ink_of_the_page_and_are_the_same_each_time() -> None:
    rows = result("a", "_b")["sweep"]
    svg = inline_svg(rows, "qps")
    assert "currentColor" in svg
    assert "#0a0b0c" not in svg
    assert svg == inline_svg(rows, "qps")
    references = set(re.findall(r'xlink:href="#([^"]+)"', svg))
    assert references <= set(re.findall(r'id="([^"]+)"', svg))


@pytest.mark.parametrize(("name", "magic"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml")])
def test_plots_are_saved_in_the_format_of_their_suffix(tmp_path: Path, name: str, magic: bytes) -> None:
    save_plot(result("a", NASTY)["sweep"], tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_names_of_indexes_are_short_and_never_repeat() -> None:
    assert unique_names(["x/a", "x/b/"]) == ["a", "b"]
    assert unique_names(["x/a", "y/a"]) == ["x/a", "y/a"]
    assert unique_names(["x/a", "x/a"]) == ["x/a (1)", "x/a (2)"]


def test_sweep_sizes_below_k_are_left_out_or_refused() -> None:
    assert choose_sizes(None, 20) == [20, 30, 40, 60, 80, 120, 160, 240]
    assert choose_sizes("40,20,20", 10) == [20, 40]
    for sizes in ("5,20", None):
        with pytest.raises(ConfigError, match="at least 300"):
            choose_sizes(sizes, 300)
