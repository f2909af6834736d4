"""Parts *control-path* and *cuts*: the platform of the Batch Similarity Search paper, simulated further.

The simulation is that of `split`, whose rates were fitted to ratios of the paper. The control path carries the queries
to each drive, and the results of each batch back. Each drive has one of its own. Part *cuts* divides the batches of
Figure 9 among host and drives in three ways: whole, cut between lists as a join cuts them, and anywhere. It also asks
how fast the host would have to compare for the gain that the paper tells.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scipy.optimize import brentq

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


def cuts(run: Run) -> dict[str, Any]:
    """Simulate Figure 9: both over the host, and when the first worker is done, by the way that batches are divided."""
    rates = paper.fit_rates()
    figures = []
    for name, vectors, batches, nprobe, drives, told in paper.CASES:
        ways = {"whole": (batches, 1), "cut": (batches, paper.CELLS), "anywhere": (paper.PIECES, 1)}
        found = {}
        for way, (parts, lists) in ways.items():
            host, both = (
                paper.run(paper.crew(rates, drives, kind), vectors, parts, nprobe, lists)
                for kind in ("host", "hybrid")
            )
            found[way] = {
                "hybrid_to_host": both["qps"] / host["qps"],
                "spread": both["spread"],
                "pieces": both["pieces"],
                "d_host": both["d_first"],
                "d_drive": both["d_last"],
            }
        facts = {"figure": name, "drives": drives, "batches": batches, "paper": told}
        needed = None if told is None else host_share(rates, vectors, nprobe, drives, told)
        figures.append({**facts, **found, "host_share": needed})
    return {"figures": figures}


def host_share(rates: paper.Rates, vectors: float, nprobe: int, drives: int, gain: float) -> float:
    """Return the share of its fitted rate at which the host compares when both are `gain` times as fast as it alone."""

    def off(share: float) -> float:
        slower = replace(rates, host=share * rates.host)
        host, both = (
            paper.run(paper.crew(slower, drives, kind), vectors, paper.PIECES, nprobe)["qps"]
            for kind in ("host", "hybrid")
        )
        return float(both / host - gain)

    return float(brentq(off, 0.1, 10.0, xtol=1e-3))
