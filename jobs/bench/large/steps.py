"""Time, memory and scratch of verifying, appending to, laying out and exporting indexes of millions of vectors."""

from __future__ import annotations

import shutil
from typing import Any

from indexmill.jobs.bench.common import generate
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.common.process import indexmill
from indexmill.jobs.bench.large.builds import BUILDS, given
from indexmill.jobs.bench.programs.job import watched
from indexmill.jobs.bench.programs.workspace import Workspace

#: Share of an index's vectors that is appended.
_APPENDED_SHARE = 100
#: Seed of the vectors that are appended, which those of the index do not have.
_OTHER_SEED = SEED + 1
#: Arguments of the command for each kind of index; those with ``out`` write a folder, which is removed.
STEPS = {
    "graph": ("verify", "append", "layout star", "layout agglomerative", "export diskann", "export faiss"),
    "lists": ("verify", "append", "export faiss-ivf"),
}


def measure(run: Run, name: str) -> dict[str, Any]:
    """Run each step once with the index of a build, within that build's memory."""
    built = BUILDS[name]
    run.earlier(name)
    data = given(run, built.millions)
    index, out, work = Workspace(data, run.out).index(name), run.out / "step", run.out / "step.work"
    added = run.out / "added"
    generate.generate(added, data.shape()[0] // _APPENDED_SHARE, 1, _OTHER_SEED, THREADS)
    within = {"memory": built.memory, "workers": THREADS, "work": work}
    rows = []
    for step in STEPS["graph" if built.is_graph else "lists"]:
        verb, _, what = step.partition(" ")
        options: dict[str, Any] = {
            "verify": {},
            "append": {"out": out, **within},
            "layout": {"order": what, "out": out, **within},
            "export": {"to": what, "out": out},
        }[verb]
        words = [verb, index, *([added / "base.u8bin"] if verb == "append" else [])]
        usage, memory, scratch_bytes = watched(
            indexmill(*words, **options, json=True), run.out / "step.log", work
        )
        written = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        rows.append(
            {
                "step": step,
                "wall_s": usage.wall_s,
                "cpu_s": usage.cpu_s,
                "peak_bytes": memory.bytes,
                "scratch_bytes": scratch_bytes,
                "written_bytes": written,
            }
        )
        shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(added)
    return {"of": name, "n": data.shape()[0], "memory": built.memory, "rows": rows}
