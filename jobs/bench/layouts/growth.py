"""Lay an index out in a process that has done so before, and print how much its memory grew as JSON.

    python -m indexmill.jobs.bench.layouts.growth INDEX OUT ORDER MEMORY_BYTES THREADS

The first run, in another order, loads what a run loads, libraries and compiled kernels.
"""

from __future__ import annotations

from indexmill.pipeline.execution.allocator import give_back, hold_little

hold_little()  # before numpy is imported, as the command does

import json  # noqa: E402
import sys  # noqa: E402

from indexmill.pipeline.generations.run import RunOptions  # noqa: E402
from indexmill.pipeline.mill.peak import PeakMemory, proportional_bytes  # noqa: E402
from indexmill.pipeline.relayout.run import LayoutRequest, run_layout  # noqa: E402


def main() -> None:
    index, out, order = sys.argv[1:4]
    memory, threads = (int(value) for value in sys.argv[4:])
    options = RunOptions(out, memory, threads, force=True)
    run_layout(index, LayoutRequest("random"), options)
    give_back()
    before = proportional_bytes("self")
    with PeakMemory() as peak:
        run_layout(index, LayoutRequest(order), options)
    print(json.dumps({"growth_bytes": peak.bytes - before, "process_bytes": peak.bytes, "note": peak.note}))


main()
