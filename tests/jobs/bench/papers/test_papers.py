"""Pages of papers have every table and figure of their paper, and figures of the newest records."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.papers import pages
from indexmill.jobs.bench.papers.definitions import Paper, Row, load_paper, load_papers
from indexmill.jobs.bench.papers.shelf import Shelf
from indexmill.jobs.devices.machine import REPOSITORY

ROMAN = ("I", "II", "III", "IV", "V", "VI")


def numbered(kind: str, last: int) -> set[str]:
    return {f"{kind} {number}" for number in range(1, last + 1)}


#: Tables and figures that the text of each paper names.
NAMED = {
    "aio-ann": numbered("Figure", 5),
    "batch-similarity-search": numbered("Figure", 10) | {"Equation 8"},
    "diskann-plus-plus": numbered("Figure", 13) | {f"Table {number}" for number in ROMAN},
    "e2lsh-on-storage": numbered("Table", 6) | numbered("Figure", 16),
    "ecp-chunk-files": numbered("Table", 3),
}
PAPERS = load_papers()


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    return Shelf()


def test_the_pages_are_those_that_the_records_give(shelf: Shelf) -> None:
    made = pages.texts(PAPERS, shelf)
    assert {path.name for path in pages.PAGES.iterdir()} == set(made)
    stale = [name for name, text in made.items() if (pages.PAGES / name).read_text() != text]
    assert stale == [], "run python -m indexmill.jobs.bench.papers"


def test_there_is_a_page_for_each_paper() -> None:
    assert set(PAPERS) == set(NAMED)


@pytest.mark.parametrize("name", NAMED)
def test_every_table_and_figure_of_a_paper_has_a_row(name: str) -> None:
    covered = [one for exhibit in PAPERS[name].exhibits for one in exhibit.covers]
    assert len(covered) == len(set(covered))
    assert NAMED[name] - set(covered) == set()
    tables_and_figures = {one for one in covered if one.startswith(("Table", "Figure"))}
    assert tables_and_figures <= NAMED[name]


def test_at_most_one_row_in_ten_is_impossible_here() -> None:
    rows = [row for paper in PAPERS.values() for row in paper.rows]
    assert sum(row.verdict == "not possible here" for row in rows) <= len(rows) / 10


@pytest.mark.parametrize("name", NAMED)
def test_figures_of_ours_come_from_records_and_not_from_the_page(name: str, shelf: Shelf) -> None:
    named = shelf.named(PAPERS[name].names)
    for row in PAPERS[name].rows:
        assert bool(named.used(row.ours)) == bool(row.ours), row.what
        typed = re.sub(r"{[{%].*?[%}]}|\bat 0\.9\d\b", "", row.ours)  # holes, and recalls
        assert not re.search(r"\d+\.\d", typed), row.what


def test_code_that_does_what_a_drawing_shows_is_there() -> None:
    codes = {row.code for paper in PAPERS.values() for row in paper.rows if row.verdict == "implemented"}
    assert len(codes) > 5
    assert [code for code in codes if not (REPOSITORY / code).is_file()] == []


def records(folder: Path, *, share: float) -> Path:
    """Write two records of a benchmark, the newer with `share`."""
    for date, value in (("2026-01-01", 0.1), ("2026-01-02", share)):
        part = {"started": f"{date}T10:00:00+00:00", "commit": "c" * 40, "share": value}
        machine = {"cpu": "a", "cores": 1, "memory_bytes": 2**30}
        found = {"benchmark": "tried", "data": [], "machine": machine, "parts": {"one-part": part}}
        record.save(found, folder / f"{date}-tried.json")
    return folder


def paper(**row: Any) -> Paper:
    rows = [{"what": "share", "paper": "50%", "on": "a set", "verdict": "reproduced"} | row]
    return Paper.model_validate(
        {
            "title": "A paper",
            "source": "Somebody",
            "about": "Something.",
            "names": {"share_of": "tried.one_part.share"},
            "departures": [{"paper": "a", "ours": "b", "why": "c"}],
            "exhibits": [{"name": "Table 1", "title": "shares", "rows": rows}],
        }
    )


def test_a_page_shows_the_newest_record_and_names_it(tmp_path: Path) -> None:
    shown = paper(ours="{{ share_of|share }}", holds="tried.one_part.share > 0.4")
    text = pages.page("a", shown, Shelf(records(tmp_path, share=0.55)))
    assert "| share | 50% | 55% | a set; record `tried` | *reproduced* |" in text
    assert "records/2026-01-02-tried.json" in text
    assert "2026-01-01" not in text
    assert "cccccccccc |" in text


def test_a_page_tells_commits_with_changes_from_those_without(tmp_path: Path) -> None:
    parts = {f"part-{mark}": {"commit": "c" * 40 + mark, "share": 0.5} for mark in ("", "+changes")}
    machine = {"cpu": "a", "cores": 1, "memory_bytes": 2**30}
    found = {"benchmark": "tried", "data": [], "machine": machine, "parts": parts}
    record.save(found, tmp_path / "2026-01-01-tried.json")
    assert Shelf(tmp_path).records["tried"].commits == ["cccccccccc", "cccccccccc+changes"]


def test_a_page_names_the_days_of_a_record_and_the_machine_of_each_part(tmp_path: Path) -> None:
    here, before = ({"cpu": cpu, "cores": 2, "memory_bytes": 2**30} for cpu in ("new", "old"))
    part = {"started": "2026-01-01T10:00:00+00:00", "commit": "c" * 40, "share": 0.55}
    last = {**part, "started": "2026-01-03T10:00:00+00:00", "machine": before}
    parts = {
        "one-part": part,
        "other": {**part, "machine": before},
        "third": last,
        "fourth": {**part, "machine": here},
    }
    found = {"benchmark": "tried", "data": [], "machine": here, "parts": parts}
    record.save(found, tmp_path / "2026-01-01-tried.json")
    shown = paper(ours="{{ share_of|share }}", holds="true")
    text = pages.page("a", shown, Shelf(tmp_path))
    assert (
        "| 2026-01-01 to 2026-01-03 | new, 2 cores, 1.0 GiB; `other`, `third`: old, 2 cores, 1.0 GiB |"
        in text
    )


def test_a_place_that_no_record_has_is_an_error(tmp_path: Path) -> None:
    shelf = Shelf(records(tmp_path, share=0.55))
    for ours, holds in (("{{ tried.other.share|share }}", "true"), ("{{ share_of }}", "other.share > 1")):
        with pytest.raises(LookupError, match=r"a, Table 1: share: .*measure what is missing"):
            pages.page("a", paper(ours=ours, holds=holds), shelf)
    with pytest.raises(LookupError, match="nothing stands there"):
        shelf.named({"short": "tried.one_part.other"})


def test_a_verdict_that_no_longer_holds_is_an_error(tmp_path: Path) -> None:
    judged = paper(ours="{{ share_of|share }}", holds="share_of > 0.4")
    with pytest.raises(
        ValueError, match=r"share: ours is 30%, which is not 'reproduced'.*judge the row again"
    ):
        pages.page("a", judged, Shelf(records(tmp_path, share=0.3)))


def moved(folder: Path, factor: float, components: tuple[str, ...], *, gain: bool = False) -> Shelf:
    """The newest records, with the speed-ups of some components of DiskANN++, and those of AIO-ANN, multiplied."""
    for kept in Shelf().records.values():
        shutil.copy(kept.path, folder)
    newest = Shelf().records["sift1m"].path
    found = record.load(newest)
    for component in components:
        for device in (found["parts"]["ablation"], found["parts"]["ablation"]["simulated"]):
            move(device["rows"][component], factor, only="ratio")
    if gain:
        move(found["parts"]["completion"]["gain"], factor)
    record.save(found, folder / newest.name)
    return Shelf(folder)


@pytest.mark.parametrize("factor", [0.85, 1.15])
def test_verdicts_on_large_speed_ups_stand_the_noise_between_runs(tmp_path: Path, factor: float) -> None:
    shelf = moved(tmp_path, factor, ("BC", "ABC"), gain=True)
    for name in ("aio-ann", "diskann-plus-plus"):
        assert (
            pages.texts({name: PAPERS[name]}, shelf)[f"{name}.md"] != (pages.PAGES / f"{name}.md").read_text()
        )


@pytest.mark.parametrize(
    ("component", "factor"),
    [*((name, 0.5) for name in ("A", "B", "C", "AB", "AC", "BC", "ABC")), ("B", 1.5), ("AB", 1.5)],
)
def test_a_component_that_brings_something_else_is_judged_again(
    tmp_path: Path, component: str, factor: float
) -> None:
    judged = PAPERS["diskann-plus-plus"]
    [row] = [row for row in judged.rows if row.what == component]
    shelf = moved(tmp_path, factor, (component,)).named(judged.names)
    with pytest.raises(ValueError, match="judge the row again"):
        pages.cells(row, shelf, "Table VI")


def move(figures: dict[str, Any], factor: float, only: str | None = None) -> None:
    """Multiply all figures with intervals, those under `only` if it is given."""
    for name, one in figures.items():
        if not isinstance(one, dict):
            continue
        if "value" not in one:
            move(one, factor, only)
        elif only in (None, name):
            one |= {end: value * factor for end, value in one.items() if value is not None}


def test_pages_are_written_only_where_they_change(tmp_path: Path) -> None:
    shutil.copytree(pages.PAGES, tmp_path / "papers")
    (tmp_path / "papers" / "aio-ann.md").write_text("another text\n")
    (tmp_path / "papers" / "README.md").unlink()
    written = {path.name for path in pages.write(tmp_path / "papers")}
    assert written == {"aio-ann.md", "README.md"}
    assert (tmp_path / "papers" / "aio-ann.md").read_text() == (pages.PAGES / "aio-ann.md").read_text()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"verdict": "not reproduced", "ours": "{{ a }}", "on": "b", "holds": "true"}, "needs `because`"),
        ({"verdict": "not possible here"}, "needs `because`"),
        (
            {"verdict": "no statement", "ours": "{{ a }}", "on": "{{ b }}"},
            "only `ours` and `because` are templates",
        ),
        ({"verdict": "reproduced", "ours": "{{ a }}", "on": "b"}, "needs `ours`, `on` and `holds`"),
        ({"verdict": "reproduced", "code": "a.py"}, "needs `ours`, `on` and `holds`"),
        ({"verdict": "implemented"}, "`code` goes with implemented"),
        ({"verdict": "fitted, not measured"}, "needs `ours`"),
        ({"verdict": "no statement"}, "needs `ours`"),
        ({"verdict": "better"}, "verdict"),
    ],
)
def test_a_row_says_what_its_verdict_needs(row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Row.model_validate({"what": "a", "paper": "b"} | row)


def test_a_name_that_no_paper_uses_is_an_error(tmp_path: Path) -> None:
    text = (REPOSITORY / "jobs/bench/papers/aio-ann.toml").read_text()
    (tmp_path / "a.toml").write_text(text.replace('name = "Figure 1"', 'name = "Figur 1"'))
    with pytest.raises(ValidationError, match=r"exhibits\.0\.name"):
        load_paper(tmp_path / "a.toml")
