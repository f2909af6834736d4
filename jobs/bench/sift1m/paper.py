"""Part *paper*: DiskANN++ Table IV and Figures 10a and 12 as the paper measures them, one query a thread.

Eight queries a thread, as part *bandwidth* has, hide the time in which an entry is chosen. Speeds are queries a second
at equal recall. Table IV has centroids over the medoid, and Figure 10a all components over DiskANN's search, on
simulated devices of each bandwidth; Figure 12 has the same two searches by beam width, on this machine's disk.
"""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.curves import (
    RECALL,
    Round,
    coarse_sweep,
    in_turns,
    key,
    sizes_at,
    trial,
    tuned_sizes,
)
from indexmill.jobs.bench.common.intervals import Figure, ratios_at, short
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.ours import Setting, lockstep
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.jobs.bench.sift1m import bandwidth

#: Centroids of the paper, whose last are 65,536; a million vectors have 62,500 at most.
ENTRIES = (4096, 8192, 16384, 32768, 62500)
#: Centroids of the search with all components.
WHOLE_ENTRIES = ENTRIES[0]
WIDTHS = (2, 4, 8)
ROUNDS = 3
#: Names of searches: page search of the star order from the medoid, DiskANN's, and ours with all components.
MEDOID, PLAIN, WHOLE = "medoid", "-", "ABC"

Place = tuple[str, Setting]


def measure(space: Workspace) -> dict[str, Any]:
    """Choose list sizes on the first half of the queries; measure all searches in turns on the second."""
    stars = {n: ours.ensure(space, "star", n) for n in ENTRIES}
    identity = ours.ensure(space, "identity")
    with ours.Ours(space) as searcher:
        return {
            "recall": RECALL,
            "queries": space.halves,
            "threads": THREADS,
            "in_flight": 1,
            "entries": ENTRIES,
            "bandwidths_mb_per_s": bandwidth.BANDWIDTHS,
            **_by_bandwidth(space, searcher, stars, identity),
            "widths": _by_width(searcher, stars[WHOLE_ENTRIES], identity),
        }


def one_a_thread(policy: str, entry: str, width: int = ours.DISKANN_WIDTH) -> Setting:
    """Return the setting of a search with one query a thread."""
    return lockstep(policy, entry, inflight=1, beam_width=width)


def _by_bandwidth(
    space: Workspace, searcher: ours.Ours, stars: dict[int, str], identity: str
) -> dict[str, Any]:
    """Return the speeds of Table IV and Figure 10a by bandwidth, and the latency that was measured here."""
    latency = bandwidth.read_latency(space.index(stars[WHOLE_ENTRIES]) / "graph.imx")
    places: dict[str, Place] = {
        PLAIN: (identity, one_a_thread("beam", "medoid")),
        MEDOID: (stars[WHOLE_ENTRIES], one_a_thread("page", "medoid")),
        **{str(n): (star, one_a_thread("page", "centroids")) for n, star in stars.items()},
    }
    sizes = {
        name: sizes_at(coarse_sweep(searcher.search(*place)), bandwidth.POINTS)
        for name, place in places.items()
    }
    cells = {}
    for rate in bandwidth.BANDWIDTHS:
        engine = f"simulated:{bandwidth.write_profile(space.out, latency, rate)}"
        rounds = [
            {
                name: trial(searcher.search(*place, engine=engine), sizes[name], "report")
                for name, place in places.items()
            }
            for _ in range(ROUNDS)
        ]
        cells[str(rate)] = {
            "speedup": {str(n): _faster(rounds, str(n), MEDOID) for n in ENTRIES},
            "whole": _faster(rounds, str(WHOLE_ENTRIES), PLAIN),
            "rounds": short(rounds),
        }
    return {"latency_us": latency, "cells": cells}


def _by_width(searcher: ours.Ours, star: str, identity: str) -> dict[str, Any]:
    """Return the speed of all components over that of DiskANN's search by width, and the rounds."""
    found = {}
    for width in WIDTHS:
        searches = {
            PLAIN: searcher.search(identity, one_a_thread("beam", "medoid", width)),
            WHOLE: searcher.search(star, one_a_thread("page", "centroids", width)),
        }
        rounds = in_turns(searches, tuned_sizes(searches, bandwidth.POINTS), ROUNDS)
        found[str(width)] = {"whole": _faster(rounds, WHOLE, PLAIN), "rounds": short(rounds)}
    return found


def _faster(rounds: list[Round], name: str, other: str) -> Figure | None:
    return ratios_at(rounds, name, other, "qps", (RECALL,))[key(RECALL)]
