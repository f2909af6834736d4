"""Part *control-path*: what the control path of the Batch Similarity Search paper adds to a search in drives.

The simulation is that of `split`, whose rates were fitted to ratios of the paper. The control path carries the queries
to each drive, and the results of each batch back. Each drive has one of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import K
from indexmill.jobs.bench.split import paper

#: Section 5.2: TCP/IP over NVMe, beside the data path of `paper.DRIVE_MB_S`.
CONTROL_MB_S = 175.0
#: Section 5.6: vectors, batches, and drives.
VECTORS, BATCHES, DRIVES = 1e9, 100, 8
#: Bytes of a query of 128 float32, and of a result: an id of 8 bytes and a distance.
QUERY_BYTES, RESULT_BYTES = 4 * 128, 12


def control_path(run: Run) -> dict[str, Any]:
    """Simulate the search of a billion vectors by drives alone."""
    crew = paper.crew(paper.fit_rates(), DRIVES, "drives")
    seconds = paper.run(crew, VECTORS, BATCHES, 1)["seconds"]
    results = BATCHES / DRIVES * K * RESULT_BYTES
    moved = paper.QUERIES * (QUERY_BYTES + results)
    slow = [replace(drive, load_mb_s=CONTROL_MB_S) for drive in crew]
    fed = paper.run(slow, VECTORS, BATCHES, 1)["seconds"]
    return {
        "control_mb_s": CONTROL_MB_S,
        "drives": DRIVES,
        "seconds": seconds,
        "moved_bytes": moved,
        "share": moved / (CONTROL_MB_S * 1e6) / seconds,
        "fed_seconds": fed,
        "fed_to_own": fed / seconds,
    }
