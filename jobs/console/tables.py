"""Numbers, files and rows of numbers as a terminal shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: Columns of text where stdout is no terminal: the widest table fits.
_FILE_WIDTH = 160


def stdout_console() -> Console:
    """Return a console on stdout that does not fold tables because a pipe has no width."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_FILE_WIDTH)


def human_bytes(count: float) -> str:
    """Print a size with a binary unit, such as ``"1.5 MiB"``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def short(value: Any) -> str:
    """Print a scalar briefly: floats with four digits, whole numbers with separators."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what does not fit into a cell: mappings and lists, such as the candidates that `layout` tried."""
    return {name: value for name, value in values.items() if not isinstance(value, Mapping | list | tuple)}


def facts(values: Mapping[str, Any]) -> str:
    """Print a flat mapping on one line."""
    return ", ".join(f"{name.replace('_', ' ')} {short(value)}" for name, value in values.items())


#: Headings of columns that hold words; all others hold numbers and stand at the right.
_WORDS = {
    "index", "device", "binds", "policy", "entry", "order", "node dtype", "file", "sha256", "search", "id", "stage",
    "state", "cost", "costs of", "started",
}  # fmt: skip


def holds_words(heading: str) -> bool:
    """Whether a column is one of words, which stand at the left."""
    return heading in _WORDS


def plain_table(title: str, headings: Sequence[str], gap: int = 3) -> Table:
    """Make an empty table; a heading may come twice, and hold several lines; `gap` blanks lie between columns."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title) if title else None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        padding=(0, gap // 2, 0, (gap - 1) // 2),
    )
    for heading in headings:
        table.add_column(Text(heading), justify="left" if holds_words(heading) else "right", overflow="fold")
    return table


def add_row(table: Table, cells: Sequence[str]) -> None:
    """Add a row of texts, none of which is markup."""
    from rich.text import Text

    table.add_row(*(Text(cell) for cell in cells))


def file_table(files: Sequence[Mapping[str, Any]]) -> Table:
    """Make a table of a manifest's files."""
    table = plain_table("", ["file", "size", "sha256"])
    for entry in files:
        add_row(table, [entry["name"], human_bytes(entry["bytes"]), entry["sha256"][:16]])
    return table


def read_run(index: Path) -> dict[str, Any]:
    """Read run.json beside a manifest; empty if it is missing, since an index can do without it."""
    try:
        run = json.loads((index / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        return {"unreadable": "run.json is not JSON"}
    return run if isinstance(run, dict) else {"unreadable": "run.json is not an object"}
