"""Part *speed*: the best order beside DiskANN and the bare disk, in one run."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.curves import (
    RECALLS,
    Row,
    Search,
    summaries,
    trial,
    tuned_sizes,
    tuned_trial,
)
from indexmill.jobs.bench.common.intervals import curve, curve_ratios, figures_at, medians_at, ratios_at
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.layouts import fit, reads
from indexmill.jobs.bench.layouts.cases import IDENTITY, Case
from indexmill.jobs.bench.layouts.reads import POLICIES, STAR
from indexmill.jobs.bench.programs import diskann, ours, rates
from indexmill.jobs.bench.programs.ours import DISKANN_WIDTH, lockstep

ROUNDS = 5
#: Orders of DiskANN++ Table V, which are searched with page search as there.
PAPER = ("random", "gorder-windowed")
ENTRY = "navigation"
PEER = "DiskANN"


def measure(case: Case, best: str) -> dict[str, Any]:
    """Choose widths on the first half of the queries for each policy; measure five rounds on the second, in turns.

    Parameters
    ----------
    case : Case
    best : str
        The order with the fewest page reads. Star packing and the input's order are searched with the same settings
        as it, so that they tell what the order alone brings; with page search, so are those of the paper.
    """
    diskann.ensure(case.space)
    orders = {policy: [best, STAR, IDENTITY] for policy in POLICIES}
    orders["page"] = list(dict.fromkeys((*orders["page"], *PAPER)))
    indexes = {order: _index(case, order) for order in orders["page"]}
    with ours.Ours(case.space) as searcher, diskann.DiskAnn(case.space) as peer:
        chosen = {policy: rates.choose(searcher, indexes[best], (policy,), (ENTRY,)) for policy in POLICIES}
        series: dict[str, Search] = {PEER: peer.search()}
        for policy, (setting, _, _) in chosen.items():
            series |= {f"{o} {policy}": searcher.search(indexes[o], setting) for o in orders[policy]}
        sizes = tuned_sizes(series)
        rounds = rates.rounds_beside_disk(case.space.index(indexes[best]), series, sizes, ROUNDS)
        pages = _pages(searcher, peer, indexes[best], sizes[PEER])
    return {
        "recalls": RECALLS,
        "queries": case.space.halves,
        "best": best,
        "settings": {policy: one[0].to_dict() for policy, one in chosen.items()},
        "grid": {policy: one[2] for policy, one in chosen.items()},
        "diskann_width": DISKANN_WIDTH,
        "threads": THREADS,
        **_rates(rounds, list(series), best),
        **pages,
        "rounds": rates.kept(rounds),
    }


def _index(case: Case, order: str) -> str:
    """Write the index in an order, fitted before or now; return its name."""
    if order == IDENTITY:
        return case.index_name
    fit.orders(case, (order,))
    return reads.write(case, order)


def _rates(rounds: list[dict[str, Any]], names: list[str], best: str) -> dict[str, Any]:
    """Queries a second of each series, over DiskANN's and over those in input order, and shares of the disk's reads."""
    mine = [name for name in names if name != PEER]
    return {
        "qps": {name: medians_at(rounds, name, "qps") for name in names},
        "ratio": {name: ratios_at(rounds, name, PEER, "qps") for name in mine},
        "to_identity": {
            name: ratios_at(rounds, name, f"{IDENTITY} {name.split()[1]}", "qps") for name in mine
        },
        "disk": rates.disk_rate(rounds),
        "disk_share": {
            f"{best} {policy}": rates.disk_shares(rounds, f"{best} {policy}") for policy in POLICIES
        },
    }


def _pages(searcher: ours.Ours, peer: diskann.DiskAnn, index: str, their_sizes: list[int]) -> dict[str, Any]:
    """Page reads of each query on both sides, with the reader's own widths, and their ratios with intervals."""
    rows: dict[str, list[Row]] = {PEER: trial(peer.search("single"), their_sizes, "report")}
    for policy in POLICIES:
        search = searcher.search(index, lockstep(policy, ENTRY))
        _, rows[policy] = tuned_trial(search)
    curves = {name: curve([some], "pages_read") for name, some in rows.items()}
    return {
        "pages_read": {name: figures_at(found) for name, found in curves.items()},
        "pages_ratio": {policy: curve_ratios(curves[policy], curves[PEER]) for policy in POLICIES},
        "pages_settings": {policy: lockstep(policy, ENTRY).to_dict() for policy in POLICIES},
        "pages_rows": {name: summaries(some) for name, some in rows.items()},
        "counted": diskann.COUNTED,
    }
