"""Parts *command*: what `indexmill layout --order star` takes as a whole, files written and published."""

from __future__ import annotations

import sys
from typing import Any

from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.process import indexmill, module, run_measured, told
from indexmill.jobs.bench.layouts.cases import Case, laid_out_facts
from indexmill.jobs.bench.programs import ours

#: The command's default.
_MEMORY_BYTES = 1 << 30


def measure(case: Case) -> dict[str, Any]:
    """Run the command, for its time; then in a process that ran it before (`growth`), for its memory."""
    out = case.space.index(case.laid_out("star"))
    command = indexmill("layout", case.index, order="star", out=out, workers=THREADS, force=True, json=True)
    usage = run_measured(command, case.folder / "layout-star.log")
    index_bytes = sum(file["bytes"] for file in ours.manifest(case.index)["files"])
    facts = laid_out_facts(out)
    memory = told(module(sys.executable, "layouts.growth", case.index, out, _MEMORY_BYTES, THREADS))
    return {
        "wall_s": round(usage.wall_s, 3),
        **facts,
        **memory,
        "index_bytes": index_bytes,
        "to_index": memory["growth_bytes"] / index_bytes,
    }
