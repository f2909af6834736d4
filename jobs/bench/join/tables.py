"""Tables of the benchmark of joins, for the page of benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import tables
from indexmill.jobs.bench.common.cells import number, share, table
from indexmill.jobs.bench.sift1m.targets import TIMES, Target

MARKS = ("<!-- join: begin -->", "<!-- join: end -->")
MB = 1e6
TARGETS = (
    Target("build, MB of input a second of one core", "build", lambda p: p["mb_s_a_core"], 4, ">=", "MB/s"),
    Target("load phase over bare reads of the same file", "load", lambda p: p["load_to_disk"], 0.85, ">=", TIMES),
    *(
        Target(f"search phase over faiss IndexIVFFlat, nprobe {nprobe}", "search",
               lambda p, at=nprobe: p["nprobe"][at]["to_faiss"], 1.0, ">=", TIMES)
        for nprobe in ("1", "4", "32")
    ),
    *(
        Target(f"ids that differ from faiss's in the same lists, but for ties, nprobe {nprobe}", "search",
               lambda p, at=nprobe: p["nprobe"][at]["differ_in_same_lists"], 0, "<=")
        for nprobe in ("1", "4")
    ),
    Target("queries a second beyond memory, over the same lists mapped", "beyond",
           lambda p: p["bss_to_mapped"], 8, ">=", TIMES),
    Target("queries a second beyond memory, over faiss OnDiskInvertedLists", "beyond",
           lambda p: p["bss_to_ondisk"], 3, ">=", TIMES),
)  # fmt: skip
_SIDES = {
    "bss": "join, batch after batch",
    "mapped": "the same lists mapped, query after query",
    "mapped-random": "the same, MADV_RANDOM",
    "faiss-ondisk": "faiss OnDiskInvertedLists, bytes",
    "faiss-ondisk-random": "the same, MADV_RANDOM",
}


def write_page(record: dict[str, Any], source: str, page: Path) -> None:
    """Write the tables of `record`, which is kept in `source`, into the page of benchmarks."""
    tables.write_into(page, render(record, source), MARKS)


def render(record: dict[str, Any], source: str) -> str:
    """Return all tables of `record`, which is kept in `source`; parts that were not measured have none."""
    drawn = {"search": lambda part, _: _search(part), "beyond": lambda part, _: _beyond(part)}
    return tables.render(record, source, "", drawn, TARGETS)


def _search(part: dict[str, Any]) -> str:
    rows = [
        (
            nprobe, number(1000 * min(one["seconds"]), 1), number(1000 * min(one["faiss_seconds"]), 1),
            number(one["to_faiss"], 2, "x"), f"{one['same_ids']:.5f}", one["queries_with_other_lists"],
            one["differ_in_same_lists"],
        )
        for nprobe, one in part["nprobe"].items()
    ]  # fmt: skip
    names = (
        "nprobe", "join ms", "faiss ms", "faiss / join", "same ids", "queries of which faiss probes other lists",
        "ids that differ otherwise, but for ties",
    )  # fmt: skip
    text = (
        f"### Search of a batch in memory\n\n{part['queries']:,} queries, choice of lists and search; least of all"
        " rounds, and the median ratio of rounds. Lists differ where float32 rounding makes faiss take a farther one."
    )
    return f"{text}\n\n" + table(names, rows, "rrrrrrr")


def _beyond(part: dict[str, Any]) -> str:
    rows = [
        (text, number(part["qps"][side], 0), number(part["qps"]["bss"] / part["qps"][side], 1, "x"))
        for side, text in _SIDES.items()
    ]
    text = (
        f"### Beyond memory\n\nLists of {number(part['list_bytes'] / MB)} MB, nprobe {part['nprobe']}, page cache for"
        f" {share(part['cache_bytes'], part['list_bytes'])} of them beside what a process holds, {part['threads']}"
        " threads, queries in the order given; the join with its files and its result."
    )
    return f"{text}\n\n" + table(("search", "queries a second", "join over it"), rows, "lrr")
