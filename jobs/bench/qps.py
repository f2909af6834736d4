"""Part *qps*: queries a second at equal recall, DiskANN and indexmill in turns."""

from __future__ import annotations

from itertools import product
from statistics import median
from typing import Any

import diskann
import ours
from curves import COARSE_SIZES, RECALL, ratio, sizes_around, value_at
from dataset import read_bin
from page_reads import ENTRIES, POLICIES
from workspace import BEAM_WIDTH, THREADS, Workspace

ROUNDS = 5
ORDER = "star"


def measure(space: Workspace) -> dict[str, Any]:
    """Choose settings on the first half of the queries, then measure five rounds on the second in turns."""
    half, n_queries = space.data.half(), len(read_bin(space.data.query))
    policy, entry, tuned = _tune(space, half)
    mine_sizes = sizes_around(tuned)
    their_sizes = sizes_around(diskann.search(space, COARSE_SIZES, 0, half))
    rounds: list[dict[str, dict[str, Any]]] = []
    for _ in range(ROUNDS):
        mine = ours.search(space, ORDER, mine_sizes, policy, entry, half, n_queries)
        theirs = diskann.search(space, their_sizes, half, n_queries)
        rounds.append(
            {
                "indexmill": {"qps": value_at(mine, "qps"), "rows": mine},
                "diskann": {"qps": value_at(theirs, "qps"), "rows": theirs},
            }
        )
    at = {side: _median([done[side]["qps"] for done in rounds]) for side in ("indexmill", "diskann")}
    return {
        "recall": RECALL,
        "threads": THREADS,
        "beam_width": BEAM_WIDTH,
        "order": ORDER,
        "policy": policy,
        "entry": entry,
        "reporting_queries": n_queries - half,
        **{f"{side}_qps": value for side, value in at.items()},
        "qps_ratio": ratio(at["indexmill"], at["diskann"]),
        "rounds": rounds,
    }


def _tune(space: Workspace, half: int) -> tuple[str, str, list[dict[str, Any]]]:
    """Return the policy and entry with the most queries a second at the compared recall, and their sweep."""
    sweeps = [
        (policy, entry, ours.search(space, ORDER, COARSE_SIZES, policy, entry, 0, half))
        for policy, entry in product(POLICIES, ENTRIES)
    ]
    return max(sweeps, key=lambda sweep: value_at(sweep[2], "qps") or 0.0)


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if len(known) == len(values) else None
