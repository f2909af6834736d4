"""Measures assignment by chunk files and by append files: the eCP study's Tables 2 and 3 (section 5).

For each scratch path, size of the in-buffer and policy: read all vectors, assign them, keep them on the scratch path,
merge them into one file on the first path. What was written is on the disk when a phase ends, and the page cache holds
neither the input when the assignment begins nor the parts when the merge does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.leaders.assignment_error import assignment_error
from indexmill.builders.leaders.base import ExactLeaders, LeaderIndex, draw_leaders
from indexmill.builders.leaders.graph import LeaderGraph
from indexmill.builders.leaders.groups import LeaderGroups
from indexmill.builders.leaders.tree import LeaderTree
from indexmill.formats.errors import BudgetError, ConfigError, InputError
from indexmill.formats.sources.source import VectorSource
from indexmill.jobs.console.progress import Bar, Lines
from indexmill.jobs.devices import machine
from indexmill.jobs.grouping.run import Run, scratch_folder
from indexmill.pipeline.grouping.assignment import in_buffer_rows
from indexmill.pipeline.grouping.policies import cluster_bytes

#: Counts up when a record changes; pages are written from records of this format alone.
FORMAT = 1
POLICIES = ("temp", "chunk")
#: Indexes over leaders: groups probed by products, a graph, eCP's tree, and none.
INDEXES = ("groups", "graph", "tree", "exact")
#: Vectors that fit the index over leaders, and as many others that measure its error.
SAMPLE_VECTORS = 4096
#: With fewer leaders brute force is as quick as an index.
_LEAST_INDEXED = 256
#: Keeps the sample apart from other draws with the same seed.
_STREAM = 0xBE7C


@dataclass(frozen=True)
class Setting:
    """Settings of a measurement.

    Attributes
    ----------
    leaders, seed : int
    in_buffers : sequence of int
        Bytes.
    scratch : sequence of Path
        Merged files are written to the first.
    workers : int
    rounds : int
        Times that each is measured, in turns.
    index : str
        How the nearest leader is found, one of `INDEXES`.
    depth, beam : int
        Levels of the tree, and branches looked into at each.
    """

    leaders: int
    in_buffers: Sequence[int]
    scratch: Sequence[Path]
    workers: int
    rounds: int = 1
    seed: int = 1
    index: str = "groups"
    depth: int = 3
    beam: int = 1


@dataclass(frozen=True)
class Leaders:
    """An index over leaders, how it was made, and its error on vectors that are no leaders."""

    index: LeaderIndex
    facts: dict[str, Any]


def make_leaders(source: VectorSource, setting: Setting) -> Leaders:
    """Draw leaders and index them.

    Raises
    ------
    ConfigError
        If there are fewer vectors than leaders.
    InputError
        If a leader is no finite vector.
    """
    seed, workers = setting.seed, setting.workers
    rows = draw_leaders(source.n_vectors, setting.leaders, seed)
    leaders = _finite(source, rows)
    facts: dict[str, Any] = {"leaders": len(leaders), "seed": seed, "workers": workers}
    rng = np.random.default_rng([seed, _STREAM])
    others = np.setdiff1d(rng.integers(source.n_vectors, size=4 * SAMPLE_VECTORS), rows)
    sample = _finite(source, rng.permutation(others)[: 2 * SAMPLE_VECTORS])
    if setting.index == "exact" or len(leaders) < _LEAST_INDEXED or len(sample) < 2:
        return Leaders(ExactLeaders(leaders), {**facts, "index": "exact", "agreement": 1.0})
    index: LeaderIndex
    if setting.index == "tree":
        index = LeaderTree(leaders, depth=setting.depth, beam=setting.beam, seed=seed, threads=workers)
        facts |= {"depth": setting.depth, "beam": setting.beam}
    elif setting.index == "graph":
        index = LeaderGraph(leaders, seed=seed, threads=workers)
    else:
        index = LeaderGroups(leaders, sample[::2], seed=seed, threads=workers)
    error = assignment_error(index, sample[1::2], 1, workers)
    found = {"agreement": round(error.agreement, 4), "excess_distance": round(error.excess_distance, 6)}
    return Leaders(index, {**facts, "index": setting.index, **found})


def _finite(source: VectorSource, rows: NDArray[np.int64]) -> NDArray[Any]:
    vectors = source.read(rows)
    bad = rows[~np.isfinite(vectors).all(axis=1)]
    if len(bad):
        raise InputError(
            f"{source.paths[0]}: vector {bad[0]}: expected finite components, got NaN or infinity"
        )
    return vectors


def make_record(
    open_input: Callable[[], VectorSource], setting: Setting, progress: Bar | Lines, name: str = ""
) -> dict[str, Any]:
    """Check, draw and index leaders, measure; say when, with what and on which machine.

    Parameters
    ----------
    open_input : callable
        Opens the vectors; called for each run, so that nothing of them is mapped while the page cache is emptied.
    name : str
        Of the data; the name of its first file by default.

    Raises
    ------
    ConfigError, InputError, BudgetError, OSError
        As `check`, `make_leaders` and `measure`.
    """
    source = open_input()
    check(source, setting)
    data = {
        "name": name or Path(source.paths[0]).name,
        "n_vectors": source.n_vectors,
        "dim": source.dim,
        "dtype": str(source.dtype),
    }
    record = {
        "format": FORMAT,
        "benchmark": "assign",
        "data": data,
        "machine": machine.machine_facts(),
        "versions": machine.software_versions(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "load_before": machine.load_average(),
        "scratch": [machine.filesystem_of(path) for path in setting.scratch],
    }
    progress.start("leaders", setting.leaders, "leaders")
    leaders = make_leaders(source, setting)
    progress.advance(setting.leaders)
    progress.finish()
    del source
    runs = measure(open_input, leaders.index, setting, progress)
    return {**record, "parameters": leaders.facts, "runs": runs}


def measure(
    open_input: Callable[[], VectorSource], index: LeaderIndex, setting: Setting, progress: Bar | Lines
) -> list[dict[str, Any]]:
    """Measure every policy, in-buffer and scratch path; returns one row a run.

    Raises
    ------
    ConfigError, InputError
        As `pipeline.grouping.assignment.assign`.
    OSError
        If a path cannot be written; nothing is left there.
    RuntimeError
        If the policies wrote different files, which is a bug.
    """
    rows: list[dict[str, Any]] = []
    turns = product(range(setting.rounds), enumerate(setting.scratch), setting.in_buffers, POLICIES)
    for turn, (place, scratch), in_buffer, policy in turns:
        run = Run(policy, in_buffer, scratch, setting.scratch[0], setting.workers)
        rows.append({"round": turn, "scratch": place, **run.measure(open_input(), index, progress)})
    if len({row["sha256"] for row in rows}) > 1:
        raise RuntimeError("the policies wrote different files")
    return rows


def check(source: VectorSource, setting: Setting) -> None:
    """Refuse what cannot work, before any work is done.

    Raises
    ------
    ConfigError
        If an in-buffer holds no vector, or a scratch path is no directory.
    BudgetError
        If a path has too little room.
    OSError
        If nothing can be written there.
    """
    for in_buffer in setting.in_buffers:
        in_buffer_rows(source, in_buffer)
    merged = cluster_bytes(source.n_vectors, source.dim * source.dtype.itemsize)
    for path in setting.scratch:
        if not path.is_dir():
            raise ConfigError(f"--scratch: {path} is no directory; create it first")
        with scratch_folder(path):
            disk = os.statvfs(path)
        parts = merged + setting.leaders * disk.f_bsize  # an append file ends within a block
        need = parts + (merged if path.stat().st_dev == setting.scratch[0].stat().st_dev else 0)
        free = disk.f_bavail * disk.f_frsize
        if free < need:
            raise BudgetError(
                f"--scratch: {path}: expected {need:,} free bytes, got {free:,}; free some, or name another path"
            )


def median_runs(runs: Sequence[Mapping[str, Any]], place: int) -> list[Mapping[str, Any]]:
    """Return, for one scratch path, the run of median total time for each in-buffer and policy."""
    found: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for run in runs:
        if run["scratch"] == place:
            found.setdefault((run["in_buffer_bytes"], run["policy"]), []).append(run)
    return [median_run(group) for group in found.values()]


def median_run(runs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the run of median total time; of two in the middle the quicker."""
    return sorted(runs, key=lambda run: run["total_s"])[(len(runs) - 1) // 2]
