"""Measures assignment by chunk files and by append files: the eCP study's Tables 2 and 3 (section 5).

For each scratch path, size of the in-buffer and policy: read all vectors, assign them, keep them on the scratch path,
merge them into one file on the first path. What was written is on the disk when a phase ends, and the page cache holds
neither the input when the assignment begins nor the parts when the merge does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.assignment import assignment_error
from indexmill.builders.leader_groups import LeaderGroups
from indexmill.builders.leaders import ExactLeaders, LeaderIndex, draw_leaders
from indexmill.formats.errors import BudgetError, ConfigError, InputError
from indexmill.formats.source import VectorSource
from indexmill.formats.tally import create, forget, sync
from indexmill.jobs import machine
from indexmill.jobs.progress import Bar, Lines
from indexmill.jobs.tables import human_bytes
from indexmill.pipeline.assignment import Policy, assign, in_buffer_rows
from indexmill.pipeline.policies import ChunkFiles, TempFiles, cluster_bytes, naming

#: Counts up when a record changes; pages are written from records of this format alone.
FORMAT = 1
POLICIES = ("temp", "chunk")
#: Vectors that fit the index over leaders, and as many others that measure its error.
SAMPLE_VECTORS = 4096
#: With fewer leaders brute force is as quick as an index.
_LEAST_INDEXED = 256
#: Keeps the sample apart from other draws with the same seed.
_STREAM = 0xBE7C
_PREFIX = "indexmill-assign-"


@dataclass(frozen=True)
class Setting:
    """What is measured.

    Attributes
    ----------
    in_buffers : sequence of int
        Bytes.
    scratch : sequence of Path
        Merged files are written to the first.
    workers : int
    rounds : int
        Times that each is measured, in turns.
    """

    in_buffers: Sequence[int]
    scratch: Sequence[Path]
    workers: int
    rounds: int


@dataclass(frozen=True)
class Leaders:
    """An index over leaders, how it was made, and its error on vectors that are no leaders."""

    index: LeaderIndex
    facts: dict[str, Any]


def make_leaders(source: VectorSource, n_leaders: int, exact: bool, seed: int, workers: int) -> Leaders:
    """Draw leaders and index them.

    Parameters
    ----------
    exact : bool
        Whether every vector is to be compared with every leader.

    Raises
    ------
    ConfigError
        If there are fewer vectors than leaders.
    InputError
        If a leader is no finite vector.
    """
    rows = draw_leaders(source.n_vectors, n_leaders, seed)
    leaders = _finite(source, rows)
    others = np.unique(
        np.random.default_rng([seed, _STREAM]).integers(source.n_vectors, size=4 * SAMPLE_VECTORS)
    )
    others = np.random.default_rng([seed, _STREAM]).permutation(np.setdiff1d(others, rows))
    sample = _finite(source, np.sort(others[: 2 * SAMPLE_VECTORS]))
    facts: dict[str, Any] = {"leaders": n_leaders, "seed": seed, "workers": workers}
    if exact or n_leaders < _LEAST_INDEXED or len(sample) < 2:
        return Leaders(ExactLeaders(leaders), {**facts, "index": "exact", "agreement": 1.0})
    index = LeaderGroups(leaders, sample[::2], seed=seed, threads=workers)
    agreement = assignment_error(index, sample[1::2], 1, workers).agreement
    return Leaders(index, {**facts, "index": "groups", "agreement": round(agreement, 4)})


def _finite(source: VectorSource, rows: NDArray[np.int64]) -> NDArray[Any]:
    vectors = source.read(rows)
    bad = rows[~np.isfinite(vectors).all(axis=1)]
    if len(bad):
        raise InputError(
            f"{source.paths[0]}: vector {bad[0]}: expected finite components, got NaN or infinity"
        )
    return vectors


def make_record(
    open_input: Callable[[], VectorSource],
    leaders: Leaders,
    setting: Setting,
    progress: Bar | Lines,
    name: str = "",
) -> dict[str, Any]:
    """Measure, and say when, with what and on which machine; `measure` names the errors.

    Parameters
    ----------
    name : str
        Of the data; the name of its first file by default.
    """
    source = open_input()
    data = {
        "name": name or Path(source.paths[0]).name,
        "n_vectors": source.n_vectors,
        "dim": source.dim,
        "dtype": str(source.dtype),
    }
    del source
    record = {
        "format": FORMAT,
        "benchmark": "assign",
        "data": data,
        "machine": machine.machine_facts(),
        "versions": machine.software_versions(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "load_before": machine.load_average(),
        "parameters": leaders.facts,
        "scratch": [machine.filesystem_of(path) for path in setting.scratch],
    }
    return {**record, "runs": measure(open_input, leaders, setting, progress)}


def measure(
    open_input: Callable[[], VectorSource], leaders: Leaders, setting: Setting, progress: Bar | Lines
) -> list[dict[str, Any]]:
    """Measure every policy, in-buffer and scratch path; returns one row a run.

    Parameters
    ----------
    open_input : callable
        Opens the vectors; called for each run, so that nothing of them is mapped while the page cache is emptied.

    Raises
    ------
    ConfigError, InputError
        As `pipeline.assignment.assign`, and if a scratch path is no directory.
    BudgetError
        If a path has too little room.
    OSError
        If a path cannot be written; nothing is left there.
    RuntimeError
        If the policies wrote different files, which is a bug.
    """
    source = open_input()
    for in_buffer in setting.in_buffers:
        in_buffer_rows(source, in_buffer)
    check_room(source, len(leaders.index.leaders), setting.scratch)
    del source
    rows: list[dict[str, Any]] = []
    for turn in range(setting.rounds):
        for place, scratch in enumerate(setting.scratch):
            for in_buffer in setting.in_buffers:
                for policy in POLICIES:
                    run = Run(policy, in_buffer, scratch, setting.scratch[0], setting.workers)
                    row = run.measure(open_input(), leaders.index, progress)
                    rows.append({"round": turn, "scratch": place, **row})
    if len({row["sha256"] for row in rows}) > 1:
        raise RuntimeError("the policies wrote different files")
    return rows


def check_room(source: VectorSource, n_leaders: int, paths: Sequence[Path]) -> None:
    """Refuse a path that is no directory, or has too little room.

    Raises
    ------
    ConfigError, BudgetError
    """
    merged = cluster_bytes(source.n_vectors, source.dim * source.dtype.itemsize)
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"--scratch: {path} is no directory; create it first")
        disk = os.statvfs(path)
        parts = merged + n_leaders * disk.f_bsize  # an append file ends within a block
        need = parts + (merged if path.stat().st_dev == paths[0].stat().st_dev else 0)
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
    return [sorted(group, key=lambda run: run["total_s"])[(len(group) - 1) // 2] for group in found.values()]


@dataclass(frozen=True)
class Run:
    """One policy, one in-buffer, one scratch path; merged files go to `home`."""

    policy: str
    in_buffer: int
    scratch: Path
    home: Path
    workers: int

    def measure(self, source: VectorSource, index: LeaderIndex, progress: Bar | Lines) -> dict[str, Any]:
        """Assign and merge; returns seconds, calls and bytes, and leaves no file."""
        forget_input(source)
        name = f"{self.policy} {human_bytes(self.in_buffer)}"
        progress.start(name, source.n_vectors, "vectors")
        with scratch_folder(self.home) as home:
            with scratch_folder(self.scratch) as folder:
                policy = self._policy(folder, source, len(index.leaders))
                times = assign(source, index, policy, self.in_buffer, self.workers, progress.advance)
                policy.forget()
                began = time.perf_counter()
                clusters = home / "clusters"
                with naming(clusters), create(clusters, policy.merging) as out:
                    sizes = policy.merge(out)
                sync(clusters, policy.merging)
                merge_s = time.perf_counter() - began
                began = time.perf_counter()
            remove_s = time.perf_counter() - began
            digest = _sha256(clusters)
        progress.finish(f"assign {times.assign_s:.1f} s, merge {merge_s:.1f} s")
        return {
            "policy": self.policy,
            "in_buffer_bytes": self.in_buffer,
            "in_buffers": times.in_buffers,
            "total_s": round(times.assign_s + merge_s, 3),
            "distance_s": round(times.distance_s, 3),
            "assign_s": round(times.assign_s - times.distance_s, 3),
            "merge_s": round(merge_s, 3),
            "read_s": round(times.read_s, 3),
            "add_s": round(times.add_s, 3),
            "remove_s": round(remove_s, 3),
            "assigning": policy.assigning.as_dict(),
            "merging": policy.merging.as_dict(),
            "empty_leaders": int(np.count_nonzero(sizes == 0)),
            "largest_cluster": int(sizes.max()),
            "sha256": digest,
        }

    def _policy(self, folder: Path, source: VectorSource, n_leaders: int) -> Policy:
        if self.policy == "temp":
            return TempFiles(folder, n_leaders)
        rows = in_buffer_rows(source, self.in_buffer)
        most = -(-source.n_vectors // rows) + len(source.paths)  # the last of each file may be short
        return ChunkFiles(folder, n_leaders, source.dim * source.dtype.itemsize, self.in_buffer, most)


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Make a folder in `parent`, and remove it with all that is in it.

    Raises
    ------
    OSError
        Of the block or of the folder itself, with a name that outlives the folder, or naming what was left.
    """
    folder: str | None = None
    try:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        yield Path(folder)
    except OSError as error:
        where = str(error.filename or "")
        if folder is None or where.startswith(folder):
            what = f"{error.strerror}; nothing was left there; name another --scratch"
            raise type(error)(error.errno, what, str(parent)) from error
        raise
    finally:
        if folder is not None:
            shutil.rmtree(folder)


def forget_input(source: VectorSource) -> None:
    """Drop local files from the page cache."""
    for path in source.paths:
        if os.path.isfile(path):
            forget(path)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
