"""Tables of a record: Markdown templates whose cells name places of the record, and where they stand in a page.

A template (`tables.jinja` in the folder of a benchmark) is a page with holes. It sees the parts of the record by their
names (``-`` becomes ``_``; false where a part was not measured), `record`, `parts`, `sets`, `targets` and what
`filters` lists. A hole that names nothing is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import ChainableUndefined, Environment, FileSystemLoader, StrictUndefined, UndefinedError
from jinja2.meta import find_undeclared_variables

from indexmill.jobs.bench.common.curves import key

NOT_REACHED = "not reached"
_UNITS = {"MB": 1e6, "GB": 1e9, "MIB": 2**20, "GIB": 2**30}
_FOLDER = Path(__file__).parents[1]

#: A figure of a record: {"value", "low", "high"}; None where it was not reached.
Figure = Mapping[str, float | None]


def number(value: float | None, digits: int = 0, unit: str = "") -> str:
    """Return a number with thousands separated."""
    return NOT_REACHED if value is None else f"{value:,.{digits}f}{unit}"


def share(part: float | None, whole: float | None = 1.0) -> str:
    """Return a share in percent."""
    return NOT_REACHED if part is None or not whole else f"{part / whole:.0%}"


def middle(found: Figure | None, digits: int = 0, unit: str = "") -> str:
    """Return a figure without its interval."""
    return NOT_REACHED if found is None else number(found["value"], digits, unit)


def figure(found: Figure | None, digits: int = 0, unit: str = "") -> str:
    """Return a figure with its interval: ``27.5 (26.9 to 28.1)``."""
    text = middle(found, digits, unit)
    if found is None or found["low"] is None or found["high"] is None or found["low"] == found["high"]:
        return text
    return f"{text} ({number(found['low'], digits)} to {number(found['high'], digits)})"


def figures(found: Mapping[str, Figure | None], keys: Sequence[str], digits: int = 0, unit: str = "") -> str:
    """Return a cell for each of the `keys`, with intervals."""
    return " | ".join(figure(found[key], digits, unit) for key in keys)


def middles(found: Mapping[str, Figure | None], keys: Sequence[str], digits: int = 0, unit: str = "") -> str:
    """Return a cell for each of the `keys`, without intervals."""
    return " | ".join(middle(found[key], digits, unit) for key in keys)


def numbers(values: Iterable[float | None], digits: int = 0, unit: str = "") -> str:
    """Return a cell for each value."""
    return " | ".join(number(value, digits, unit) for value in values)


def setting(used: Mapping[str, Any]) -> str:
    """Say how our reader searched."""
    threads, inflight = used["threads"], used["inflight"]
    text = (
        f"policy {used['policy']}, entry {used['entry']}, beam width {used['beam_width']}, {threads}"
        f" thread{'s' if threads > 1 else ''} x {inflight} quer{'ies' if inflight > 1 else 'y'}"
    )
    return text if used["deterministic"] else text + ", reads taken up as they arrive"


class Missing(StrictUndefined):
    """A part that was not measured: false in a template, and an error if anything of it is asked for."""

    def __bool__(self) -> bool:  # type: ignore[override]
        return False


class _NotReached(ChainableUndefined):
    """What a record does not have: so is anything of it, and a formula with it fails."""

    def __abs__(self) -> float:
        raise UndefinedError("nothing has no size")


class _Record(Environment):
    """Looks names up in the record first: ``found.values`` is an entry of that name, if there is one."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


def _environment(**options: Any) -> _Record:
    made = _Record(
        loader=FileSystemLoader(_FOLDER), trim_blocks=True, lstrip_blocks=True, autoescape=False, **options
    )
    made.filters |= {
        "number": number, "numbers": numbers, "share": share, "middle": middle, "middles": middles, "figure": figure,
        "figures": figures, "setting": setting, "key": key, "f": format,
        "middle_share": lambda found: share(None if found is None else found["value"]), "median": median,
    }  # fmt: skip
    made.globals |= {**_UNITS, "NOT_REACHED": NOT_REACHED}
    return made


TEMPLATES = _environment(undefined=StrictUndefined)
#: Figures of targets: what is not in a record was not reached.
_FIGURES = _environment(undefined=_NotReached)


def evaluate(expression: str, context: Mapping[str, Any]) -> Any:
    """Return what `expression` names in a record; None if there is no such thing, or a part of a formula is missing."""
    try:
        return _FIGURES.compile_expression(expression)(**context)
    except UndefinedError:
        return None


def part_of(expression: str) -> str:
    """Return the name of the part that `expression` is about.

    Raises
    ------
    ValueError
        If it names several, or none.
    """
    names = find_undeclared_variables(_FIGURES.parse("{{ " + expression + " }}")) - set(_UNITS)
    if len(names) != 1:
        raise ValueError(f"{expression}: expected the name of one part, got {sorted(names) or 'none'}")
    return names.pop()


def render(template: str, context: Mapping[str, Any]) -> str:
    """Return a template of a folder of `bench`, filled in, ending in a line break.

    Raises
    ------
    jinja2.UndefinedError
        If it names something that is not in the record.
    """
    text = TEMPLATES.get_template(template).render(context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def write_into(page: Path, text: str, mark: str) -> None:
    """Replace what stands in `page` between the comments ``mark: begin`` and ``mark: end``.

    Raises
    ------
    ValueError
        If one of them is missing.
    """
    begin, end = (f"<!-- {mark}: {side} -->" for side in ("begin", "end"))
    whole = page.read_text()
    if begin not in whole or end not in whole:
        raise ValueError(
            f"{page}: the marks {begin} and {end} are missing; put them where the figures belong"
        )
    before, rest = whole.split(begin, 1)
    page.write_text(f"{before}{begin}\n\n{text}\n{end}{rest.split(end, 1)[1]}")
