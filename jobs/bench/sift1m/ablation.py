"""Part *ablation*: DiskANN++ Table VI, what entry (A), remapping (B) and page search (C) bring alone and together.

All rows are measured on this machine's disk, and on a simulated device that keeps no page that it has read.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from indexmill.jobs.bench.common.curves import Round, coarse_sweep, in_turns, sizes_at, value_at
from indexmill.jobs.bench.common.intervals import medians_at, ratios_at, short
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.ours import Setting, lockstep
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.jobs.bench.sift1m import bandwidth

#: The paper has recall@100 of 85% and 97%.
RECALLS = (0.90, 0.98)
POINTS = (0.87, 0.915, 0.968, 0.988)
ROUNDS = 2
#: Rows as in the paper; - is beam search of the identity order from the medoid.
COMPONENTS = ("-", "A", "B", "C", "AB", "AC", "BC", "ABC")
#: Megabytes a second of the simulated device, the most that the paper's gives; its latency is this machine's.
MB_PER_S = 700
#: One query a thread, as in the paper.
IN_FLIGHT = 1


def measure(space: Workspace) -> dict[str, Any]:
    """Choose the list sizes of each row on the first half of the queries; measure the rows in turns on the second."""
    latency = bandwidth.read_latency(space.index(ours.ensure(space, "star")) / "graph.imx")
    profile = bandwidth.write_profile(space.out, latency, MB_PER_S)
    with ours.Ours(space) as searcher:
        sizes = _sizes(space, searcher)

        def measured(engine: str) -> dict[str, Any]:
            searches = {name: searcher.search(*_place(space, name), engine=engine) for name in COMPONENTS}
            rounds = in_turns(searches, sizes, ROUNDS)
            return {"rows": {name: _figures(rounds, name) for name in COMPONENTS}, "rounds": short(rounds)}

        on_disk, simulated = measured(ours.ENGINE), measured(f"simulated:{profile}")
    return {
        "recalls": RECALLS,
        "queries": space.halves,
        "threads": THREADS,
        "in_flight": IN_FLIGHT,
        **on_disk,
        "simulated": {"mb_per_s": MB_PER_S, "latency_us": latency, **simulated},
    }


def _figures(rounds: list[Round], name: str) -> dict[str, Any]:
    """Return speed, also over that of the plain search, and reads of a row at each recall."""
    qps = medians_at(rounds, name, "qps", RECALLS)
    ratios = ratios_at(rounds, name, "-", "qps", RECALLS)
    return {
        at: {
            "qps": qps[at],
            "ratio": ratios[at],
            **{cost: value_at(rounds[0][name], cost, float(at)) for cost in ("pages_read", "hops")},
        }
        for at in qps
    }


def _place(space: Workspace, components: str, in_flight: int = IN_FLIGHT) -> tuple[str, Setting]:
    """Return the index and the setting of a row."""
    index = ours.ensure(space, "star" if "B" in components else "identity")
    entry = "centroids" if "A" in components else "medoid"
    return index, lockstep("page" if "C" in components else "beam", entry, inflight=in_flight)


def _sizes(space: Workspace, searcher: ours.Ours) -> dict[str, list[int]]:
    """List sizes of each row; where a search starts hardly moves recall, so rows with and without A share them.

    Recall does not depend on the queries in flight, so more of them save time here.
    """
    found = {}
    for remapped, paged in product(("", "B"), ("", "C")):
        with_entry = "A" + remapped + paged
        sizes = sizes_at(coarse_sweep(searcher.search(*_place(space, with_entry, 8))), POINTS)
        found[with_entry] = found[remapped + paged or "-"] = sizes
    return found
