"""The pages show what the record that they name says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from indexmill.jobs.bench.common import machine, record, tables
from indexmill.jobs.bench.layouts import tables as tables_layouts
from indexmill.jobs.bench.lsh import page as tables_lsh
from indexmill.jobs.bench.mill import tables as tables_mill
from indexmill.jobs.bench.sift1m import readme

REPOSITORY = machine.REPOSITORY
PAGE = REPOSITORY / "docs" / "benchmarks.md"
GUIDE = REPOSITORY / "docs" / "guides" / "layout.md"


def shown(page: Path, marks: tuple[str, str] = (tables.BEGIN, tables.END)) -> str:
    return page.read_text().split(marks[0])[1].split(marks[1])[0].strip()


@pytest.fixture
def named() -> tuple[str, dict[str, Any]]:
    """The record that the page names, and where it is."""
    match = re.search(r"^\| record \| `(.+)` \|$", PAGE.read_text(), re.MULTILINE)
    assert match, f"{PAGE} names no record"
    found: dict[str, Any] = json.loads((REPOSITORY / match[1]).read_text())
    if found.get("format") != record.FORMAT:
        pytest.skip(f"{match[1]} is of an earlier format; measure again to write the pages")
    return match[1], found


def test_the_benchmark_page_shows_its_record(named: tuple[str, dict[str, Any]]) -> None:
    source, found = named
    assert shown(PAGE) == tables.render(found, source, "images").strip()


def test_the_readme_shows_the_same_record(named: tuple[str, dict[str, Any]]) -> None:
    assert shown(REPOSITORY / "README.md") == readme.render(named[1]).strip()


def test_the_figures_within_a_budget_are_those_of_their_record() -> None:
    text = shown(PAGE, tables_mill.MARKS)
    match = re.search(r"^\| record \| `(.+)` \|$", text, re.MULTILINE)
    if match is None:
        assert text == "Not measured yet."
        pytest.skip("builds within a budget were not measured yet")
    found = json.loads((REPOSITORY / match[1]).read_text())
    if found["format"] != record.FORMAT:
        pytest.skip(f"{match[1]} is of an earlier format; measure again to write the page")
    assert text == tables_mill.render(found, match[1]).strip()


def test_the_figures_of_layouts_are_those_of_their_record() -> None:
    text, guide = shown(PAGE, tables_layouts.MARKS), shown(GUIDE, tables_layouts.MARKS)
    match = re.search(r"^\| record \| `(.+)` \|$", text, re.MULTILINE)
    if match is None:
        assert text == guide == "Not measured yet."
        pytest.skip("layouts were not measured yet")
    found = json.loads((REPOSITORY / match[1]).read_text())
    if found["format"] != record.FORMAT:
        pytest.skip(f"{match[1]} is of an earlier format; measure again to write the pages")
    assert text == tables_layouts.render(found, match[1]).strip()
    assert guide == tables_layouts.guide(found, match[1]).strip()


def test_the_figures_of_hash_tables_are_those_of_their_record() -> None:
    text = shown(PAGE, tables_lsh.MARKS)
    match = re.search(r"^\| record \| `(.+)` \|$", text, re.MULTILINE)
    if match is None:
        assert text == "Not measured yet."
        pytest.skip("hash tables were not measured yet")
    found = json.loads((REPOSITORY / match[1]).read_text())
    assert text == tables_lsh.render(found, match[1]).strip()
