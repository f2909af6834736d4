"""Rows of a score as a table that a terminal of 100 columns holds; `--json` has all of their keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from indexmill.jobs.console.tables import add_row, human_bytes, plain_table

if TYPE_CHECKING:
    from rich.table import Table

Row = dict[str, Any]
#: A heading, and how a row's cell below it is made.
Column: TypeAlias = tuple[str, Callable[[Row], str]]
KIB_READ: Column = ("KiB\nread", lambda row: f"{row['bytes_read'] / 1024:,.0f}")
DISTANCES: Column = ("\ndistances", lambda row: f"{row['distances']:,.0f}")


def score_table(rows: Sequence[Row]) -> Table:
    """Make a table of score rows; a policy or entry that all of them share stands in its title."""
    words = _words(rows)
    crowded = len(words) > 2  # then each page counts its 4 KiB by itself
    columns = words + [one for one in _numbers(rows[0]["k"]) if not (crowded and one is KIB_READ)]
    table = plain_table(_title(rows), [heading for heading, _ in columns], gap=1 if crowded else 2)
    for row in rows:
        add_row(table, [show(row) for _, show in columns])
    return table


def _title(rows: Sequence[Row]) -> str:
    return ", ".join(conditions(rows))


def conditions(rows: Sequence[Row]) -> list[str]:
    """Say under which conditions the rows were measured, as far as all of them share these."""
    first = rows[0]
    shared = [f"{name} {first[name]}" for name in ("policy", "entry") if _is_shared(rows, name)]
    parts = [
        f"{first['n_queries']:,} queries",
        f"{first['threads']} thread{'s' if first['threads'] > 1 else ''} x {first['inflight']} in flight",
        f"beam width {first['beam_width']}",
        *shared,
        f"engine {first['engine']}",
    ]
    if first["n_allowed"] is not None:
        parts.append(f"{first['n_allowed']:,} vectors allowed")
    if first["cache_bytes"]:
        parts.append(f"cache {human_bytes(first['cache_bytes'])}")
    if not first["deterministic"]:
        parts.append("not deterministic")
    if first["repeat"] > 1:
        parts.append(f"medians of {first['repeat']} runs")
    return parts


def _is_shared(rows: Sequence[Row], name: str) -> bool:
    return len({row[name] for row in rows}) == 1


def _words(rows: Sequence[Row]) -> list[Column]:
    """Columns that say which row it is."""
    shown = [name for name in ("policy", "entry") if not _is_shared(rows, name)]
    return [("L", lambda row: str(row["L"])), *((name, itemgetter(name)) for name in shown)]


def _numbers(k: int) -> list[Column]:
    """Headings, and how a row's numbers are shown below them."""
    *first, p99 = answer_columns(k)
    return [
        *first,
        ("P50\nus", lambda row: f"{row['latency_us_p50']:,.0f}"),
        p99,
        ("pages\nread", lambda row: f"{row['pages_read']:.1f}"),
        KIB_READ,
        ("KiB\nused", lambda row: f"{row['bytes_used'] / 1024:,.0f}"),
        ("\nhops", lambda row: f"{row['hops']:.1f}"),
        ("device\n%", lambda row: "-" if row["device_fraction"] is None else f"{row['device_fraction']:.0%}"),
    ]


def answer_columns(k: int) -> list[Column]:
    """Columns that a score of any kind of index has: recall, rate and latency."""
    return [
        (f"recall\n@{k}", lambda row: f"{row['recall']:.4f}"),
        ("95%\ninterval", lambda row: f"{row['recall_low']:.3f}-{row['recall_high']:.3f}"),
        ("\nqps", lambda row: f"{row['qps']:,.0f}"),
        ("mean\nus", lambda row: f"{row['latency_us_mean']:,.0f}"),
        ("P99\nus", lambda row: f"{row['latency_us_p99']:,.0f}"),
    ]
