"""Every kind of index has what commands need of it."""

from __future__ import annotations

import re
from pathlib import Path

from indexmill.jobs.kinds.kind import Kind
from indexmill.jobs.kinds.registry import KINDS
from indexmill.jobs.options.declare import parameters_of
from indexmill.pipeline import spec

JOBS = Path(__file__).parents[3] / "jobs"


def test_every_kind_that_is_built_has_a_file_with_all_answers() -> None:
    assert set(KINDS) == set(spec.KINDS)
    asked = {name for name in vars(Kind) if not name.startswith("_")} | set(Kind.__annotations__)
    for name, kind in KINDS.items():
        assert name == kind.NAME
        assert not {answer for answer in asked if not hasattr(kind, answer)}


def test_no_two_kinds_take_the_same_flag() -> None:
    for flags in ("SearchFlags", "ScoreFlags"):
        names = [one.name for kind in KINDS.values() for one in parameters_of(getattr(kind, flags))]
        assert len(names) == len(set(names))


def test_no_file_but_those_of_the_kinds_compares_a_kind_by_name() -> None:
    compared = re.compile(r"""kind\w*["\])]*(\.NAME)? *(==|!=|in) *\(?["'](graph|lsh|ivf)""")
    found = [
        f"{path.relative_to(JOBS)}: {line.strip()}"
        for path in JOBS.rglob("*.py")
        if "bench" not in path.relative_to(JOBS).parts and path.parent.name != "kinds"
        for line in path.read_text().splitlines()
        if compared.search(line)
    ]
    assert found == []


def test_no_file_but_those_of_the_kinds_asks_which_class_of_a_kind_it_has() -> None:
    asked = re.compile(
        r"isinstance\([^)]*\b(\w*Parameters|\w*Shape|\w*Size|Index|LshIndex|IvfIndex|(Exported|Imported)\w+)\b"
    )
    found = [
        f"{path.relative_to(JOBS.parent)}: {line.strip()}"
        for folder in ("pipeline", "jobs", "formats")
        for path in (JOBS.parent / folder).rglob("*.py")
        if "kinds" not in path.relative_to(JOBS.parent).parts
        for line in path.read_text().splitlines()
        if asked.search(line)
    ]
    assert found == []
