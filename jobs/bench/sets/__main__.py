"""Measure what searches of sets of indexes read, beside one index of all vectors: graphs, and inverted lists.

    python -m indexmill.jobs.bench.sets --sift1m DIR --embed768 DIR --out DIR [--keep]

All indexes have the same R and code bytes; indexes that are in OUT are used. The row *whole lists* searches every part
that a query needs with as many candidates as the nearest one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import indexmill
from indexmill.formats.index.setmanifest import read_set_manifest
from indexmill.jobs.bench.common.benchmark import PAGE, Benchmark, Page, Run, Target
from indexmill.jobs.bench.common.curves import (
    LONG_SIZES,
    PROBES,
    RECALL,
    Row,
    summaries,
    tuned_trial,
    value_at,
)
from indexmill.jobs.bench.common.dataset import Dataset, K, count_both, read_bin
from indexmill.jobs.bench.common.intervals import Curve, curve, figure_at, ratio_at
from indexmill.jobs.bench.common.opened import search_of
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, MAX_DEGREE, SEED, THREADS, pq_bytes
from indexmill.jobs.bench.common.process import run_indexmill
from indexmill.reader import set as searches
from indexmill.reader.choices import DEFAULT_SEARCH_LIST_SIZE

#: Flags of builds beside R and the bytes of codes.
SETS: dict[str, dict[str, object]] = {"sift1m": {}, "embed768": {"metric": "cosine", "node_dtype": "sq8"}}
#: Parts of the sets, and the one that is searched with other margins.
PARTS, MAIN = (2, 4, 8), 4
#: Those other margins.
MARGINS = {"sift1m": (0.1, 0.2, 0.3, 0.5), "embed768": (0.3, 0.5, 0.8, 1.0)}
#: Lists of all parts together.
LISTS = 1024


def build(data: Dataset, index: Path, parts: int | None, flags: dict[str, object]) -> None:
    """Build one index, or a set, unless it is there."""
    if not (index / "manifest.json").exists():
        run_indexmill(
            index.with_suffix(".log"), "build", input=data.base, out=index, parts=parts, seed=SEED,
            memory=BUILD_MEMORY, workers=THREADS, **flags,
        )  # fmt: skip


def graph_flags(data: Dataset, name: str) -> dict[str, object]:
    """Return the flags of a build of graphs."""
    return {"R": MAX_DEGREE, "pq_bytes": pq_bytes(data.shape()[1]), **SETS[name]}


def measure(run: Run, name: str) -> dict[str, Any]:
    """Search sets of some numbers of parts, and one of them with other margins, beside one index of all vectors.

    Where no margin is named, it is the one that the build chose.
    """
    data, folder = run.sets[name], run.out / name
    folder.mkdir(exist_ok=True)
    made = {}
    for parts in (None, *PARTS):
        made[parts] = folder / ("one" if parts is None else f"parts-{parts}")
        build(data, made[parts], parts, graph_flags(data, name))
    whole = _searched(data, made[None])
    rows = [
        {
            "parts": parts,
            **_chosen(made[parts]),
            "by_default": _by_default(data, made[parts]),
            **_beside(whole, _searched(data, made[parts])),
        }
        for parts in PARTS
    ]
    margins = [
        {"margin": margin, **_beside(whole, _searched(data, made[MAIN], margin=margin))}
        for margin in MARGINS[name]
    ]
    with _whole_lists():
        unshortened = _beside(whole, _searched(data, made[MAIN]))
    return {
        "one": {
            "by_default": _by_default(data, made[None]),
            "pages_read": figure_at(_reads(whole), RECALL),
            "rows": summaries(whole),
        },
        "main": MAIN,
        "parts": rows,
        "ratio": next(row["ratio"] for row in rows if row["parts"] == MAIN),
        "margins": margins,
        "whole_lists": unshortened,
    }


def measure_lists(run: Run) -> dict[str, Any]:
    """Search a set of inverted lists, also with as many lists in every part, beside one index of as many lists."""
    data, folder = run.sets["sift1m"], run.out / "lists"
    folder.mkdir(exist_ok=True)
    made = {None: folder / "one", MAIN: folder / f"parts-{MAIN}"}
    for parts, index in made.items():
        build(data, index, parts, {"kind": "ivf", "lists": LISTS // (parts or 1)})
    how: dict[str, Any] = {"sizes": PROBES, "effort": "nprobe"}
    one = _searched(data, made[None], **how)
    rows = _searched(data, made[MAIN], **how)
    with _whole_lists():
        unshortened = _searched(data, made[MAIN], **how)
    cost = "bytes_read"
    return {
        "one": {cost: figure_at(_reads(one, cost), RECALL), "rows": summaries(one)},
        "parts": {"parts": MAIN, **_chosen(made[MAIN]), **_beside(one, rows, cost)},
        "whole_lists": _beside(one, unshortened, cost),
    }


def _chosen(index: Path) -> dict[str, Any]:
    """Return the margin that the build of a set chose, and the share of neighbours that it was chosen by."""
    margin = read_set_manifest(index).margin
    assert margin is not None
    return {"margin": margin.value, "share": margin.share}


def _by_default(data: Dataset, index: Path) -> dict[str, Any]:
    """Return what a search of the reported queries finds and reads that is given nothing but the queries and k."""
    opened: Any = indexmill.open(index)
    first, last = data.both_halves()["report"]
    found = opened.search(read_bin(data.query)[first:last], K, threads=THREADS)
    hits = count_both(found.ids, data, first, last)["hits"]
    return {
        "L": DEFAULT_SEARCH_LIST_SIZE,
        "recall": float(hits.mean()) / K,
        "pages_read": float(found.counters["pages_read"].mean()),
    }


def _searched(
    data: Dataset, index: Path, sizes: Sequence[int] = LONG_SIZES, effort: str = "L", **how: Any
) -> list[Row]:
    """Return the rows of the reported queries, at efforts that the other half chose; `effort` is their option."""
    return tuned_trial(search_of(data, index, effort, **how), sizes)[1]


def _beside(whole: list[Row], rows: list[Row], cost: str = "pages_read") -> dict[str, Any]:
    """Return reads of a set at the recall, and how many times as many they are as those of one index."""
    return {
        "searched": value_at(rows, "parts"),
        cost: figure_at(_reads(rows, cost), RECALL),
        "ratio": ratio_at(_reads(rows, cost), _reads(whole, cost), RECALL),
        "highest_recall": float(np.max([row["recall"] for row in rows])),
        "rows": summaries(rows),
    }


def _reads(rows: list[Row], cost: str = "pages_read") -> Curve:
    return curve([rows], cost)


@contextmanager
def _whole_lists() -> Iterator[None]:
    """Let sets search all parts with as many candidates, or lists, as the nearest one."""
    quarters, searches.QUARTERS = searches.QUARTERS, (4, 4, 4)
    try:
        yield
    finally:
        searches.QUARTERS = quarters


TARGETS = tuple(
    Target(f"page reads at 0.95, a set of {MAIN} parts / one index, {name}", f"{name}.ratio", "<=", 1.6, "x")
    for name in SETS
)

BENCHMARK = Benchmark[Run](
    "sets",
    {**{name: partial(measure, name=name) for name in SETS}, "lists": measure_lists},
    TARGETS,
    sets=tuple(SETS),
    parameters={"threads": THREADS},
    pages=(Page("tables", PAGE, "sets"), Page("guide", "docs/guides/sets.md", "sets")),
)

if __name__ == "__main__":
    BENCHMARK.main()
