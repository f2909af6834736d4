"""Part *startup*: what a user waits for before anything happens."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from indexmill.jobs.bench.programs.workspace import Workspace, indexmill_command

RUNS = 5


def measure(space: Workspace) -> dict[str, Any]:
    """Time ``import indexmill`` and ``indexmill --help``, the median of five runs each."""
    return {
        "runs": RUNS,
        "import_s": _median_seconds([sys.executable, "-c", "import indexmill"], space.out),
        "help_s": _median_seconds([indexmill_command(), "--help"], space.out),
    }


def _median_seconds(command: Sequence[str | Path], folder: Path) -> float:
    """Median wall time after one run that fills the page cache; in `folder`, away from the sources."""
    times = []
    for _ in range(RUNS + 1):
        began = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return round(median(times[1:]), 3)
