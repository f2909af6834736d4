"""Every kind of index has what commands need of it."""

from __future__ import annotations

from indexmill.jobs.kinds.kind import Kind
from indexmill.jobs.kinds.registry import KINDS
from indexmill.jobs.options.declare import parameters_of
from indexmill.pipeline import spec


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
