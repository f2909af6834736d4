"""Part *speed*: the best order beside DiskANN and the bare disk, in one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from indexmill.jobs.bench.common import disk
from indexmill.jobs.bench.common.curves import (
    RECALLS,
    Row,
    Search,
    coarse_sweep,
    key,
    ratio,
    sizes_at,
    summaries,
    sweep,
    trial,
    value_at,
)
from indexmill.jobs.bench.common.intervals import curve, figure_at, over_rounds, ratio_at
from indexmill.jobs.bench.layouts import fit as layouts_fit
from indexmill.jobs.bench.layouts import reads as layouts_reads
from indexmill.jobs.bench.layouts.cases import Case
from indexmill.jobs.bench.layouts.reads import IDENTITY, STAR
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.settings import DISKANN_WIDTH, lockstep
from indexmill.jobs.bench.programs.workspace import THREADS
from indexmill.jobs.bench.sift1m import qps

ROUNDS = 5
FIO_SECONDS = 2
POLICIES = ("page", "pipeline")
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
    orders = {policy: (best, STAR, IDENTITY) for policy in POLICIES}
    orders["page"] = tuple(dict.fromkeys((*orders["page"], *PAPER)))
    indexes = {order: _index(case, order) for order in orders["page"]}
    with ours.Ours(case.space) as searcher, diskann.DiskAnn(case.space) as peer:
        chosen = {policy: qps.choose(searcher, indexes[best], (policy,), (ENTRY,)) for policy in POLICIES}
        series: dict[str, Search] = {PEER: peer.search()}
        for policy, (setting, _, _) in chosen.items():
            series |= {f"{o} {policy}": searcher.search(indexes[o], setting) for o in orders[policy]}
        sizes = {name: sizes_at(coarse_sweep(search)) for name, search in series.items()}
        rounds = [_round(case, indexes[best], series, sizes) for _ in range(ROUNDS)]
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
        "rounds": [
            {"disk": done["disk"], **{name: summaries(done[name]) for name in series}} for done in rounds
        ],
    }


def _index(case: Case, order: str) -> str:
    """Write the index in an order, fitted before or now; return its name."""
    if order == IDENTITY:
        return case.shape.name
    layouts_fit.orders(case)
    return layouts_reads.write(case, order)


def _rates(rounds: list[dict[str, Any]], names: list[str], best: str) -> dict[str, Any]:
    """Queries a second of each series, over DiskANN's and over those in input order, and shares of the disk's reads."""

    def over(figure: Callable[[dict[str, Any], float], float | None]) -> dict[str, Any]:
        return {key(r): over_rounds([figure(done, r) for done in rounds]) for r in RECALLS}

    def rate(done: dict[str, Any], name: str, recall: float) -> float | None:
        return value_at(done[name], "qps", recall)

    def rates(name: str, other: str) -> dict[str, Any]:
        return over(lambda done, recall: ratio(rate(done, name, recall), rate(done, other, recall)))

    mine = [name for name in names if name != PEER]
    return {
        "qps": {name: over(lambda done, recall, name=name: rate(done, name, recall)) for name in names},
        "ratio": {name: rates(name, PEER) for name in mine},
        "to_identity": {name: rates(name, f"{IDENTITY} {name.split()[1]}") for name in mine},
        "disk": over_rounds([float(done["disk"]["reads_per_s"]) for done in rounds]),
        "disk_share": {
            f"{best} {policy}": over(lambda done, recall, name=f"{best} {policy}": _share(done, name, recall))
            for policy in POLICIES
        },
    }


def _round(case: Case, index: str, series: dict[str, Search], sizes: dict[str, list[int]]) -> dict[str, Any]:
    done: dict[str, Any] = {name: sweep(search, sizes[name]) for name, search in series.items()}
    done["disk"] = disk.read_rate(case.space.index(index) / "graph.imx", disk.DEPTH, FIO_SECONDS)
    return done


def _pages(searcher: ours.Ours, peer: diskann.DiskAnn, index: str, their_sizes: list[int]) -> dict[str, Any]:
    """Page reads of each query on both sides, with the reader's own widths, and their ratios with intervals."""
    rows: dict[str, list[Row]] = {PEER: trial(peer.search("single"), their_sizes, "report")}
    for policy in POLICIES:
        search = searcher.search(index, lockstep(policy, ENTRY))
        rows[policy] = trial(search, sizes_at(coarse_sweep(search)), "report")
    curves = {name: curve([some], "pages_read") for name, some in rows.items()}
    return {
        "pages_read": {
            name: {key(r): figure_at(found, r) for r in RECALLS} for name, found in curves.items()
        },
        "pages_ratio": {
            policy: {key(r): ratio_at(curves[policy], curves[PEER], r) for r in RECALLS}
            for policy in POLICIES
        },
        "pages_settings": {policy: lockstep(policy, ENTRY).to_dict() for policy in POLICIES},
        "pages_rows": {name: summaries(some) for name, some in rows.items()},
        "counted": diskann.COUNTED,
    }


def _share(done: dict[str, Any], name: str, recall: float) -> float | None:
    """Share of the disk's reads a second that a round's search asked for."""
    rate, pages = (value_at(done[name], what, recall) for what in ("qps", "pages_read"))
    return None if rate is None or pages is None else rate * pages / float(done["disk"]["reads_per_s"])
