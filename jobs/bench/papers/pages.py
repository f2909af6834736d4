"""Pages of papers, filled in from records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import tables
from indexmill.jobs.bench.papers.definitions import VERDICTS, Exhibit, Paper, Row, load_papers
from indexmill.jobs.bench.papers.shelf import Shelf
from indexmill.jobs.devices.machine import REPOSITORY

PAGES = REPOSITORY / "docs" / "papers"
INDEX = "README.md"
#: Cells of a row that has no figure.
NONE = "none"


def cells(row: Row, shelf: Shelf, place: str) -> list[str]:
    """Return the cells of a row: what, the paper's figure, ours, on what, verdict.

    Parameters
    ----------
    place : str
        Of the row, for errors.

    Raises
    ------
    LookupError
        If the row names a place that the records lack.
    ValueError
        If its verdict no longer holds.
    """
    try:
        ours = shelf.fill(row.ours)
        because = shelf.fill(row.because)
        true = not row.holds or bool(shelf.value(row.holds))
    except LookupError as error:
        raise LookupError(f"{place}: {row.what}: {error}") from error
    if not true:
        raise ValueError(
            f"{place}: {row.what}: ours is {ours}, which is not {row.verdict!r} ({row.holds}); judge the row again"
        )
    code = f"[`{row.code}`](../../{row.code})" if row.code else ""
    records = ", ".join(f"`{name.replace('_', '-')}`" for name in shelf.used(row.ours))
    on = "; ".join(part for part in (row.on, f"record {records}" if records else "") if part)
    verdict = f"*{row.verdict}*" + (f": {because}" if because else "")
    return [row.what, row.paper, "; ".join(part for part in (ours, code) if part) or NONE, on, verdict]


def page(name: str, paper: Paper, shelf: Shelf) -> str:
    """Return the page of a paper.

    Raises
    ------
    LookupError, ValueError
        As `cells`.
    """
    shelf = shelf.named(paper.names)
    context = {
        "paper": paper,
        "about": shelf.fill(paper.about),
        "departures": [(one.paper, shelf.fill(one.ours), shelf.fill(one.why)) for one in paper.departures],
        "exhibits": [_shown(name, exhibit, shelf) for exhibit in paper.exhibits],
        "counts": _counted(paper),
        "records": {one: shelf.records[one] for one in shelf.used(*_templates(paper))},
    }
    return tables.render("papers/page.jinja", context)


def _shown(name: str, exhibit: Exhibit, shelf: Shelf) -> dict[str, Any]:
    rows = [cells(row, shelf, f"{name}, {exhibit.name}") for row in exhibit.rows]
    return {"name": exhibit.name, "title": exhibit.title, "note": shelf.fill(exhibit.note), "rows": rows}


def _templates(paper: Paper) -> list[str]:
    """Return all texts that may name places of records."""
    departures = [text for one in paper.departures for text in (one.ours, one.why)]
    rows = [text for row in paper.rows for text in (row.ours, row.because)]
    return [paper.about, *departures, *rows, *(exhibit.note for exhibit in paper.exhibits)]


def _counted(paper: Paper) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in paper.counts.items() if count)


def texts(papers: dict[str, Paper], shelf: Shelf) -> dict[str, str]:
    """Return all pages by their file names, that of the index too.

    Raises
    ------
    LookupError, ValueError
        As `page`.
    """
    made = {f"{name}.md": page(name, paper, shelf) for name, paper in papers.items()}
    return made | {INDEX: tables.render("papers/index.jinja", {"papers": papers, "verdicts": VERDICTS})}


def write(folder: Path = PAGES) -> list[Path]:
    """Write the pages whose text is another one than in `folder`, once all texts are made; return these."""
    made = texts(load_papers(), Shelf())
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in made.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            written.append(path)
    return written
