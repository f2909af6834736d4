"""Parts *command*: what `indexmill layout --order star` takes as a whole, files written and published."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.process import module, run_measured
from indexmill.jobs.bench.layouts.cases import Case, laid_out_facts
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.workspace import THREADS, indexmill_command

#: The command's default.
_MEMORY_BYTES = 1 << 30


def measure(case: Case) -> dict[str, Any]:
    """Run the command, for its time; then in a process that ran it before, for its memory."""
    out = case.space.index(case.laid_out("star"))
    usage = run_measured(
        [
            indexmill_command(), "layout", case.index, "--order", "star", "--out", out,
            "--workers", THREADS, "--force", "--json",
        ],
        case.folder / "layout-star.log",
    )  # fmt: skip
    index_bytes = sum(file["bytes"] for file in ours.manifest(case.index)["files"])
    told, memory = laid_out_facts(out), _growth(case, out)
    return {
        "wall_s": round(usage.wall_s, 3),
        **told,
        **memory,
        "index_bytes": index_bytes,
        "to_index": memory["growth_bytes"] / index_bytes,
    }


def _growth(case: Case, out: Path) -> dict[str, Any]:
    """Return what `layouts_growth` tells.

    Raises
    ------
    RuntimeError
        If it fails.
    """
    command = module(sys.executable, "layouts.growth", case.index, out, _MEMORY_BYTES, THREADS)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode} of: {' '.join(command)}\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
