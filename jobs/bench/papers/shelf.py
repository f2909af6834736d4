"""The newest record of each benchmark, and figures of them by their places."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, Undefined
from jinja2.meta import find_undeclared_variables

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.tables import TEMPLATES

#: Characters of a date before the name of a record: ``2026-11-23-``.
_DATE = 11
#: Characters of a commit; what follows says that files differed from it.
_COMMIT = 40


@dataclass(frozen=True)
class Kept:
    """A record.

    Attributes
    ----------
    path : Path
    found : dict
    """

    path: Path
    found: dict[str, Any]

    @property
    def date(self) -> str:
        """Day on which its parts were measured, or the first and the last of them."""
        days = sorted({part["started"][: _DATE - 1] for part in self.found["parts"].values()})
        return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"

    @property
    def commits(self) -> list[str]:
        """Commits that its parts were measured at, each once: 10 characters, and ``+changes`` where files differed."""
        commits = {part["commit"] for part in self.found["parts"].values()}
        return sorted({commit[:10] + commit[_COMMIT:] for commit in commits})

    @property
    def machines(self) -> list[str]:
        """Processor, cores and memory: first those of the record, then of parts that another machine measured."""
        own, others = _machine(self.found["machine"]), dict[str, list[str]]()
        for name, part in self.found["parts"].items():
            if "machine" in part and (machine := _machine(part["machine"])) != own:
                others.setdefault(machine, []).append(f"`{name}`")
        return [own, *(f"{', '.join(parts)}: {machine}" for machine, parts in others.items())]

    @cached_property
    def places(self) -> dict[str, Any]:
        """Its parts by name, ``_`` for ``-``, and ``data``'s facts by set as `sets`."""
        data = self.found["data"] if isinstance(self.found["data"], list) else [self.found["data"]]
        parts = {name.replace("-", "_"): part for name, part in self.found["parts"].items()}
        return parts | {"sets": {one["name"]: one for one in data}}


class Shelf:
    """Records of a folder.

    Parameters
    ----------
    folder : Path
        With files ``DATE-NAME.json``; of several of a name the newest counts.
    """

    def __init__(self, folder: Path = record.RECORDS) -> None:
        newest = {path.stem[_DATE:].replace("-", "_"): path for path in sorted(folder.glob("*.json"))}
        self.records = {name: Kept(path, record.load(path)) for name, path in newest.items()}
        self._places: dict[str, Any] = {name: kept.places for name, kept in self.records.items()}
        #: Records behind each name that templates may use.
        self._behind = {name: {name} for name in self.records}

    def named(self, names: Mapping[str, str]) -> Shelf:
        """Return these records with further names, each for what an expression of places, or of earlier names, gives.

        Raises
        ------
        LookupError
            If an expression names a place that no newest record has.
        """
        made = copy(self)
        made._places, made._behind = dict(self._places), dict(self._behind)
        for name, expression in names.items():
            made._behind[name] = set(made.used("{{ " + expression + " }}"))
            made._places[name] = made.value(expression)
        return made

    def used(self, *templates: str) -> list[str]:
        """Return the names of the records that templates use, sorted."""
        names = set().union(*(find_undeclared_variables(TEMPLATES.parse(one)) for one in templates))
        return sorted(set().union(*(self._behind.get(name, set()) for name in names)))

    def fill(self, template: str) -> str:
        """Return a template with the figures that its holes name.

        Raises
        ------
        LookupError
            If a hole names a place that no newest record has.
        """
        try:
            return TEMPLATES.from_string(template).render(self._places)
        except (TemplateError, TypeError) as error:
            raise LookupError(_missing(template, error)) from error

    def value(self, expression: str) -> Any:
        """Return what an expression of places gives.

        Raises
        ------
        LookupError
            If it names a place that no newest record has.
        """
        try:
            found = TEMPLATES.compile_expression(expression, undefined_to_none=False)(**self._places)
        except (TemplateError, TypeError) as error:
            raise LookupError(_missing(expression, error)) from error
        if isinstance(found, Undefined):
            raise LookupError(_missing(expression, "nothing stands there"))
        return found


def _machine(has: Mapping[str, Any]) -> str:
    return f"{has['cpu']}, {has['cores']} cores, {has['memory_bytes'] / 2**30:.1f} GiB"


def _missing(text: str, error: object) -> str:
    return (
        f"{text}: {error}; expected places of the newest records in jobs/bench/records: measure what is missing, or "
        "name the place where it stands now"
    )
