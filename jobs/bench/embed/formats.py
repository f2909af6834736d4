"""Formats of an index: built by the command with some flags, told by the manifest, and judged by page reads.

All searches have the reader's own setting. List sizes are chosen on the first half of the queries.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.curves import (
    LONG_SIZES,
    RECALL,
    Row,
    Search,
    coarse_sweep,
    sizes_at,
    summaries,
    trial,
    value_at,
)
from indexmill.jobs.bench.common.dataset import K, write_beginning
from indexmill.jobs.bench.common.intervals import Curve, curve, figures_at
from indexmill.jobs.bench.common.process import indexmill, run_indexmill, told
from indexmill.jobs.bench.embed.sets import Case
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.ours import Setting
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.pipeline.bisection import least

#: What decides how an index stores vectors, by its names in manifests.
FORMAT = ("pq_bytes", "pq_rotation", "node_dtype", "keep_vectors", "max_degree")
#: List sizes of a first sweep: codes of few bytes need long lists.
SIZES = (*LONG_SIZES, 1280)
#: L of the search that tells where the recall of a format ends.
LONGEST = 1_000
SETTING = Setting()
#: Vectors of the build that compiles the kernels: enough for the format to be chosen.
WARM_UP_ROWS = 12_000


@dataclass(frozen=True)
class Reads:
    """Searches of one index: rows of both halves of the queries, and the highest recall, of the longest list."""

    tuned: list[Row]
    rows: list[Row]
    highest_recall: float

    @cached_property
    def curve(self) -> Curve:
        """Page reads of the reported queries."""
        return curve([self.rows], "pages_read")

    def facts(self) -> dict[str, Any]:
        """Return what a record keeps."""
        return {
            "pages_read": figures_at(self.curve),
            "highest_recall": self.highest_recall,
            "rows": summaries(self.rows),
        }


@dataclass(frozen=True)
class Tried:
    """An index that was built and searched.

    Attributes
    ----------
    flags : dict
        Those of its build that are about the format.
    facts : dict
        See `facts`, and the cost of the build.
    reads : Reads
    """

    flags: dict[str, Any]
    facts: dict[str, Any] = field(repr=False)
    reads: Reads = field(repr=False)

    def record(self) -> dict[str, Any]:
        """Return what a record keeps."""
        return {"flags": self.flags, **self.facts, **self.reads.facts()}


def build(
    case: Case, name: str, work: Path | None = None, base: Path | None = None, **flags: object
) -> dict[str, Any]:
    """Build an index with a metric and `flags` and nothing else; return its cost and `facts`.

    Stages that `work` holds are not repeated, and the time is that of the others. Vectors are those of the set, or of
    the file `base`.
    """
    index = case.space.index(name)
    log = index.with_suffix(".log")
    files = {"input": base or case.space.data.base, "out": index, "work": work}
    usage = run_indexmill(log, "build", **files, metric=case.metric, **flags)
    return {**usage.to_dict(), **facts(index)}


def facts(index: Path) -> dict[str, Any]:
    """Return the format of an index and its sizes, and the seconds of each stage that its build made."""
    made, run = ours.manifest(index), ours.run_facts(index)
    memory: dict[str, int] = told(indexmill("inspect", index, json=True))["memory_bytes"]
    return {
        "format": {name: made["parameters"][name] for name in FORMAT},
        "stage_s": run["seconds"],
        "index_bytes": sum(file["bytes"] for file in made["files"]),
        "held_bytes": sum(memory.values()),
        "chosen_by": made["graph"].get("format"),
    }


def ensure(case: Case, name: str = "default", **flags: Any) -> None:
    """Build an index of a set, by default that without flags, unless it is there."""
    path = case.space.index(name) / "manifest.json"
    if not path.exists() or ours.manifest(path.parent)["input"]["n_vectors"] != case.space.data.shape()[0]:
        build(case, name, **flags)


def warm_up(case: Case) -> None:
    """Build an index of a few vectors: kernels are compiled once, not with every build."""
    base = write_beginning(case.space.data, WARM_UP_ROWS, case.space.out)
    index = case.space.index("warm-up")
    run_indexmill(index.with_suffix(".log"), "build", input=base, out=index, metric=case.metric)
    base.unlink()
    shutil.rmtree(index)


def page_reads(space: Workspace, name: str, setting: Setting = SETTING) -> Reads:
    """Search an index with list sizes around the recalls that are compared, and once with a long list."""
    with ours.Ours(space) as searcher:
        search = searcher.search(name, setting)
        tuned = coarse_sweep(search, sizes=SIZES)
        sizes = sizes_at(tuned)
        if len(sizes) == 1:  # the shortest list finds nearly everything
            sizes = list(SIZES[:2])
        rows, longest = trial(search, sizes, "report"), search(LONGEST, "report")
        return Reads(tuned, rows, max(float(row["recall"]) for row in (*rows, longest)))


def least_size(search: Search) -> int:
    """Return the least list size with a recall of `RECALL` on the tuning queries.

    Raises
    ------
    RuntimeError
        If the longest of `SIZES` finds less.
    """

    def reaches(size: int) -> bool:
        return bool(search(size, "tune")["recall"] >= RECALL)

    shorter = K - 1
    for size in SIZES:
        if reaches(size):
            return least(reaches, shorter, size)
        shorter = size
    raise RuntimeError(f"recall@{K} is below {RECALL} with L = {shorter}")


def tried(case: Case, flags: dict[str, Any], work: Path) -> Tried:
    """Build an index with `flags`, search it and remove it."""
    name = "tried"
    made = build(case, name, work, **flags)
    found = Tried(flags, made, page_reads(case.space, name))
    shutil.rmtree(case.space.index(name))
    return found


def common_recall(sweeps: Sequence[Sequence[Row]]) -> float:
    """Return the recall at which searches are compared: `RECALL`, or more where the shortest lists find more."""
    return max(RECALL, *(min(float(row["recall"]) for row in rows) for rows in sweeps))


def best(formats: Sequence[Tried]) -> Tried:
    """Return the one with the fewest page reads of the tuning queries."""
    at = common_recall([one.reads.tuned for one in formats])

    def pages(one: Tried) -> float:
        reached = value_at(one.reads.tuned, "pages_read", at)
        return inf if reached is None else reached

    return min(formats, key=pages)
