"""Tables of the benchmark of split joins, for the page of benchmarks; each says that nothing of it is a drive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import tables
from indexmill.jobs.bench.common.cells import number, share, table
from indexmill.jobs.bench.sift1m.targets import TIMES, Target

MARKS = ("<!-- split: begin -->", "<!-- split: end -->")
TARGETS = (
    Target("queries a second, host and 8 emulated drives over the host", "emulated",
           lambda p: p["hybrid_to_host"], 1.6, ">=", TIMES),
    Target("first worker done before the last one, share of the time", "emulated", lambda p: p["spread"], 0.10, "<="),
    Target("worker's time off its plan by at most, share of it", "emulated", lambda p: p["off"], 0.10, "<="),
)  # fmt: skip


def write_page(record: dict[str, Any], source: str, page: Path) -> None:
    """Write the tables of `record`, which is kept in `source`, into the page of benchmarks."""
    tables.write_into(page, render(record, source), MARKS)


def render(record: dict[str, Any], source: str) -> str:
    """Return all tables of `record`, which is kept in `source`; parts that were not measured have none."""
    drawn = {"emulated": lambda part, _: _emulated(part), "simulated": lambda part, _: _simulated(part)}
    return tables.render(record, source, "", drawn, TARGETS)


def _emulated(part: dict[str, Any]) -> str:
    one = part["runs"]["hybrid"][0]
    host, drives = one["batches"][0], one["batches"][1:]
    rows = [
        (name, number(part["seconds"][kind], 2), number(part["queries"] / part["seconds"][kind], 0))
        for kind, name in (("host", "host"), ("drives", f"{part['drives']} drives"), ("hybrid", "both"))
    ]
    text = (
        f"### Emulated drives\n\nA join of {part['batches']} batches by workers that wait until the paper's host and"
        f" drives, scaled down, would be through. Both: {host} batches for the host, {min(drives)} to"
        f" {max(drives)} for a drive."
    )
    return f"{text}\n\n" + table(("workers", "seconds", "queries a second"), rows, "lrr")


def _simulated(part: dict[str, Any]) -> str:
    head = (
        "### The paper's platform, simulated\n\nNothing here was measured. 10,000 queries, 4,096 cells, 520 bytes a"
        " vector, drives of 1,600 MB/s. Two of the paper's ratios (1.71 and 5.8) fix the rates it does not tell: the"
        f" host compares {number(part['host_compare_m_s'], 1)} million vectors a second, a drive"
        f" {number(part['drive_compare_m_s'], 2)} million."
    )
    pieces = [
        _virtual(part["virtual_memory"]),
        _scaling(part["scaling"]),
        _hybrids(part["hybrids"]),
        _energy(part["energy"]),
    ]
    return "\n\n".join([head, *pieces])


def _virtual(found: dict[str, Any]) -> str:
    rows = [
        (f"{rate} MB/s", number(found["mapped_qps"][rate], 1), number(ratio, 1, "x"))
        for rate, ratio in found["bss_to_mapped"].items()
    ]
    text = (
        "Figure 8a (paper: more than 8 times): 50 million vectors, memory for"
        f" {share(found['cache_share'])}, one drive; batches read once: {number(found['bss_qps'], 0)} queries a second."
        " The rate at which faults bring lists in is assumed."
    )
    return f"{text}\n\n" + table(("faults at", "queries a second, mapped", "batches over it"), rows, "lrr")


def _scaling(found: dict[str, Any]) -> str:
    counts = list(found["host"])
    rows = [
        (name, *(number(found[kind][n], 0) for n in counts))
        for kind, name in (("host", "host (8b)"), ("drives", "drives (8c)"), ("hybrid", "both"))
    ]
    text = "Figures 8b and 8c, 50 million vectors: queries a second by the number of drives."
    return f"{text}\n\n" + table(("workers", *counts), rows, "l" + "r" * len(counts))


def _hybrids(found: list[dict[str, Any]]) -> str:
    rows = [
        (
            row["figure"], row["drives"], "" if row["paper"] is None else number(row["paper"], 2, "x"),
            number(row["anywhere"]["hybrid_to_host"], 2, "x"), number(row["anywhere"]["d_host"] / 1e6, 1),
            number(row["anywhere"]["d_drive"] / 1e6, 1), number(row["batches"]["hybrid_to_host"], 2, "x"),
            f"{row['batches']['spread']:.0%}",
        )
        for row in found
    ]  # fmt: skip
    names = (
        "figure", "drives", "paper", "both / host", "host, M vectors", "a drive, M vectors",
        "whole batches: both / host", "done before the last",
    )  # fmt: skip
    text = "Figure 9: host and drives over the host with as many drives, vectors divided anywhere and by whole batches."
    return f"{text}\n\n" + table(names, rows, "lrrrrrrr")


def _energy(found: dict[str, Any]) -> str:
    watts = found["watts"]
    rows = [
        (name, number(found["seconds"][name], 0), number(kj, 1), number(found["paper_kj"][name], 1))
        for name, kj in found["kj"].items()
    ]
    text = (
        f"Figure 10, 10^9 vectors; {number(watts['host'], 0)} W for the host, {number(watts['drive'], 1)} W a drive and"
        f" {number(watts['processors'], 1)} W for its processors at work, fitted to the paper's four energies."
    )
    return f"{text}\n\n" + table(("workers", "seconds", "kJ", "paper's kJ"), rows, "lrrr")
