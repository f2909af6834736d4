"""Tables of the benchmark of the partition builder, for the page of benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tables
from cells import number, table
from targets import GIB, TIMES, Target

MARKS = ("<!-- partition: begin -->", "<!-- partition: end -->")
_CASES = ("sift1m-R32", "sift1m-R64", "text40k-R32", "text40k-R64")
TARGETS = (
    *(
        Target(f"{name}: distances at recall@10 {at}, partition / {side}", name,
               lambda p, side=side, at=at: p.get(f"distances_to_{side}", {}).get(at), 1.03, "<=", TIMES)
        for name, side in (*((name, "vamana") for name in _CASES), ("sift1m-R32", "diskann"))
        for at in ("0.95", "0.99")
    ),
    *(
        Target(f"{name}: seconds of the index, partition / vamana", name, lambda p: p["index_ratio"], 0.4, "<=", TIMES)
        for name in _CASES
    ),
    Target("growth of the index's seconds, n to the power of", "growth", lambda p: p["index_exponent"], 1.1, "<="),
)  # fmt: skip


def write_page(record: dict[str, Any], source: str, page: Path) -> None:
    """Write the tables of `record`, which is kept in `source`, into the page of benchmarks."""
    tables.write_into(page, render(record, source), MARKS)


def render(record: dict[str, Any], source: str) -> str:
    """Return all tables of `record`, which is kept in `source`; parts that were not measured have none."""
    drawn = {name: lambda part, _: _case(part) for name in _CASES} | {"growth": lambda part, _: _growth(part)}
    return tables.render(record, source, "", drawn, TARGETS)


def _case(part: dict[str, Any]) -> str:
    rows = []
    for side in ("partition", "vamana", "diskann"):
        one = part.get(side)
        if one is None:
            continue
        cost = [number(one.get(name), 1) if name in one else "-" for name in ("graph_s", "index_s", "wall_s")]
        peak = number(one["peak_bytes"] / GIB, 2) if "peak_bytes" in one else "-"
        degree = number(one["mean_degree"], 1) if "mean_degree" in one else "-"
        rows.append((side, *cost, peak, degree, *(number(one["distances"][at]) for at in ("0.95", "0.99"))))
    names = (
        "graph",
        "graph s",
        "index s",
        "command s",
        "peak GiB",
        "mean degree",
        "distances at 0.95",
        "at 0.99",
    )
    title = f"### {part['set']}, R = {part['max_degree']}, L = {part['list_size']}"
    ratios = [number(part[f"{name}_ratio"], 3) for name in ("graph", "index")]
    line = f"Seconds partition / vamana: graph {ratios[0]}, index {ratios[1]}."
    return f"{title}\n\n" + table(names, rows, "lrrrrrrr") + f"\n\n{line}"


def _growth(part: dict[str, Any]) -> str:
    rows = [
        (
            f"{row['n']:,}",
            number(row["graph_s"], 1),
            number(row["index_s"], 1),
            number(row["peak_bytes"] / GIB, 2),
        )
        for row in part["rows"]
    ]
    line = f"Seconds grow like n^{part['graph_exponent']:.2f} (graph) and n^{part['index_exponent']:.2f} (index)."
    return (
        "### Growth\n\n" + table(("vectors", "graph s", "index s", "peak GiB"), rows, "rrrr") + f"\n\n{line}"
    )
