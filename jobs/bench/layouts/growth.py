"""Lay an index out in a process that has done so before, and print how much its memory grew as JSON.

    python -m indexmill.jobs.bench.layouts.growth INDEX OUT ORDER MEMORY_BYTES THREADS

The first run loads what a run loads, libraries and compiled kernels. ``stage_bytes`` is how much more memory each stage
takes at its peak than the process held before the second run.
"""

from __future__ import annotations

from indexmill.pipeline.execution.allocator import give_back, hold_little

hold_little()  # before numpy is imported, as the command does

import json  # noqa: E402
import sys  # noqa: E402
from contextlib import ExitStack  # noqa: E402

from indexmill.pipeline.generations.run import RunOptions  # noqa: E402
from indexmill.pipeline.mill.peak import PeakMemory, proportional_bytes  # noqa: E402
from indexmill.pipeline.mill.progress import Silent  # noqa: E402
from indexmill.pipeline.relayout.run import LayoutRequest, run_layout  # noqa: E402


class StagePeaks(Silent):
    """Listens to a run, and keeps the peak memory of each stage, in bytes, by its name."""

    def __init__(self) -> None:
        self.bytes: dict[str, int] = {}
        self._sampling = ExitStack()

    def start(self, stage: str, total: int, unit: str) -> None:
        """Begin to sample."""
        self._stage, self._peak = stage, self._sampling.enter_context(PeakMemory())

    def finish(self, note: str = "") -> None:
        """Keep the peak."""
        self._sampling.close()
        self.bytes[self._stage] = max(self._peak.bytes, self.bytes.get(self._stage, 0))


def main() -> None:
    index, out, order = sys.argv[1:4]
    memory, threads = (int(value) for value in sys.argv[4:])
    request, options = LayoutRequest(order), RunOptions(out, memory, threads, force=True)
    run_layout(index, request, options)
    give_back()
    before = proportional_bytes("self")
    stages = StagePeaks()
    with PeakMemory() as peak:
        run_layout(index, request, options, stages)
    found = {
        "growth_bytes": peak.bytes - before,
        "process_bytes": peak.bytes,
        "stage_bytes": {stage: most - before for stage, most in stages.bytes.items()},
        "note": peak.note,
    }
    print(json.dumps(found))


main()
