"""Part *reads*: page reads a query at equal recall, by page order, search policy and entry."""

from __future__ import annotations

from itertools import product
from typing import Any

import diskann
import ours
from curves import COARSE_SIZES, RECALL, ratio, sizes_around, value_at
from dataset import read_bin
from workspace import BEAM_WIDTH, Workspace

ORDERS = ("identity", "star")
POLICIES = ("beam", "page")
ENTRIES = ("medoid", "centroids")


def measure(space: Workspace) -> dict[str, Any]:
    """Choose list sizes and each order's entry on the first half of the queries; report on the second."""
    half, n_queries = space.data.half(), len(read_bin(space.data.query))
    settings = []
    for order, policy, entry in product(ORDERS, POLICIES, ENTRIES):
        tuned = ours.search(space, order, COARSE_SIZES, policy, entry, 0, half)
        rows = ours.search(space, order, sizes_around(tuned), policy, entry, half, n_queries)
        settings.append(
            {
                "order": order,
                "policy": policy,
                "entry": entry,
                "tuned_pages_read": value_at(tuned, "pages_read"),
                "pages_read": value_at(rows, "pages_read"),
                "bytes_used": value_at(rows, "bytes_used"),
                "bytes_read": value_at(rows, "bytes_read"),
                "hops": value_at(rows, "hops"),
                "rows": rows,
            }
        )
    best = {order: _best(settings, order) for order in ORDERS}
    return {
        "recall": RECALL,
        "beam_width": BEAM_WIDTH,
        "tuning_queries": half,
        "reporting_queries": n_queries - half,
        "settings": settings,
        "diskann": _diskann(space, half, n_queries),
        "entry": {order: None if found is None else found["entry"] for order, found in best.items()},
        "star_to_identity": ratio(*(_pages_read(best[order]) for order in ("star", "identity"))),
    }


def _best(settings: list[dict[str, Any]], order: str) -> dict[str, Any] | None:
    """Of the settings with page search, the one with the fewest reads on the tuning queries."""
    reached = [
        row
        for row in settings
        if (row["order"], row["policy"]) == (order, "page") and row["tuned_pages_read"] is not None
    ]
    return min(reached, key=lambda row: float(row["tuned_pages_read"]), default=None)


def _pages_read(setting: dict[str, Any] | None) -> float | None:
    return None if setting is None else setting["pages_read"]


def _diskann(space: Workspace, half: int, n_queries: int) -> dict[str, Any]:
    tuned = diskann.search(space, COARSE_SIZES, 0, half)
    rows = diskann.search(space, sizes_around(tuned), half, n_queries)
    return {
        "pages_read": value_at(rows, "pages_read"),
        "counted": "read_bytes of /proc/self/io of the searching process / 4,096 / queries",
        "rows": rows,
    }
