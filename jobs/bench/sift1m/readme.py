"""The README's table of figures, from a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexmill.jobs.bench.common.cells import NOT_REACHED, number, table
from indexmill.jobs.bench.common.intervals import value_of
from indexmill.jobs.bench.sift1m.targets import GIB

#: Parts that the table is of.
PARTS = ("disk", "build", "quality", "reads", "qps", "latency", "cpu")


def render(record: dict[str, Any]) -> str:
    """Return the paragraph that says what was measured, and the table."""
    machine, parts = record["machine"], record["parts"]
    days = sorted(part["started"][:10] for part in parts.values())
    data, used = record["data"], record["parameters"]
    text = (
        f"On this project's own set `{data['name']}` ({data['n_vectors']:,} x {data['dim']} {data['dtype']};"
        f" not the published SIFT1M), R={used['R']}, L={used['L']}, {used['pq_bytes']}-byte codes, 4 KiB"
        f" pages, {used['threads']} threads, against `diskannpy` 0.7.0 in the same run; {days[-1]},"
        f" {machine['cores']} cores of an {machine['cpu']}, {machine['memory_bytes'] / GIB:.1f} GiB, disk of"
        f" {parts['disk']['reads_per_s']:,} random 4 KiB reads a second."
    )
    rows = [*_built(parts["build"], parts["quality"]), *_searched(parts)]
    return f"{text}\n\n" + table(("", "DiskANN", "indexmill", "ratio"), rows, "lrrr") + "\n"


def _built(build: dict[str, Any], quality: dict[str, Any]) -> list[list[str]]:
    costs = [
        f"{build[side]['wall_s']:.0f} s, {build[side]['peak_bytes'] / GIB:.1f} GiB"
        for side in ("diskann", "indexmill")
    ]
    distances = [number(quality[side]["distances"]) for side in ("diskann", "indexmill")]
    return [
        ["whole build", *costs, f"{number(build['wall_ratio'], 2)}x time"],
        [
            "distances a query at recall@10 0.95, same search on both graphs",
            *distances,
            _times(quality["distances_ratio"], 3),
        ],
    ]


def _searched(parts: dict[str, Any]) -> list[list[str]]:
    reads, qps, latency, cpu = (parts[name] for name in ("reads", "qps", "latency", "cpu"))
    order, policy, entry = reads["headline"]
    headline = next(
        one
        for one in reads["settings"]
        if (one["order"], one["policy"], one["entry"]) == (order, policy, entry)
    )
    layouts = [
        one["pages_read"]["0.95"]
        for order in ("identity", "star")
        for one in reads["settings"]
        if (one["order"], one["policy"], one["entry"]) == (order, "page", "navigation")
    ]
    rows = [
        ["page reads a query at 0.95"]
        + [_shown(one["pages_read"]["0.95"], 1) for one in (reads["diskann"], headline)]
        + [_times(value_of(reads["to_diskann"]["0.95"]))],
        [
            "of which the layout: page search, identity against star + FFD",
            f"{_shown(layouts[0], 1)} (identity)",
            _shown(layouts[1], 1),
            _times(value_of(reads["star_to_identity"]["0.95"])),
        ],
    ]
    rows += [
        [f"queries a second at {at}"]
        + [_shown(qps["qps"][name][at]) for name in ("diskann", "indexmill")]
        + [_times(value_of(qps["ratio"][at]), 1)]
        for at in ("0.90", "0.95", "0.98")
    ]
    many = f"the same at 0.95 with {qps['many_threads']} queries in flight on both sides"
    rows.append(
        [many]
        + [_shown(qps["qps"][name]["0.95"]) for name in ("diskann_many", "indexmill")]
        + [_times(value_of(qps["ratio_many"]["0.95"]), 1)]
    )
    for statistic, name in (("mean", "mean"), ("p99", "P99")):
        sides = [latency["us"][side]["0.95"][statistic] for side in ("diskann", "indexmill")]
        rows.append(
            [f"{name} latency at 0.95, one query at a time"]
            + [_shown(side, unit=" us") for side in sides]
            + [_times(value_of(latency["ratio"]["0.95"][statistic]))]
        )
    rows.append(
        ["CPU time a query at 0.95"]
        + [_shown(cpu["cpu_us"][side]["0.95"], unit=" us") for side in ("diskann", "indexmill")]
        + [_times(value_of(cpu["ratio"]["0.95"]))]
    )
    return rows


def _shown(found: Mapping[str, float | None] | None, digits: int = 0, unit: str = "") -> str:
    return NOT_REACHED if found is None else number(found["value"], digits, unit)


def _times(value: float | None, digits: int = 2) -> str:
    return NOT_REACHED if value is None else f"{value:.{digits}f}x"
