"""Part *paper*: DiskANN++ Tables III and IV, Figures 10a, 10b and 12 as the paper measures them, one query a thread.

Eight queries a thread, as part *bandwidth* has, hide the time in which an entry is chosen. Speeds are queries a second
at equal recall. Table IV has centroids over the medoid, and Figure 10a all components over DiskANN's search, on
simulated devices of each bandwidth. Figure 12 has the same two searches by beam width, on this machine's disk, with the
program DiskANN beside them (Table III), and Figure 10b has them by threads. The program's batches need two threads, so
that with one thread each query is a call of its own on all sides.
"""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.curves import (
    RECALL,
    Round,
    Search,
    coarse_sweep,
    in_turns,
    key,
    sizes_at,
    trial,
    tuned_sizes,
)
from indexmill.jobs.bench.common.intervals import Figure, ratios_at, short
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.ours import Setting, lockstep
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.jobs.bench.sift1m import bandwidth

#: Centroids of the paper, whose last are 65,536; a million vectors have 62,500 at most.
ENTRIES = (4096, 8192, 16384, 32768, 62500)
#: Vectors that centroids are trained on: 16 for each of the most.
SAMPLE = 1_000_000
#: Centroids of the search with all components.
WHOLE_ENTRIES = ENTRIES[0]
WIDTHS = (2, 4, 8)
ROUNDS = 3
#: Names of searches: page search of the star order from the medoid, DiskANN's, ours with all components, the program.
MEDOID, PLAIN, WHOLE, PROGRAM = "medoid", "-", "ABC", "DiskANN"

Place = tuple[str, Setting]


def measure(space: Workspace) -> dict[str, Any]:
    """Choose list sizes on the first half of the queries; measure all searches in turns on the second."""
    stars = {n: ours.ensure_shape(space, ours.Shape("star", n, sample_vectors=SAMPLE)) for n in ENTRIES}
    identity = ours.ensure_shape(space, ours.Shape("identity", sample_vectors=SAMPLE))
    diskann.ensure(space)
    with ours.Ours(space) as searcher:
        return {
            "recall": RECALL,
            "queries": space.halves,
            "threads": THREADS,
            "in_flight": 1,
            "entries": ENTRIES,
            "sample_vectors": SAMPLE,
            "bandwidths_mb_per_s": bandwidth.BANDWIDTHS,
            **_by_bandwidth(space, searcher, stars, identity),
            "widths": _by_width(space, searcher, stars[WHOLE_ENTRIES], identity),
            "by_threads": _by_threads(space, searcher, stars[WHOLE_ENTRIES], identity),
        }


def one_a_thread(policy: str, entry: str, width: int = ours.DISKANN_WIDTH, threads: int = THREADS) -> Setting:
    """Return the setting of a search with one query a thread."""
    return lockstep(policy, entry, inflight=1, beam_width=width, threads=threads)


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


def _by_width(space: Workspace, searcher: ours.Ours, star: str, identity: str) -> dict[str, Any]:
    """Return the speed of all components by width over those of DiskANN's search and of the program."""
    found = {}
    for width in WIDTHS:
        with diskann.DiskAnn(space, width=width) as peer:
            found[str(width)] = _beside_program(
                {
                    PLAIN: searcher.search(identity, one_a_thread("beam", "medoid", width)),
                    WHOLE: searcher.search(star, one_a_thread("page", "centroids", width)),
                    PROGRAM: peer.search(),
                }
            )
    return found


def _by_threads(space: Workspace, searcher: ours.Ours, star: str, identity: str) -> dict[str, Any]:
    """Return the same by threads, from one to as many as cores."""
    found = {}
    for threads in range(1, THREADS + 1):
        way = "single" if threads == 1 else "batch"
        plain, whole = (
            one_a_thread(*how, threads=threads) for how in (("beam", "medoid"), ("page", "centroids"))
        )
        with diskann.DiskAnn(space) as peer:
            found[str(threads)] = _beside_program(
                {
                    PLAIN: searcher.search(identity, plain, way=way),
                    WHOLE: searcher.search(star, whole, way=way),
                    PROGRAM: peer.search(way),
                }
            )
    return found


def _beside_program(searches: dict[str, Search]) -> dict[str, Any]:
    """Return the speed of all components over those of the two others, and the rounds."""
    rounds = in_turns(searches, tuned_sizes(searches, bandwidth.POINTS), ROUNDS)
    return {
        "whole": _faster(rounds, WHOLE, PLAIN),
        "program": _faster(rounds, WHOLE, PROGRAM),
        "rounds": short(rounds),
    }


def _faster(rounds: list[Round], name: str, other: str) -> Figure | None:
    return ratios_at(rounds, name, other, "qps", (RECALL,))[key(RECALL)]
