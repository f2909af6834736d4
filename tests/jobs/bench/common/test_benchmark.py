"""The framework of benchmarks: parts that run, records, tables, and targets of figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError

from indexmill.jobs.bench.common import benchmark, record, tables
from indexmill.jobs.bench.common.benchmark import Benchmark, Page, Run, Target

#: One line for each part that a page shows.
TEMPLATE = "{{ first.n }}{% if second %}, {{ second.n }}{% endif %}; {{ targets|length }} from {{ source }}"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Benchmark[Run], Run, list[str]]:
    """A benchmark of two parts, the second of which fails once, and the parts in the order that they ran."""
    ran: list[str] = []

    def part(name: str) -> Any:
        def measure(run: Run) -> dict[str, Any]:
            ran.append(name)
            if ran == ["first", "second"]:
                raise OSError("the disk is gone")
            return {"n": ran.count(name), "ratio": {"0.95": {"value": 2.0, "low": 1.0, "high": 3.0}}}

        return measure

    (tmp_path / "try").mkdir()
    (tmp_path / "try" / "tables.jinja").write_text(TEMPLATE)
    monkeypatch.setattr(tables.TEMPLATES, "loader", tables.FileSystemLoader(tmp_path))
    one = Benchmark[Run](
        "try",
        {"first": part("first"), "second": part("second")},
        (Target("twice as much", "second.ratio['0.95']", ">=", 2, "x"),),
        sets=(),
    )
    return one, Run("try", {}, tmp_path), ran


def test_parts_that_the_record_lacks_are_measured_and_named_ones_again(
    made: tuple[Benchmark[Run], Run, list[str]],
) -> None:
    one, run, ran = made
    assert one.run(run) == ["second"]
    assert list(record.load(run.results)["parts"]) == ["first"]
    assert one.run(run) == []
    assert ran == ["first", "second", "second"]
    assert one.run(run, ["first"]) == []
    found = record.load(run.results)
    assert [found["parts"][name]["n"] for name in one.parts] == [2, 2]
    assert one.render(found, "r.json") == "2, 2; 1 from r.json\n"
    assert {"date", "started"} & set(found["parts"]["first"])
    assert found["machine"]["cores"] > 0
    assert found["versions"]["python"]
    found["machine"] = before = found["machine"] | {"cores": 64}
    record.save(found, run.results)
    assert one.run(run, ["first"]) == []
    found = record.load(run.results)
    assert found["machine"] != before == found["parts"]["second"]["machine"]
    assert "machine" not in found["parts"]["first"]
    with pytest.raises(ValueError, match="name another --out"):
        replace(one, data=lambda run: [{"name": "other"}]).run(run)


def test_a_record_names_the_versions_of_peers(made: tuple[Benchmark[Run], Run, list[str]]) -> None:
    one, run, _ = made
    replace(one, peers=("pytest", "diskannpy==0.7.0", "no-such-package")).run(run)
    told = record.load(run.results)["versions"]["peer"]
    assert told == [f"pytest=={pytest.__version__}", "diskannpy==0.7.0", "no-such-package"]


def test_a_page_that_shows_more_than_was_measured_is_not_written(
    made: tuple[Benchmark[Run], Run, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, run, _ = made
    page = tmp_path / "page.md"
    page.write_text("<!-- try: begin -->\nold\n<!-- try: end -->\n")
    one = replace(one, pages=(Page("tables", "page.md", "try"),))
    monkeypatch.setattr(benchmark, "REPOSITORY", tmp_path)
    monkeypatch.setattr(record, "RECORDS", tmp_path / "records")
    one.run(run, ["second"])
    with pytest.raises(UndefinedError, match="first"):
        one.keep(record.load(run.results))
    assert "old" in page.read_text()
    assert not (tmp_path / "records").exists()
    with pytest.raises(SystemExit, match="not measured yet"):
        one.main(["--out", str(tmp_path), "--parts=", "--keep"])
    one.run(run)
    one.main(["--out", str(tmp_path), "--parts=", "--keep"])
    assert "1, 1; 1 from records/" in page.read_text()


def test_a_target_is_a_place_or_a_formula_of_one_part() -> None:
    context = {
        "build": {"peak": 2**31, "stages": {"order": 3.0}},
        "data": {"ratio": {"lid": 0.9}},
        "gone": None,
    }
    cases = (
        ("build.peak / GIB", "<=", 4, "2.000", "yes"),
        ("build.stages.order", "<", 3, "3.000", "**no**"),
        ("(data.ratio.lid - 1)|abs", "<=", 0.2, "0.100", "yes"),
        ("build.stages.none.at.all", "<=", 1, "not reached", "**no**"),
    )
    for figure, relation, limit, shown, met in cases:
        row = Target("what", figure, relation, limit, "s").row(context)
        assert row == ["what", shown, f"{relation} {limit:g}", "s", met]
    assert Target("", "build.peak / GIB", "<", 1).part == "build"
    with pytest.raises(ValueError, match="one part"):
        tables.part_of("build.peak / data.ratio")


def test_parts_that_are_not_there_are_refused_by_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    one = Benchmark[Run]("try", {"first": lambda run: {}}, sets=())
    for arguments, message in (
        (["--parts", "other"], "unknown part other; choose from first"),
        (["--rows", "9", "--keep"], "leave out --rows"),
    ):
        with pytest.raises(SystemExit):
            one.main(["--out", str(tmp_path), *arguments])
        assert message in capsys.readouterr().err
