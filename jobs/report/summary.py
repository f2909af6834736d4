"""A comparison as Markdown: the tables of the terminal, for a pull request or a page of notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from indexmill.jobs.compare.costs import cost_cells, layout_cells
from indexmill.jobs.compare.noise import noise_sentence, noise_warning
from indexmill.jobs.compare.units import unit_cells

#: Signs that Markdown or HTML would take for more than text.
_SIGNS = re.compile(r"([\\`*_\[\]<>|#~!&$])")


def markdown(result: dict[str, Any]) -> str:
    """Return costs at equal recall, units if any were counted, layouts, the machine's noise and what a gate said.

    Parameters
    ----------
    result : dict
        Of a comparison, as report.json has it.
    """
    floor, k, units = result["noise"]["floor"], result["setting"]["k"], result.get("units", [])
    warning = noise_warning(floor)
    parts = [
        f"### Cost at equal recall@{k}",
        _table(*cost_cells(result["at_recall"])),
        *(
            [f"### Units read at equal recall@{k}", _table(*unit_cells(result["at_recall"], units))]
            if units
            else []
        ),
        "### Layout",
        _table(*layout_cells(result["layout"])),
        _plain(noise_sentence(floor)),
        *([] if warning is None else [f"**{_plain(warning)}**"]),
    ]
    verdicts = [f"* **{one['outcome']}**: {_plain(one['sentence'])}" for one in result.get("gate", [])]
    if verdicts:
        parts += ["### Gate", "\n".join(verdicts)]
    return "\n\n".join(parts)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; columns of numbers are set to the right."""

    def lines() -> Iterator[str]:
        yield _line(map(_plain, headings))
        columns = zip(*rows, strict=True) if rows else [()] * len(headings)
        yield _line("---:" if column and all(map(_is_number, column)) else "---" for column in columns)
        for row in rows:
            yield _line(map(_plain, row))

    return "\n".join(lines())


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"([≤≥] )?[\d.,]+x?|-|not reached", cell) is not None


def _plain(text: str) -> str:
    """Escape what stands for itself, and names of users on GitHub; line ends become spaces."""
    return _SIGNS.sub(r"\\\1", " ".join(text.split())).replace("@", "@\u200b")
