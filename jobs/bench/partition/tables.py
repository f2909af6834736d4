"""Tables of the benchmark of the partition builder, for the page of benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import tables
from indexmill.jobs.bench.common.cells import number, table
from indexmill.jobs.bench.sift1m.targets import GIB, MIB, TIMES, Target

MARKS = ("<!-- partition: begin -->", "<!-- partition: end -->")
_CASES = ("sift1m-R32", "sift1m-R64", "text40k-R32", "text40k-R64")
_SIDES = ("partition", "vamana", "diskann", "svs", "hnswlib")
_RECALLS = ("0.95", "0.99")
#: What seconds are compared, and the most they may be, by case, builder and the other side.
_SECONDS = (
    ("sift1m-R32", "vamana", "diskann", "index", 0.5),
    ("sift1m-R32", "partition", "diskann", "index", 0.2),
    ("sift1m-R64", "partition", "diskann", "graph", 1 / 6),
    ("sift1m-R64", "partition", "svs", "graph", 1 / 3),
    ("sift1m-R64", "partition", "hnswlib", "graph", 1 / 3),
)
#: Distances over those of the other side's graph, at most.
_DISTANCES = 1.03


def _targets() -> Iterator[Target]:
    for case, mine, side, what, limit in _SECONDS:
        yield Target(
            f"{case}: seconds of the {what}, {mine} / {side}", case,
            lambda p, mine=mine, side=side, what=what: p["ratios"][mine][side][what], limit, "<=", TIMES,
        )  # fmt: skip
        for at in _RECALLS:
            yield Target(
                f"{case}: distances at recall@10 {at}, {mine} / {side}", case,
                lambda p, mine=mine, side=side, at=at: p["ratios"][mine][side]["distances"][at],
                _DISTANCES, "<=", TIMES,
            )  # fmt: skip
    for case in _CASES:
        yield Target(
            f"{case}: peak memory of the partition builder / what `plan` says", case,
            lambda p: p["partition"]["peak_memory_bytes"] / p["memory"]["planned_peak_bytes"], 1, "<=", TIMES,
        )  # fmt: skip
    yield Target(
        "growth of the index's seconds, n to the power of", "growth", lambda p: p["index_exponent"], 1.1, "<="
    )

    yield Target(
        "sift1m: seconds of training and encoding",
        "pq",
        lambda p: p["rows"][0]["indexmill"]["seconds"],
        15,
        "<=",
        "s",
    )
    for i, (name, n_bytes) in enumerate((("sift1m", 32), ("text40k", 32), ("text40k", 16))):
        yield Target(
            f"{name}, {n_bytes} bytes: error of the codes / faiss", "pq", lambda p, i=i: p["rows"][i]["error_ratio"],
            1.01, "<=", TIMES,
        )  # fmt: skip


TARGETS = tuple(_targets())


def write_page(record: dict[str, Any], source: str, page: Path) -> None:
    """Write the tables of `record`, which is kept in `source`, into the page of benchmarks."""
    tables.write_into(page, render(record, source), MARKS)


def render(record: dict[str, Any], source: str) -> str:
    """Return all tables of `record`, which is kept in `source`; parts that were not measured have none."""
    drawn = {name: lambda part, _: _case(part) for name in _CASES}
    drawn |= {"growth": lambda part, _: _growth(part), "pq": lambda part, _: _codes(part)}
    return tables.render(record, source, "", drawn, TARGETS)


def _case(part: dict[str, Any]) -> str:
    rows = []
    for side in _SIDES:
        if side in part:
            one = part[side]
            seconds = [number(one[name], 1) for name in ("graph_s", "index_s", "cpu_s")]
            drift = " to ".join(number(value, 1) for value in one["calibration_s"])
            peak, degree = number(one["peak_bytes"] / GIB, 2), number(one["mean_degree"], 1)
            distances = [number(one["distances"][at]) for at in _RECALLS]
            rows.append((_name(part, side), *seconds, drift, peak, degree, *distances))
    names = (
        "", "graph s", "index s", "CPU s", "calibration s", "peak GiB", "mean degree", "distances at 0.95", "at 0.99"
    )  # fmt: skip
    title = f"### {part['set']}, R = {part['max_degree']}, L = {part['list_size']}"
    title += ", no list saturated" if "svs" in part else ""
    return "\n\n".join(
        (title, table(names, rows, "lrrrrrrrr"), _ratios(part), _memory(part), *_codes_line(part))
    )


def _codes_line(part: dict[str, Any]) -> list[str]:
    """Say what the codes of both took, where the other program tells it."""
    theirs = part.get("diskann", {}).get("pq_s")
    if theirs is None:
        return []
    mine = part["partition"]["stage_s"]["encode"]
    return [
        f"Codes, training included, took {number(mine, 1)} s of ours and {number(theirs, 1)} s of DiskANN's."
    ]


def _name(part: dict[str, Any], side: str) -> str:
    """Say what a side built: our builders and DiskANN's disk index whole indexes, the others graphs in memory."""
    program = {"diskann": "DiskANN", "svs": "SVS"}.get(side, side)
    return program + (", graph in memory" if "build_s" in part[side] else "")


def _ratios(part: dict[str, Any]) -> str:
    rows = []
    for mine, others in part["ratios"].items():
        for side, found in others.items():
            seconds = [number(found[name], 3) for name in ("graph", "index")]
            distances = [number(found["distances"][at], 3) for at in _RECALLS]
            rows.append((f"{mine} / {_name(part, side)}", *seconds, *distances))
    return table(("ratio", "graph", "index", "distances at 0.95", "at 0.99"), rows, "lrrrr")


def _memory(part: dict[str, Any]) -> str:
    found = part["memory"]
    least = found["vectors_bytes"] + 1.5 * found["graph_bytes"]
    pool = found["planned_graph_bytes"] - least
    sizes = [found["planned_peak_bytes"], part["partition"]["peak_memory_bytes"]]
    told, peak = (number(size / MIB) for size in sizes)
    return (
        f"Memory of the partition builder: vectors and 1.5 times the graph {number(least / MIB)} MiB, candidates"
        f" and the process beside them {number(pool / MIB)} MiB by `plan`, which says {told} MiB in all; the peak was"
        f" {peak} MiB."
    )


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


def _codes(part: dict[str, Any]) -> str:
    rows = []
    for row in part["rows"]:
        for side in ("indexmill", "faiss"):
            one = row[side]
            seconds = [number(one[f"{name}_s"], 2) for name in ("train", "encode")]
            rows.append((row["set"], row["pq_bytes"], side, *seconds, f"{one['error']:.5g}"))
        ratios = ("", number(row["seconds_ratio"], 3), number(row["error_ratio"], 4))
        rows.append((row["set"], row["pq_bytes"], "ratio, training and encoding", *ratios))
    names = ("set", "bytes", "", "training s", "encoding s", "mean squared error")
    return "### Codes\n\n" + table(names, rows, "lrlrrr")
