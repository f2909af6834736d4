"""Plans of jobs: memory, scratch space and time that `indexmill plan` predicts, beside those that the job takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.benchmark import Target
from indexmill.jobs.bench.common.process import indexmill, told
from indexmill.jobs.bench.programs.job import Job
from indexmill.jobs.jobfile import resolve
from indexmill.pipeline.build import open_input
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.rehearsal.compiled import compile_kernels

#: Figures of a plan: what they are called, which of a measured run they foretell, and by how much they may be off.
FIGURES = {
    "peak_memory_bytes": ("memory", "peak_bytes", 0.15),
    "peak_scratch_bytes": ("scratch", "scratch_bytes", 0.05),
    "seconds": ("time", "wall_s", 0.25),
}


def targets(name: str, error: Callable[[str], str]) -> list[Target]:
    """Return how far the plans of what is called `name` may be off.

    Parameters
    ----------
    error : callable
        Returns, of each of `FIGURES`, where the record has its error.
    """
    return [
        Target(f"plan of {what}, {name}, off by at most", error(figure), "<=", limit)
        for figure, (what, _, limit) in FIGURES.items()
    ]


def load_kernels(job: Job, folder: Path) -> None:
    """Compile the kernels of a build, which happens once an installation and not with every build."""
    spec = resolve(job.write(folder), {}, {})
    compile_kernels(spec, open_input(spec), Silent())


def of_job(job: Path) -> dict[str, Any]:
    """Return the plan of a job file.

    Raises
    ------
    Failed
        If the job is refused.
    """
    return told(indexmill("plan", job, json=True))


def figures(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return `FIGURES` of a plan."""
    return {figure: said[figure] for figure in FIGURES}


def stage_seconds(said: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of each stage of a plan."""
    return {name: stage["seconds"] for name, stage in said["stages"].items()}


def measured(made: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a build or an update took (`job.watched`), by the names of `FIGURES`."""
    return {figure: made[key] for figure, (_, key, _) in FIGURES.items()}


def errors(said: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, float]:
    """Return predicted / measured - 1 of each of `FIGURES`, given a plan and what a build or an update took."""
    return {figure: said[figure] / value - 1 for figure, value in measured(made).items()}


def worst(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return of each of `FIGURES` the largest ``error`` of some rows, whatever its sign."""
    found = [row["error"] for row in rows]
    return {figure: max(abs(error[figure]) for error in found) for figure in FIGURES}
