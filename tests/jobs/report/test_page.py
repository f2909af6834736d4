"""The report of a comparison: its files, and its page in a headless Chromium."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from selenium.webdriver.common.keys import Keys
from tests.support.browser import Browser, chromium
from tests.support.report import NODES, PATHS, POLICIES, QUERIES, SIZES, comparison

from indexmill.formats.errors import ConfigError
from indexmill.jobs.report import page as page_module
from indexmill.jobs.report.charts import latency_curves, page_histogram, ratios, recall_curves, stacked_bars
from indexmill.jobs.report.explorer import compact_paths
from indexmill.jobs.report.frontier import Costs, known_costs, unbeaten
from indexmill.jobs.report.markup import Markup, element, embedded_json
from indexmill.jobs.report.page import render
from indexmill.jobs.report.series import Series
from indexmill.jobs.report.text import build_cells, headline
from indexmill.jobs.report.write import check_folder, write_report

#: Names that a stranger's index may carry.
HOSTILE = (
    "</script><script>window.ran = 1</script>",
    '"><img src=x onerror="window.ran = 1">',
    "'-->]]>{{constructor}}&amp;\u2028${1}",
)

#: Marks and figures of charts that lie outside of their chart.
OUTSIDE = (
    "return [...document.querySelectorAll('.chart svg')].flatMap(p => { const f = p.getBoundingClientRect();"
    " return [...p.querySelectorAll('.mark-symbol path, .mark-rect path, .mark-text text')].filter(m => {"
    " const b = m.getBoundingClientRect();"
    " return b.left < f.left - 1 || b.right > f.right + 1 || b.top < f.top - 1 || b.bottom > f.bottom + 1"
    " }); }).map(m => m.outerHTML)"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "out"
    write_report(comparison(), folder)
    return folder


@pytest.fixture
def page(browser: Browser, report: Path) -> Browser:
    browser.prefer("light")
    browser.open(report / "index.html")
    return browser


def test_a_report_holds_every_number_as_json_and_parquet(report: Path) -> None:
    found = json.loads((report / "report.json").read_text())
    runs = 3 * len(SIZES) * len(POLICIES)
    assert len(found["sweep"]) == runs
    assert {"setting", "at_recall", "noise", "detail", "layout", "build", "provenance"} <= found.keys()
    assert pq.read_table(report / "sweep.parquet").num_rows == runs
    queries = pq.read_table(report / "queries.parquet")
    assert queries.num_rows == 3 * (runs + 3) * QUERIES
    assert {"index", "again", "point", "policy", "L", "run", "query", "recall", "pages_read"} <= set(
        queries.column_names
    )
    one = next(
        row for row in found["sweep"] if (row["index"], row["policy"], row["L"]) == ("after", "beam", 20)
    )
    same = [("index", "after"), ("policy", "beam"), ("L", 20), ("point", False)]
    pages = [r["pages_read"] for r in queries.to_pylist() if all(r[key] == value for key, value in same)]
    assert sum(pages) / (3 * QUERIES) == pytest.approx(one["pages_read"])
    assert pq.read_table(report / "paths.parquet").num_rows == comparison().paths.num_rows


def test_units_are_a_table_where_they_were_counted() -> None:
    made = comparison()
    assert 'id="units"' not in render(made.result, made.paths)
    counted = {"units_64KiB": 9.0, "units_64KiB_bound": False, "units_64KiB_ratio": 0.75}
    lines = [line | counted for line in made.result["at_recall"]]
    page = render(made.result | {"units": [65536], "at_recall": lines}, made.paths)
    assert 'id="units"' in page
    assert "576.0 KiB" in page


def test_the_frontier_has_what_no_other_index_beats_in_reads_time_and_memory() -> None:
    costs = {
        "fast": Costs(30.0, 1.0, 9e6), "small": Costs(40.0, 2.0, 1e6), "few": Costs(20.0, 60.0, 9e6),
        "same": Costs(20.0, 60.0, 9e6), "worse": Costs(30.0, 2.0, 9e6),
    }  # fmt: skip
    assert unbeaten(costs) == {"fast", "small", "few", "same"}


def test_the_frontier_leaves_out_what_is_not_known() -> None:
    made = comparison(("a", "b", "c", "<d>"))
    result = made.result
    assert list(known_costs(result)) == ["a", "b", "c", "<d>"]
    page = render(result, made.paths)
    assert 'id="frontier"' in page
    assert "&lt;d&gt;" in page
    result["build"][0]["seconds"] = {"order": 0.0}  # taken over from another build
    result["build"][1]["peak_memory_bytes"] = None
    result["build"][2]["seconds"] = {}
    assert list(known_costs(result)) == ["<d>"]
    assert 'id="frontier"' not in render(result, made.paths)
    result["detail"]["recall"] = None
    assert known_costs(result) == {}


def test_the_frontier_counts_all_stages_that_order_nodes() -> None:
    made = comparison(("whole", "districts", "auto", "in part"))
    rows = made.result["build"]
    districts = {"borders": 1.0, "settle": 4.0, "districts": 8.0, "rests": 2.0, "order": 0.5}
    rows[1]["seconds"] = {"build": 60.0, **districts}
    rows[2] |= {"of": "layout only", "seconds": {"unpack": 9.0, "sample": 0.0, "try": 30.0, "emit": 5.0}}
    rows[3]["seconds"] = {"build": 60.0, **districts, "settle": 0.0}  # a build that was killed and resumed
    seconds = {name: one.seconds for name, one in known_costs(made.result).items()}
    assert seconds == {"whole": 2.0, "districts": 15.5, "auto": 30.0}
    cells = {row[0]: row[3] for row in build_cells(rows)[1]}
    assert cells == {"whole": "2.0", "districts": "15.5", "auto": "30.0", "in part": "-"}
    assert 'id="frontier"' in render(made.result, made.paths)


def test_a_report_replaces_the_one_before_and_leaves_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for names in (("a", "b"), ("c", "d")):
        write_report(comparison(names), tmp_path)
    assert "d against c" in (tmp_path / "index.html").read_text()
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not list(tmp_path.glob(".*"))


def test_the_headline_says_who_needs_fewer_page_reads_and_how_sure_that_is() -> None:
    result = comparison().result
    text = headline(result["at_recall"], 10, "pipeline", 0.95)
    assert text.startswith("At recall@10 of 0.95, after needs 17.")
    assert "before 3" in text
    assert "0.50x (95% interval 0." in text
    assert "in common" in headline(result["at_recall"], 10, "pipeline", None)


def test_the_page_opens_without_console_message_or_request(page: Browser, report: Path) -> None:
    assert page.requests() == [(report / "index.html").as_uri()]
    assert page.console() == []
    assert (report / "index.html").stat().st_size < 1_500_000
    assert "unsafe" not in (report / "index.html").read_text().partition("<title>")[0]
    assert page.run("return document.querySelector('.lead').textContent").startswith("At recall@10 of 0.95")


def test_every_chart_has_its_marks_inside_its_frame(page: Browser) -> None:
    def count(selector: str) -> int:
        return int(page.run("return document.querySelectorAll(arguments[0]).length", selector))

    assert count(".chart script") == 0
    assert count(".chart svg") == count(".chart") == 2 + 4 + 1 + 4 + 1 + 1 + 1
    assert count("#curves .mark-symbol path") == 2 * 2 * len(SIZES) * len(POLICIES)
    assert count("#curves .mark-line path") == 2 * 2 * len(POLICIES)
    assert count("#costs .mark-symbol path") == 3 * 4
    assert count("#queries .mark-area path") == 2
    assert count("#queries .mark-line path") == 2 + 3  # outlines; latencies, those of the A/A run among them
    assert count("#queries .mark-rect path") > 4
    assert count("#build .mark-rect path") == 2 * 3
    assert page.run(OUTSIDE) == []
    broken = page.run("return document.querySelector('main').innerHTML.match(/NaN|Infinity|undefined/g)")
    assert broken is None


def test_a_mark_near_the_pointer_says_what_it_is(page: Browser) -> None:
    page.point("#curves .mark-symbol path")
    told = "const t = document.getElementById('tip'); return t.hidden ? '' : t.textContent"
    assert page.run(told).startswith("before, beam\nL = 10\nrecall@10 0.8000")
    page.point("h2")
    assert page.run(told) == ""
    page.point("#build .mark-rect path")
    assert page.run(told) == "before\nbuild: 60.0 seconds"
    page.point(".tile")
    assert page.run(told).startswith("Page 0: read 1 of 8")


def test_charts_take_the_width_that_there_is(page: Browser) -> None:
    size = page.driver.get_window_size()
    widest = (
        "return new Promise(r => setTimeout(() => r([...document.querySelectorAll('.chart')].map("
        "c => [c.clientWidth, c.querySelector('svg').getBoundingClientRect().width,"
        " parseFloat(getComputedStyle(c.querySelector('text')).fontSize)])), 300))"
    )
    try:
        page.driver.set_window_size(560, 900)
        for room, width, letters in page.run(widest):
            assert 0.8 * room < width <= room + 1
            assert letters >= 12
    finally:
        page.driver.set_window_size(size["width"], size["height"])


@pytest.mark.parametrize("width", [375, 320])
def test_ratios_of_long_names_stand_in_order_on_a_narrow_screen(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    names = ("reference-of-layouts", "agglomerative-layout", "star-of-neighbours-1")
    assert {len(name) for name in names} == {20}
    write_report(comparison(names), tmp_path)
    browser.take_width(width)
    try:
        browser.open(tmp_path / "index.html")
        charts = browser.run(
            "return [...document.querySelectorAll('#costs .chart')].map(c =>"
            " [...c.querySelectorAll('.mark-symbol path')].map(m => {"
            " const b = m.getBoundingClientRect(); return [m.getAttribute('aria-label'), b.left + b.width / 2]; }))"
        )
        labels = browser.run(
            "return [...document.querySelectorAll('#costs .role-axis-label text')].map(e => e.textContent)"
        )
        outside = browser.run(OUTSIDE.replace(".chart svg", "#costs .chart svg"))
        assert browser.console() == []
    finally:
        browser.take_width(None)
    assert len(charts) == 4
    for marks in charts:
        shown = [(float(re.search(r": ([\d.]+)x", said)[1]), place) for said, place in marks]  # type: ignore[index]
        assert len(shown) == 2 * 3
        for (low, left), (high, right) in pairwise(sorted(shown)):
            assert left <= right + 0.01, (low, high)
        assert max(shown)[1] > min(shown)[1]
    assert outside == []
    assert sum(label.startswith("0.95: ") for label in labels) == 4 * 2
    assert any("…" in label for label in labels)


@pytest.mark.parametrize(
    "broken",
    [
        '{"mark":{"type":"nonsense"},"encoding":{}}',
        '{"data":{"values":[{}]},"transform":[{"calculate":"datum.a.b","as":"c"}],"mark":"point"}',
        "{",
    ],
)
def test_a_chart_that_cannot_be_drawn_says_so_and_the_others_are_drawn(
    browser: Browser, report: Path, tmp_path: Path, broken: str
) -> None:
    chart = r'(<div class="chart"%s><script type="application/json">).*?(?=</script>)'
    text = (report / "index.html").read_text()
    for attributes in ("", ' data-role="found"'):
        text, count = re.subn(chart % attributes, lambda found: found[1] + broken, text, count=1)
        assert count == 1
    (tmp_path / "index.html").write_text(text)
    browser.open(tmp_path / "index.html")
    first, *others, explorer = browser.run(
        "const all = [...document.querySelectorAll('.chart:not([data-role])')];"
        "all.push(document.querySelector('[data-role=found]'));"
        "return all.map(c => c.querySelector('svg') ? '' : c.textContent)"
    )
    assert first == "This chart could not be drawn; its values are in the tables."
    assert explorer.startswith("This chart could not be drawn; ")
    assert set(others) == {""}
    assert browser.run("return document.querySelectorAll('.side .tile').length") == 8 + 4
    browser.run("document.querySelector('[data-do=after]').click()")
    assert browser.run("return document.querySelector('[data-role=query]').value") == "1"


def test_a_page_holds_the_licences_of_the_library_that_draws(page: Browser) -> None:
    title, told, is_open = page.run(
        "const d = document.querySelector('footer details');"
        "return [d.querySelector('summary').textContent, d.querySelector('pre').textContent, d.open]"
    )
    assert (title, is_open) == ("Licences of the library that draws the charts", False)
    assert told == (Path(page_module.__file__).parent / "vega/LICENSE").read_text()
    for holder in (
        "Interactive Data Lab",
        "Mike Bostock",
        "Ariya Hidayat",
        "Jason Davies",
        "Evgeny Poberezkin",
    ):
        assert holder in told


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_follow_the_theme(page: Browser, scheme: str) -> None:
    page.prefer(scheme)
    fill, colour, label, soft = page.run(
        "const s = getComputedStyle(document.documentElement), c = document.querySelector('#curves .chart');"
        "return [getComputedStyle(c.querySelector('.mark-symbol path')).fill, s.getPropertyValue('--s0'),"
        " getComputedStyle(c.querySelector('.role-axis-label text')).fill, s.getPropertyValue('--soft')]"
    )
    assert (fill, label) == (rgb(colour), rgb(soft))


def test_the_explorer_follows_hops_pages_and_queries(page: Browser) -> None:
    def said() -> list[str]:
        return list(
            page.run("return [...document.querySelectorAll('[data-role=said]')].map(e => e.textContent)")
        )

    assert said() == [
        "8 of 8 pages read, 16 vertices expanded, 1 of 1 right answer at hand",
        "4 of 4 pages read, 8 vertices expanded, 1 of 1 right answer at hand",
    ]
    tiles = "return [...document.querySelectorAll('.side')].map(s => s.querySelectorAll('.tile').length)"
    assert page.run(tiles) == [8, 4]
    assert page.run("return document.querySelectorAll('.tile .cell').length") == (8 + 4) * NODES
    assert page.run("return document.querySelectorAll('.cell.used').length") == 2 * (8 + 4)
    assert page.run("return document.querySelectorAll('.core').length") == 2

    page.run(
        "const h = document.querySelector('[data-role=reads]'); h.value = 3; h.dispatchEvent(new Event('input'))"
    )
    assert said() == [
        f"3 of {n} pages read, 6 vertices expanded, 0 of 1 right answer at hand" for n in (8, 4)
    ]
    assert page.run("return document.querySelectorAll('.side .tile.later').length") == 5 + 1

    tile = "document.querySelectorAll('.side')[1].querySelectorAll('.tile')[3]"
    page.run(f"{tile}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    detail = page.run("return document.querySelectorAll('[data-role=page]')[1].textContent")
    assert detail == "Page 21: read 4 of 4, hop 2; 2 of 6 nodes expanded, the nearest at 1; 1 right answer"
    assert page.run(f"return {tile}.classList.contains('chosen')")

    page.run("document.querySelector('[data-do=after]').click()")
    assert page.run("return document.querySelector('[data-role=query]').value") == "1"
    assert said()[0].startswith("8 of 8 pages read")
    assert page.run("return document.querySelector('[data-role=query]').length") == PATHS
    assert page.console() == []


def test_the_explorer_plays_and_stops_at_the_last_hop(page: Browser) -> None:
    page.run(
        "const real = window.setInterval; window.setInterval = (f) => real(f, 5);"
        "document.querySelector('[data-do=play]').click()"
    )
    page.run("return new Promise(r => setTimeout(r, 200))")
    state = "return ['[data-do=play]', '[data-role=reads]'].map(e => document.querySelector(e))"
    assert page.run(f"{state}.map(e => e.value || e.textContent)") == ["Play", "8"]


def test_the_explorer_is_used_by_keyboard(page: Browser) -> None:
    focused = (
        "const a = document.activeElement;"
        "return [a.getAttribute('role'), a.getAttribute('aria-label'), a.getAttribute('aria-selected')]"
    )
    shown = "return document.querySelector('[data-role=page]').textContent"
    page.run("document.querySelector('[data-role=layout]').focus()")
    page.press(Keys.TAB)
    role, name, chosen = page.run(focused)
    assert (role, name.partition(":")[0], chosen) == ("option", "Page 0", "false")
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    role, name, chosen = page.run(focused)
    assert (name, chosen) == (page.run(shown), "true")
    assert name.startswith("Page 14: read 3 of 8")
    page.press(Keys.END, Keys.ARROW_RIGHT)
    assert page.run(shown).startswith("Page 49: read 8 of 8")
    page.press(Keys.HOME)
    assert page.run(shown).startswith("Page 0: read 1 of 8")
    page.press(Keys.SPACE)
    assert page.run(focused)[2] == "false"
    assert page.run(shown).startswith("Choose a page")
    page.press(Keys.ENTER, Keys.ESCAPE)
    assert page.run(shown).startswith("Choose a page")
    page.press(Keys.TAB)  # past all other pages
    assert page.run("return document.activeElement.getAttribute('aria-label')") == "Layout right"
    assert page.console() == []


def test_all_that_takes_keys_or_shows_a_figure_has_a_name(page: Browser) -> None:
    told = page.told()
    roles = {"button", "combobox", "slider", "listbox", "option", "region", "image"}
    roles |= {"graphics-document", "graphics-symbol"}
    assert [role for role, name in told if role in roles and not name.strip()] == []
    assert roles <= {role for role, _ in told} | {"image"}
    symbols = [name for role, name in told if role == "graphics-symbol"]
    assert any(name.startswith("Y-axis titled 'page reads a query'") for name in symbols)
    assert sum("L = 10" in name for name in symbols) == 2 * 2 * len(POLICIES)
    names = [name for role, name in told if role == "option"]
    assert sum(name.startswith("Page ") for name in names) == 8 + 4
    assert any("before 1 of 1 after 8 pages; after 1 of 1 after 4 pages" in name for _, name in told)


def test_a_screen_reader_is_not_told_of_every_read_while_it_plays(page: Browser) -> None:
    live = "return document.querySelector('[data-role=said]').getAttribute('aria-live')"
    assert page.run(live) == "polite"
    page.run("document.querySelector('[data-do=play]').click()")
    assert page.run(live) == "off"
    page.run("document.querySelector('[data-do=play]').click()")
    assert page.run(live) == "polite"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_of_every_series_stand_out(page: Browser, scheme: str) -> None:
    page.prefer(scheme)
    card, *colours = page.run(
        "const s = getComputedStyle(document.documentElement);"
        "return ['--card', '--s0', '--s1', '--s2', '--s3', '--s4', '--s5'].map(n => s.getPropertyValue(n).trim())"
    )
    assert min(contrast(colour, card) for colour in colours) >= 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(page: Browser, scheme: str) -> None:
    page.prefer(scheme)
    paper, ink, soft, card = page.run(
        "const s = getComputedStyle(document.documentElement);"
        "return ['--paper', '--ink', '--soft', '--card'].map(n => s.getPropertyValue(n).trim())"
    )
    for front in (ink, soft):
        for back in (paper, card):
            assert contrast(front, back) >= 4.5, (front, back)
    background = page.run("return getComputedStyle(document.body).backgroundColor")
    assert background == rgb(paper)


def rgb(colour: str) -> str:
    """A colour of the style as the browser tells it."""
    return f"rgb({', '.join(str(int(colour.strip()[i : i + 2], 16)) for i in (1, 3, 5))})"


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two colours as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_hostile_names_are_shown_and_do_not_run(browser: Browser, tmp_path: Path) -> None:
    made = comparison(HOSTILE)
    made.result["provenance"]["machine"]["cpu"] = HOSTILE[1]
    made.result["build"][0]["seconds"][HOSTILE[1]] = 1.0
    made.result["layout"][0] |= {"order": HOSTILE[0], "overlap_ratio": float("nan"), "note": "\ud800"}
    made.result["provenance"]["indexes"][0]["manifest"]["layout"]["fill"] = float("inf")
    write_report(made, tmp_path)
    browser.open(tmp_path / "index.html")
    assert browser.run("return window.ran") is None
    assert browser.console() == []
    assert len(browser.requests()) == 1
    assert json.loads((tmp_path / "report.json").read_text())["layout"][0]["overlap_ratio"] is None
    assert (
        browser.run("return document.querySelectorAll('script, img').length") == 1 + 3 + 1
    )  # the paths, the library that draws, and the page's own
    names = browser.run("return [...document.querySelectorAll('#curves .legend li')].map(e => e.textContent)")
    assert names[: len(HOSTILE)] == list(HOSTILE)
    options = browser.run("return [...document.querySelector('[data-role=layout]').options].map(o => o.text)")
    assert [" ".join(o.split()) for o in options] == [" ".join(name.split()) for name in HOSTILE]


def test_a_script_that_slips_in_is_not_allowed_to_run(browser: Browser, report: Path, tmp_path: Path) -> None:
    text = (report / "index.html").read_text().replace("<main>", "<main><script>window.ran = 1</script>")
    (tmp_path / "index.html").write_text(text)
    browser.open(tmp_path / "index.html")
    assert browser.run("return window.ran") is None
    assert any("Content Security Policy" in message for message in browser.console())


def test_one_index_alone_has_a_page_too(browser: Browser, tmp_path: Path) -> None:
    write_report(comparison(("alone",)), tmp_path)
    browser.open(tmp_path / "index.html")
    assert browser.console() == []
    assert browser.run("return document.querySelectorAll('.side').length") == 1
    assert "alone needs" in browser.run("return document.querySelector('.lead').textContent")


def test_a_noisy_machine_is_called_one(browser: Browser, report: Path, tmp_path: Path) -> None:
    assert 'class="warning"' not in (report / "index.html").read_text()
    made = comparison()
    made.result["noise"]["floor"]["qps"] = 0.4
    write_report(made, tmp_path)
    browser.open(tmp_path / "index.html")
    assert "by up to 40%" in browser.run("return document.querySelector('.warning').textContent")


def test_a_verdict_of_a_gate_stands_in_the_page(browser: Browser, tmp_path: Path) -> None:
    made = comparison()
    verdict: dict[str, Any] = {
        "passed": False,
        "outcome": "failed",
        "sentence": "after: page reads <b>1.1x</b>",
    }
    made.result["gate"] = [
        verdict,
        {**verdict, "passed": True, "outcome": "passed"},
        {**verdict, "passed": True, "outcome": "within noise"},
        {**verdict, "outcome": "inconclusive"},
    ]
    write_report(made, tmp_path)
    browser.open(tmp_path / "index.html")
    words = browser.run("return [...document.querySelectorAll('#gate li > b')].map(e => e.textContent)")
    assert words == ["failed", "passed", "within noise", "inconclusive"]
    lead = browser.run("return document.querySelector('#gate p').textContent")
    assert "1 of 4 tolerances are exceeded" in lead
    assert "1 of 4 figures are lost in the noise" in lead


def test_a_ratio_that_is_missing_says_which_curve_lies_where() -> None:
    result = comparison().result
    base, line = (dict(one) for one in result["at_recall"][:2])
    exact = {"pages_read": 10.0, "pages_read_bound": False, "pages_read_ratio": None}
    none, above = exact | {"pages_read": None}, exact | {"pages_read_bound": True}
    for ours, theirs, said in (
        (none, exact, "not reached"),
        (above, exact, "starts above"),
        (exact, none, "not reached by before"),
        (exact, above, "before starts above"),
    ):
        lines = [base | theirs, line | ours]
        drawn = ratios(lines, result["noise"]["floor"], Series(("before", "after"), POLICIES, "beam"), "beam")
        row = drawn["pages_read"]["data"]["values"][0]
        assert (row["ratio"], row["tip"]) == (None, said)


def test_a_page_without_script_says_where_the_numbers_are() -> None:
    made = comparison()
    assert "The charts and the page explorer need JavaScript" in render(made.result, made.paths)


def test_what_has_no_logarithm_is_left_out_or_at_the_end_of_its_axis() -> None:
    rows = [row | {"recall": 1.0, "pages_read": 0.0} for row in comparison().result["sweep"]]
    spec = recall_curves(rows, Series(("before", "after"), POLICIES, "beam"), "pages_read", "page reads")
    assert {row["cost"] for row in spec["data"]["values"]} == {None}
    assert {row["miss"] for row in spec["data"]["values"]} == {0.5 / (QUERIES * 10)}


def test_a_histogram_tells_of_all_queries() -> None:
    result = comparison().result
    series = Series(("before", "after"), POLICIES, "beam")
    rows = page_histogram(result["detail"], series)["data"]["values"]
    for name in series.names:
        assert sum(row["share"] for row in rows if row["index"] == name) == pytest.approx(100)
        ends = [row["pages"] for row in rows if row["index"] == name and "tip" not in row]
        assert len(ends) == 2
    again = [row["again"] for row in latency_curves(result["detail"], series)["data"]["values"]]
    assert again.count(True) * 2 == again.count(False)


def test_a_bar_tells_of_each_part() -> None:
    spec = stacked_bars("Bytes", "KiB", [("<a>", {"used": (1.25, "red"), "unused": (0.0, "grey")})])
    assert [row["tip"] for row in spec["data"]["values"]] == ["<a>\nused: 1.2 KiB", "<a>\nunused: 0.0 KiB"]


def test_an_index_that_reads_nothing_has_a_page_too(browser: Browser, tmp_path: Path) -> None:
    made = comparison()
    for row in [*made.result["sweep"], *made.result["at_recall"]]:
        if row["index"] == "after":
            row |= {"pages_read": 0.0, "pages_read_ratio": 0.0, "pages_read_ratio_low": 0.0}
    write_report(made, tmp_path)
    browser.open(tmp_path / "index.html")
    assert browser.console() == []
    assert (
        browser.run("return document.querySelector('main').innerHTML.match(/NaN|Infinity|undefined/g)")
        is None
    )


def test_the_library_that_draws_is_as_published() -> None:
    folder = Path(page_module.__file__).parent / "vega"
    table = re.findall(
        r"^\| `(\S+)` \|.*`([0-9a-f]{64})` \|$", (folder / "README.md").read_text(), re.MULTILINE
    )
    assert len(table) == 3
    for name, digest in table:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_a_distance_that_is_not_finite_stands_as_null_in_the_page() -> None:
    made = comparison()
    kinds = made.paths["kind"].to_pylist()
    endless = [float("inf") if kind == "expand" else 1.0 for kind in kinds]
    column = made.paths.schema.get_field_index("distance")
    paths = made.paths.set_column(column, "distance", pa.array(endless, pa.float32()))
    (first, *_), *_ = compact_paths(paths, {"before": NODES, "after": NODES}, ("before", "after"))
    assert {score for *_, score in first["used"]} == {None}


def test_the_costs_of_a_layout_are_not_called_those_of_a_build() -> None:
    made = comparison()
    made.result["build"][1]["of"] = "layout only"
    text = render(made.result, made.paths)
    assert text.count("layout only") >= 2
    assert "layout only" not in render(comparison().result, made.paths).replace("of the layout only", "")


def test_paths_become_places_on_pages() -> None:
    found = compact_paths(comparison().paths, {"before": NODES, "after": NODES}, ("before", "after"))
    assert len(found) == PATHS
    after = found[1][1]
    assert after["reads"] == [[100, 1], [107, 1], [114, 2], [121, 2]]
    assert after["used"][:3] == [[0, 0, 1, 4.0], [0, 3, 1, 7.0], [1, 0, 2, 3.0]]
    assert after["found"] == [[3, 0, 1, 1.0], [3, 1, 0, 1.5]]


def test_elements_escape_all_that_is_no_markup() -> None:
    made = element("p", "<b>", Markup("<i>"), None, title='"&<', data_tip=1.23456, hidden=True, class_=None)
    assert made == '<p title="&quot;&amp;&lt;" data-tip="1.23" hidden>&lt;b&gt;<i></p>'
    assert "<" not in embedded_json(["</script>", "<!--", "&"])
    with pytest.raises(ValueError, match="Out of range"):
        embedded_json(float("nan"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("report.html", r"a report is a folder; pass --out .*report/ and open index\.html"),
        ("file", "is a file"),
        ("none/report", "does not exist; create it first"),
    ],
)
def test_an_output_that_can_be_no_folder_is_refused(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=said):
        check_folder(tmp_path / name)
