"""Pages show the figures of the records that they name, and every benchmark can be run."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Benchmark
from indexmill.jobs.devices.machine import REPOSITORY

#: Measures nothing: its pages are held by `papers/test_papers.py`.
NO_BENCHMARK = "papers"
FOLDERS = sorted(
    path.parent.name
    for path in (REPOSITORY / "jobs" / "bench").glob("*/__main__.py")
    if path.parent.name != NO_BENCHMARK
)
#: Figures of pages that no record holds yet.
NOT_YET = "Not measured yet."


def benchmark(name: str) -> Benchmark[Any]:
    found = importlib.import_module(f"indexmill.jobs.bench.{name}.__main__").BENCHMARK
    assert isinstance(found, Benchmark)
    return found


def shown(path: str, mark: str) -> str:
    text = (REPOSITORY / path).read_text()
    return text.split(f"<!-- {mark}: begin -->")[1].split(f"<!-- {mark}: end -->")[0].strip()


#: Benchmarks whose tables only the command prints: guides quote some of their figures.
UNSHOWN = {"append", "cost", "exported", "imported"}


def test_all_benchmarks_but_those_that_guides_quote_have_a_page() -> None:
    assert {name for name in FOLDERS if not benchmark(name).shown} == UNSHOWN


@pytest.mark.parametrize("name", FOLDERS)
def test_help_of_every_benchmark_names_the_sets_it_needs(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        benchmark(name).main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert all(f"--{one}" in told for one in benchmark(name).sets)


@pytest.mark.parametrize("name", [name for name in FOLDERS if name not in UNSHOWN])
def test_pages_show_the_record_that_they_name(name: str) -> None:
    one = benchmark(name)
    source = None
    for page in one.shown:
        text = shown(page.path, page.mark)
        named = re.search(r"record\W+(jobs/bench/records/[\w.-]+\.json)", text)
        if named is None and source is None:
            assert text == NOT_YET
            continue
        source = (
            named[1] if named else source
        )  # the README's table is of the record that the page before it names
        assert source is not None
        assert text == one.render(record.load(REPOSITORY / source), source, page.template).strip()


@pytest.mark.parametrize("path", sorted(record.RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_tables_of_every_record_are_written(path: Path) -> None:
    found = record.load(path)
    name = found["benchmark"].split("-")[0]
    tables = benchmark(name).render(found, path.name)
    assert sum(line.startswith("|") for line in tables.splitlines()) > 3


@pytest.mark.parametrize("name", FOLDERS)
def test_a_benchmark_is_named_as_its_folder_and_holds_figures_of_its_own_parts(name: str) -> None:
    one = benchmark(name)
    assert one.name == name
    parts = {part.replace("-", "_") for part in one.parts}
    assert {target.part for target in one.targets} <= parts


@pytest.mark.parametrize("path", sorted(record.RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_a_record_is_compact_and_the_same_after_it_is_written_again(path: Path, tmp_path: Path) -> None:
    found = record.load(path)
    record.save(found, tmp_path / "again.json")
    assert record.load(tmp_path / "again.json") == found
    if path.stat().st_size > 100_000:
        assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_rows_are_stored_by_columns_and_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [{"L": size, "recall": 0.5 + size / 1000, "at": {"0.95": None}} for size in range(40)]
    found = {"rows": rows, "mixed": [*rows, {"L": 1}], "empty": [], "numbers": list(range(99)), "text": "a\n"}
    path = tmp_path / "record.json"
    record.save(found, path)
    assert record.load(path) == found
    assert path.read_text().count("recall") == 1 + 40
    assert max(map(len, path.read_text().splitlines())) < 400
