"""Tables of the benchmark of kernels, for the page of benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import tables
from indexmill.jobs.bench.common.cells import number, table

MARKS = ("<!-- kernels: begin -->", "<!-- kernels: end -->")


def write_page(record: dict[str, Any], source: str, page: Path) -> None:
    """Write the tables of `record`, which is kept in `source`, into the page of benchmarks."""
    tables.write_into(page, render(record, source), MARKS)


def render(record: dict[str, Any], source: str) -> str:
    """Return all tables of `record`, which is kept in `source`; parts that were not measured have none."""
    drawn = {
        "distances": lambda part, _: _distances(part),
        "codes": lambda part, _: _codes(part),
        "prune": lambda part, _: _prune(part),
    }
    return tables.render(record, source, "", drawn, ())


def _sides(row: dict[str, Any], what: str, digits: int, unit: float = 1.0) -> list[str]:
    native, loop = (row[f"{what}{side}"] for side in ("native", "numba"))
    return [number(native / unit, digits), number(loop / unit, digits), number(loop / native, 1, "x")]


def _distances(part: dict[str, Any]) -> str:
    rows = []
    for row in part["rows"]:
        held = {key.removesuffix("_ns"): value for key, value in row.items()}
        rows.append(
            (row["dtype"], row["metric"], row["dim"], *_sides(held, "near_", 1), *_sides(held, "far_", 1))
        )
    names = (
        "type",
        "metric",
        "dim",
        "cached: native ns",
        "numba ns",
        "",
        "memory: native ns",
        "numba ns",
        "",
    )
    return "### Distances\n\n" + table(names, rows, "llrrrrrrr")


def _codes(part: dict[str, Any]) -> str:
    rows = [(row["chunks"], *_sides(row, "", 1)) for row in part["rows"]]
    return "### Codes\n\n" + table(("bytes a code", "native ns", "numba ns", ""), rows, "rrrr")


def _prune(part: dict[str, Any]) -> str:
    rows = [
        (row["dtype"], row["dim"], row["n"], *_sides(row, "sort_", 2, 1e3), *_sides(row, "prune_", 2, 1e3))
        for row in part["rows"]
    ]
    names = (
        "type",
        "dim",
        "candidates",
        "sort: native us",
        "numba us",
        "",
        "prune: native us",
        "numba us",
        "",
    )
    return "### Prunes\n\n" + table(names, rows, "lrrrrrrrr")
