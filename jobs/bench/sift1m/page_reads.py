"""Part *reads*: page reads a query at equal recall, by page order, search policy and entry; DiskANN beside."""

from __future__ import annotations

from itertools import product
from typing import Any

from indexmill.jobs.bench.common.curves import (
    RECALLS,
    Row,
    coarse_sweep,
    sizes_at,
    summaries,
    trial,
    tuned_trial,
    value_at,
)
from indexmill.jobs.bench.common.intervals import Curve, curve, curve_ratios, figures_at
from indexmill.jobs.bench.common.parameters import ORDER
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.ours import POLICIES, SEARCH_ENTRIES, Setting, lockstep
from indexmill.jobs.bench.programs.workspace import Workspace

ORDERS = ("identity", "star")
#: Order and setting of the headline figure: those that `indexmill` uses when nothing is said.
HEADLINE = (ORDER, "pipeline", "navigation")
#: The layout is judged by the paper's page search from the same entry in both orders.
LAYOUT = ("page", "navigation")


def measure(space: Workspace) -> dict[str, Any]:
    """Choose each policy's list sizes on the first half of the queries, measure all its entries on the second.

    Nothing else is chosen: the headline figure is of the default setting.
    """
    diskann.ensure(space)
    sweeps: dict[tuple[str, str, str], list[Row]] = {}
    tuned: dict[str, list[Row]] = {}
    with ours.Ours(space) as searcher:
        for order, policy in product(ORDERS, POLICIES):
            index = ours.ensure(space, order)
            tuned[f"{order} {policy}"] = coarse_sweep(searcher.search(index, lockstep(policy, "navigation")))
            sizes = sizes_at(tuned[f"{order} {policy}"])
            for setting in _settings(order, policy):
                sweeps[order, policy, setting.entry] = trial(searcher.search(index, setting), sizes, "report")
        index, default = ours.ensure(space, ORDER), lockstep(*HEADLINE[1:])
        tuned[" ".join(HEADLINE[:2])], sweeps[HEADLINE] = tuned_trial(searcher.search(index, default))
    with diskann.DiskAnn(space) as peer:
        tuned["DiskANN"], theirs = tuned_trial(peer.search("single"), tuning=peer.search())
    curves = {place: curve([rows], "pages_read") for place, rows in sweeps.items()}
    their_curve = curve([theirs], "pages_read")
    star, identity = (curves[order, *LAYOUT] for order in ("star", "identity"))
    return {
        "recalls": RECALLS,
        "queries": space.halves,
        "headline": HEADLINE,
        "settings": [
            {**dict(zip(("order", "policy", "entry"), place, strict=True)), **_figures(rows, curves[place])}
            for place, rows in sweeps.items()
        ],
        "diskann": {**_figures(theirs, their_curve), "counted": diskann.COUNTED},
        "tuning_rows": {name: summaries(rows) for name, rows in tuned.items()},
        "to_diskann": curve_ratios(curves[HEADLINE], their_curve),
        "to_star": curve_ratios(curves[HEADLINE], curves["star", *HEADLINE[1:]]),
        "star_to_identity": curve_ratios(star, identity),
    }


def _settings(order: str, policy: str) -> list[Setting]:
    """Settings of one policy; starting from previous results is part of AIO-ANN, and goes one query at a time."""
    found = [lockstep(policy, entry) for entry in SEARCH_ENTRIES]
    if order == "star" and policy in ("completion", "pipeline"):
        found.append(lockstep(policy, "previous", threads=1, inflight=1))
    return found


def _figures(rows: list[Row], pages: Curve) -> dict[str, Any]:
    known = [name for name in ("hops", "bytes_used", "bytes_read") if name in rows[0]]
    return {
        "pages_read": figures_at(pages),
        "at_95": {name: value_at(rows, name) for name in known},
        "rows": summaries(rows),
    }
