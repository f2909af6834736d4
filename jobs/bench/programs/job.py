"""Builds from a job file: each as a process of its own that is watched from outside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.cgroup import Group
from indexmill.jobs.bench.common.dataset import Dataset, K, count_hits, read_bin, read_truth
from indexmill.jobs.bench.common.parameters import ALPHA, BUILD_LIST_SIZE, MAX_DEGREE, PQ_BYTES, SEED, THREADS
from indexmill.jobs.bench.common.process import PeakScratch, indexmill, run_measured
from indexmill.jobs.bench.programs import ours

#: A budget that no set fills.
AMPLE = "16GiB"
#: L of all searches: the one at which builds are held against each other.
SIZE = 100


@dataclass(frozen=True)
class Job:
    """One build.

    Attributes
    ----------
    name : str
        Of the index, its job file and its log.
    base : Path
    memory : str
    workers : int
    executor : {"local", "ray"}
    parameters : dict
        Those that differ from the ones of `write`; None leaves one to the build.
    beside : dict
        Further keys of the job file, beside its parameters.
    """

    name: str
    base: Path
    memory: str = AMPLE
    workers: int = THREADS
    executor: str = "local"
    parameters: dict[str, Any] = field(default_factory=dict)
    beside: dict[str, Any] = field(default_factory=dict)

    def index(self, folder: Path) -> Path:
        """Directory of the index."""
        return folder / self.name

    def work(self, folder: Path) -> Path:
        """Directory of the stages: the default, where a stage goes when nobody will read it again."""
        return folder / f"{self.name}.work"

    def write(self, folder: Path) -> Path:
        """Write the job file."""
        top = {
            "input": self.base, "out": self.index(folder), "memory": self.memory, "workers": self.workers,
            "executor": self.executor, "force": True, **self.beside,
        }  # fmt: skip
        parameters = {
            "builder": "vamana", "R": MAX_DEGREE, "L": BUILD_LIST_SIZE, "alpha": ALPHA, "pq_bytes": PQ_BYTES,
            "pq_rotation": "none", "node_dtype": "same",
            "order": "star", "metric": "l2", "seed": SEED, **self.parameters,
        }  # fmt: skip
        stated = {name: value for name, value in parameters.items() if value is not None}
        return write_job(folder / f"{self.name}.toml", top, stated)


def write_job(path: Path, top: dict[str, Any], parameters: dict[str, Any] | None = None) -> Path:
    """Write a job file, and return its path; the job of an update has no parameters."""
    tables = [_toml(top), *([] if parameters is None else [f"[parameters]\n{_toml(parameters)}"])]
    path.write_text("\n".join(tables))
    return path


def _toml(table: dict[str, Any]) -> str:
    """Return lines of TOML, which writes text, numbers and truth values as JSON does."""
    return "".join(f"{key} = {json.dumps(value, default=str)}\n" for key, value in table.items())


def build(job: Job, folder: Path, group: Group | None = None) -> dict[str, Any]:
    """Build from an empty work folder, which is removed in the end, and return what it cost and made.

    Parameters
    ----------
    job : Job
    folder : Path
        Holds index, job file, log and, meanwhile, the work folder.
    group : Group, optional
        Control group to run in.

    Raises
    ------
    RuntimeError
        If the build fails.
    """
    index, work = job.index(folder), job.work(folder)
    shutil.rmtree(index, ignore_errors=True)
    command = indexmill("build", job.write(folder), json=True)
    took = watched(command if group is None else group.wrap(command), folder / f"{job.name}.log", work)
    made, run = ours.manifest(index), ours.run_facts(index)
    graph = made.get("graph", {})  # of no other kind
    return {
        **took,
        "told_peak_bytes": run.get("peak_memory_bytes"),
        "input_bytes": job.base.stat().st_size,
        "output_bytes": sum(path.stat().st_size for path in index.iterdir()),
        "stage_s": run["seconds"],
        "mean_degree": graph.get("mean_degree"),
        "mean_fanout": graph.get("mean_fanout"),
        "shards": len(graph["shards"]) if graph else 1,
        "build_id": made["build_id"],
    }


def watched(command: Sequence[object], log: Path, work: Path) -> dict[str, Any]:
    """Run a command whose scratch files are in `work`, a folder that is empty at first, and removed in the end.

    Returns
    -------
    dict
        ``wall_s``, ``cpu_s``, ``peak_bytes`` of memory with its ``peak_note``, and ``scratch_bytes``: the most in
        `work`.

    Raises
    ------
    RuntimeError
        If the command fails.
    """
    from indexmill.pipeline.mill.peak import PeakMemory

    shutil.rmtree(work, ignore_errors=True)
    memory, scratch = None, PeakScratch(work)

    @contextmanager
    def watch(pid: int) -> Iterator[None]:
        nonlocal memory
        with PeakMemory(pid, interval_s=0.05) as memory, scratch:
            yield

    try:
        usage = run_measured(command, log, watch)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    assert memory is not None
    return {
        "wall_s": round(usage.wall_s, 3),
        "cpu_s": round(usage.cpu_s, 3),
        "peak_bytes": memory.bytes,
        "peak_note": memory.note,
        "scratch_bytes": scratch.bytes,
    }


def count_right(index: Path, data: Dataset) -> Any:
    """Search all queries with L = `SIZE`; return the right answers of K for each, int64, shape (n_queries,)."""
    from indexmill.reader.index import Index

    queries = read_bin(data.query)
    found = Index(index).search(queries, K, L=SIZE, threads=THREADS).vector_ids
    return count_hits(found, read_bin(data.base), queries, read_truth(data.truth)[1])
