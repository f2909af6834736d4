"""Tables of the benchmark of hash tables, for the page of benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import tables
from indexmill.jobs.bench.common.cells import NOT_REACHED, figure, number, table
from indexmill.jobs.bench.lsh import page_more as tables_lsh_more
from indexmill.jobs.bench.lsh.targets import TARGETS
from indexmill.jobs.bench.lsh.tune import KS

MARKS = ("<!-- lsh: begin -->", "<!-- lsh: end -->")
MB = 1e6
_SIDES = ("memory", "storage", "srs", "qalsh")
_NAMES = {"memory": "E2LSH in memory", "storage": "E2LSH on storage", "srs": "SRS", "qalsh": "QALSH"}


def write_page(record: dict[str, Any], source: str, page: Path) -> None:
    """Write the tables of `record`, which is kept in `source`, into the page of benchmarks."""
    tables.write_into(page, render(record, source), MARKS)


def render(record: dict[str, Any], source: str) -> str:
    """Return all tables of `record`, which is kept in `source`; parts that were not measured have none."""
    parts = record["parts"]
    sections = [tables.render(record, source, "", {}, TARGETS).strip()]
    sets = [one["name"] for one in record["data"]]
    measured = {name: parts[f"tables-{name}"]["indexes"] for name in sets if f"tables-{name}" in parts}
    if measured:
        sections += [_shapes(measured), *(_costs(measured, k) for k in KS)]
    speeds = {name: parts[f"speed-{name}"] for name in sets if f"speed-{name}" in parts}
    if speeds:
        sections.append(_speeds(speeds))
    sections += tables_lsh_more.sections(parts)
    return "\n\n".join(sections) + "\n"


def _shapes(measured: dict[str, Any]) -> str:
    rows = []
    for name, part in measured.items():
        for shape, found in part.items():
            index = found["index"]
            rows.append(
                (
                    name, shape, index["n_functions"], index["n_tables"], index["n_radii"], index["probes"],
                    f"{index['rho']:.3f}", f"{index['success']:.2f}", number(index["index_bytes"] / MB),
                    number(index["vector_bytes"] / MB), number(found["build"]["wall_s"], 1),
                )
            )  # fmt: skip
    names = ("set", "index", "m", "L", "r", "T", "rho", "success", "tables MB", "vectors MB", "build s")
    return "### Indexes of hash tables\n\n" + table(names, rows, "ll" + "r" * 9)


def _costs(measured: dict[str, Any], k: int) -> str:
    """Tables 4 and 6 of the paper, with what our reads are."""
    rows = []
    for name, part in measured.items():
        for shape, found in part.items():
            at = found[f"k{k}"]
            if at["candidates"] is None:
                best = at["tuning_rows"][-1]["ratio"]
                rows.append((name, shape, f"{NOT_REACHED} ({best:.3f})", *[""] * 10))
                continue
            memory, stored = at["memory"], at["storage"]
            rows.append(
                (
                    name, shape, number(at["candidates"]), f"{stored['ratio']:.3f}", f"{stored['recall']:.2f}",
                    f"{stored['radii']:.2f}", number(stored["table_reads"]), number(stored["blocks"]),
                    number(stored["table_reads"] + stored["block_reads"]), number(stored["distances"]),
                    number(memory["qps"]), number(stored["qps"]), number(stored["resident_bytes"]["own"] / MB),
                )
            )  # fmt: skip
    names = (
        "set", "index", "S", "ratio", "recall", "radii", "table reads", "blocks", "reads", "distances",
        "queries/s in memory", "on storage", "resident MB on storage",
    )  # fmt: skip
    skipped = sum(
        found[f"k{k}"]["storage"]["skipped"]
        for part in measured.values()
        for found in part.values()
        if found[f"k{k}"]["storage"]
    )
    text = (
        f"k = {k}, one thread. `table reads` + `blocks` are the paper's I/Os; blocks that lie together are one read"
        " of ours. Resident memory is that of the process, interpreter and vectors included."
        f" Queries without a ratio (a true distance of 0 that was not found), over all rows: {skipped}."
    )
    return f"### At overall ratio 1.05, k = {k}\n\n{text}\n\n" + table(names, rows, "ll" + "r" * 11)


def _speeds(speeds: dict[str, Any]) -> str:
    rows = []
    for name, part in speeds.items():
        for k in KS:
            at = part[f"k{k}"]
            for who in _SIDES:
                rows.append((name, k, _NAMES[who], *_side(at, who)))
    names = (
        "set",
        "k",
        "method",
        "setting",
        "us a query",
        "ratio",
        "distances",
        "index MB held",
        "in memory / this",
    )
    text = (
        "One thread each, in turns, medians of the rounds with the least and greatest. SRS ends by T' alone or by"
        " its early stop, whichever is faster; QALSH was searched for fewer queries, so its ratio differs"
        " more. Held is what a search keeps in memory of an index beside the vectors (the paper's Table 6)."
    )
    return f"### Beside SRS and QALSH\n\n{text}\n\n" + table(names, rows, "lrllrrrrr")


def _side(at: dict[str, Any], who: str) -> tuple[str, ...]:
    if who not in at["rows"]:
        return (NOT_REACHED, "", "", "", "", "")
    row = at["rows"][who][0]
    if who == "srs":
        used = at["tuned"]["srs"]["best"]
        setting = f"T' {used['most']:,}" + ("" if used["ratio"] is None else f", c {used['ratio']:g}")
    elif who == "qalsh":
        setting = f"c {at['tuned']['qalsh']['best']:g}"
    else:
        setting = f"{at['shapes'][who]}, S {row['search']['candidates']:,}"
    return (
        setting, figure(at["us"][who], 0), f"{row['ratio']:.3f}", number(row["distances"]),
        number(_held(row["opened"]) / MB, 1),
        figure(at["ratios"].get(f"memory / {who}"), 1, "x") if who in ("srs", "qalsh") else "",
    )  # fmt: skip


def _held(opened: dict[str, Any]) -> float:
    """Bytes of an index that are in memory, without the vectors."""
    if "bytes" in opened:
        return float(opened["bytes"])
    return float(sum(opened["memory"].values()) - opened["memory"]["vectors"])
