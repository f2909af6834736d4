"""Time, memory, scratch and reads of verifying, appending to, laying out and exporting indexes of millions of vectors.

Only an append has a plan: `plan` foretells builds and updates.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import generate
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.common.process import Failed, indexmill
from indexmill.jobs.bench.large.builds import BUILDS, Built, given, plan_beside
from indexmill.jobs.bench.large.grown import appended_set
from indexmill.jobs.bench.large.reads import index_reads
from indexmill.jobs.bench.large.refused import reason_of
from indexmill.jobs.bench.programs import ours, plan
from indexmill.jobs.bench.programs.job import watched, write_job
from indexmill.jobs.bench.programs.workspace import Workspace

#: Share of an index's vectors that is appended.
_APPENDED_SHARE = 100
#: Arguments of the command for each kind of index; those with ``out`` write a folder, which is removed.
STEPS = {
    "graph": ("verify", "append", "layout star", "layout agglomerative", "export diskann", "export faiss"),
    "lists": ("verify", "append", "export faiss-ivf"),
}
#: Name of the index that a step writes.
_RESULT = "step"


def measure(run: Run, name: str) -> dict[str, Any]:
    """Run each step once with the index of a build, within that build's memory; then the index is removed.

    Raises
    ------
    FileNotFoundError
        If the build has not run, or its index is gone.
    """
    built = BUILDS[name]
    run.earlier(name)
    data = given(run, built.millions)
    space = Workspace(data, run.out)
    index, added = space.index(name), run.out / "added" / "base.u8bin"
    if not index.exists():
        raise FileNotFoundError(
            f"{index}: missing; the part {name!r} makes it and its steps remove it, so run both "
            f"(--parts {name},{name}-steps)"
        )
    added.parent.mkdir(exist_ok=True)
    n_added = max(1, data.shape()[0] // _APPENDED_SHARE)
    generate.write(added, generate.Manifold(SEED), generate.ADDED, n_added, THREADS)
    rows = [_row(space, built, name, step, added) for step in STEPS["graph" if built.is_graph else "lists"]]
    shutil.rmtree(added.parent)
    shutil.rmtree(index)
    return {"of": name, "n": data.shape()[0], "memory": built.memory, "rows": rows}


def _row(space: Workspace, built: Built, name: str, step: str, added: Path) -> dict[str, Any]:
    """Plan a step if it has a plan, run it, search what it made if that is an index, and remove that.

    A step that does not fit its memory, or the disk, has the reason alone.
    """
    verb, _, what = step.partition(" ")
    index, out, work = space.index(name), space.index(_RESULT), space.out / "step.work"
    within = {"memory": built.memory, "workers": THREADS, "work": work}
    options: dict[str, Any] = {
        "verify": {},
        "append": {"out": out, **within},
        "layout": {"order": what, "out": out, **within},
        "export": {"to": what, "out": out},
    }[verb]
    said: dict[str, Any] = {}
    try:
        if verb == "append":
            job = {"base": index, "add": added, "out": out, **within}
            said = plan.of_job(write_job(space.out / "step.toml", job))
        words = [verb, index, *([added] if verb == "append" else [])]
        made = watched(indexmill(*words, **options, json=True), space.out / "step.log", work)
    except Failed as error:
        shutil.rmtree(out, ignore_errors=True)
        return {"step": step, "refused": reason_of(error, space.out)}
    row = {
        "step": step,
        **made,
        "written_bytes": sum(path.stat().st_size for path in out.rglob("*") if path.is_file()),
        "stage_s": ours.stage_seconds(out) if verb in ("append", "layout") else {},
    }
    if said:
        row |= plan_beside(said, made)
        row["planned_stage_s"] = {
            stage.removeprefix(f"{verb} "): seconds for stage, seconds in row["planned_stage_s"].items()
        }
    if verb in ("append", "layout"):
        row |= _reads(space, built, added if verb == "append" else None)
    shutil.rmtree(out, ignore_errors=True)
    return row


def _reads(space: Workspace, built: Built, added: Path | None) -> dict[str, Any]:
    """Search what a step made, by the truth of the vectors that it has."""
    if added is None:
        return index_reads(space, _RESULT, built.is_graph)
    data = appended_set(space.data, added, space.out / "grown")
    found = index_reads(Workspace(data, space.out), _RESULT, built.is_graph)
    shutil.rmtree(data.folder)
    return found
