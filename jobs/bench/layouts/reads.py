"""Parts *reads*: page reads a query at equal recall for every order, and the best order written to check them.

Orders are searched as views of one index: page reads are exact, times mean nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import (
    RECALL,
    RECALLS,
    Half,
    Row,
    Search,
    coarse_sweep,
    sizes_at,
    summaries,
    trial,
    value_at,
)
from indexmill.jobs.bench.common.dataset import K, read_bin
from indexmill.jobs.bench.common.intervals import Curve, curve, curve_ratios, figures_at
from indexmill.jobs.bench.common.parameters import ORDER, THREADS
from indexmill.jobs.bench.common.process import run_indexmill
from indexmill.jobs.bench.layouts import fit
from indexmill.jobs.bench.layouts.cases import IDENTITY, Case, facts
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.ours import Setting, lockstep
from indexmill.jobs.bench.programs.ours_serve import search
from indexmill.jobs.compare.units import unit_cost, units_read

POLICIES = ("page", "pipeline")
ENTRIES = ("navigation", "centroids")
#: Policy and entry that orders are chosen by, and that headline figures are of: the paper's search.
JUDGE = ("page", "navigation")
STAR = "star"

#: Order, policy, entry.
Place = tuple[str, str, str]


def measure(case: Case) -> dict[str, Any]:
    """Search a view of every order; choose list sizes and the best order by the first half of the queries."""
    orders, views = fit.orders(case), Views(case)
    tuned: dict[str, list[Row]] = {}
    sweeps: dict[Place, list[Row]] = {}
    for order, permutation in orders.items():
        print(f"  {case.name}: {order}", file=sys.stderr, flush=True)
        view = views.view(permutation)
        for policy in _policies(order):
            name = f"{order} {policy}"
            tuned[name] = coarse_sweep(views.search(view, lockstep(policy, JUDGE[1])), sizes=case.coarse)
            for entry in ENTRIES:
                found = trial(views.search(view, lockstep(policy, entry)), sizes_at(tuned[name]), "report")
                sweeps[order, policy, entry] = found
    best = choose(tuned, list(orders))
    curves = {place: curve([rows], "pages_read") for place, rows in sweeps.items()}
    return {
        "recalls": RECALLS,
        "queries": case.space.halves,
        "index": facts(case),
        "judge": JUDGE,
        "best": best,
        "settings": [_setting(place, sweeps[place], curves) for place in sweeps],
        "ratios": {
            f"{policy} {entry}": {
                "star / identity": _ratios(curves, (STAR, IDENTITY), policy, entry),
                "best / star": _ratios(curves, (best, STAR), policy, entry),
                "best / identity": _ratios(curves, (best, IDENTITY), policy, entry),
            }
            for policy in POLICIES
            for entry in ENTRIES
        },
        "written": _check(case, best, sweeps),
        "tuning_rows": {name: summaries(rows) for name, rows in tuned.items()},
    }


def default(case: Case) -> dict[str, Any]:
    """Search views of the default order and of star packing; list sizes are chosen by the first half of the queries."""
    orders, views = fit.orders(case, (ORDER, STAR)), Views(case)
    found: dict[str, Any] = {}
    for policy in POLICIES:
        rows = {}
        for order, permutation in orders.items():
            search = views.search(views.view(permutation), lockstep(policy, JUDGE[1]))
            rows[order] = trial(search, sizes_at(coarse_sweep(search, sizes=case.coarse)), "report")
        curves = {order: curve([some], "pages_read") for order, some in rows.items()}
        found[policy] = {
            "pages_read": {order: figures_at(one) for order, one in curves.items()},
            "to_star": curve_ratios(curves[ORDER], curves[STAR]),
            "rows": {order: summaries(some) for order, some in rows.items()},
        }
    return {
        "order": ORDER,
        "entry": JUDGE[1],
        "queries": case.space.halves,
        "index": facts(case),
        "policies": found,
    }


def _policies(order: str) -> tuple[str, ...]:
    """Without page search no layout can help, so beam search is of the order that DiskANN has."""
    return (*POLICIES, "beam") if order == IDENTITY else POLICIES


def choose(tuned: dict[str, list[Row]], orders: list[str]) -> str:
    """Return the order with the fewest page reads of the tuning queries at 0.95.

    Raises
    ------
    ValueError
        If none of them reached that recall.
    """
    pages = {order: value_at(tuned[f"{order} {JUDGE[0]}"], "pages_read", RECALL) for order in orders}
    able = {order: value for order, value in pages.items() if value is not None}
    if not able:
        raise ValueError(f"no order reached recall {RECALL} on the tuning queries; search with longer lists")
    return min(able, key=lambda order: able[order])


def _setting(place: Place, rows: list[Row], curves: dict[Place, Curve]) -> dict[str, Any]:
    order, policy, entry = place
    found = {
        "order": order,
        "policy": policy,
        "entry": entry,
        "pages_read": figures_at(curves[place]),
        "at_95": {name: value_at(rows, name) for name in ("hops", "bytes_used", "bytes_read")},
        "rows": summaries(rows),
    }
    if policy in POLICIES:
        found["to_star"] = _ratios(curves, (order, STAR), policy, entry)
    return found


def _ratios(curves: dict[Place, Curve], pair: tuple[str, str], policy: str, entry: str) -> dict[str, Any]:
    a, b = (curves[order, policy, entry] for order in pair)
    return curve_ratios(a, b)


def write(case: Case, order: str) -> str:
    """Lay the index out in an order that was fitted; return the new index's name."""
    name, log = case.laid_out(order), case.folder / f"layout-{order}.log"
    out, file = case.space.index(name), case.folder / f"{order}.npy"
    run_indexmill(log, "layout", case.index, order_file=file, out=out, workers=THREADS)
    return name


def _check(case: Case, order: str, sweeps: dict[Place, list[Row]]) -> dict[str, Any]:
    """Write the index in an order and search it past the page cache with the list sizes of its views."""
    name, worst, rows = write(case, order), 0.0, []
    with ours.Ours(case.space) as searcher:
        for policy in POLICIES:
            place = (order, policy, JUDGE[1])
            search = searcher.search(name, lockstep(policy, JUDGE[1]))
            for simulated in sweeps[place]:
                real = search(simulated["L"], "report")
                worst = max(worst, abs(simulated["pages_read"] / real["pages_read"] - 1))
                rows.append(
                    {
                        "policy": policy,
                        "L": simulated["L"],
                        "simulated": simulated["pages_read"],
                        "real": real["pages_read"],
                        "same_recall": real["recall"] == simulated["recall"],
                        "same_pages_each": real["queries"]["pages_read"]
                        == simulated["queries"]["pages_read"],
                    }
                )
    return {"order": order, "entry": JUDGE[1], "engine": ours.ENGINE, "worst": worst, "rows": rows}


class Views:
    """An index in identity order; it stays open.

    Parameters
    ----------
    case : Case
    """

    def __init__(self, case: Case) -> None:
        from indexmill.reader.index import Index

        self._case = case
        self._index = Index(case.index, "pread")

    def view(self, order: Any) -> Any:
        """Return the index as if laid out in `order`, uint32 (n,): the vector id in each slot."""
        return self._index.remapped(np.asarray(order))

    def units(self, view: Any, setting: Setting, size: int, units: Mapping[str, int]) -> dict[str, float]:
        """Return how many of each of `units`, of so many bytes, a query of the second half reads from a view."""
        first, last = self._case.space.halves["report"]
        queries = np.ascontiguousarray(read_bin(self._case.space.data.query)[first:last])
        counts = units_read(view, queries, K, size, setting.to_dict(), list(units.values()))
        return {name: float(counts[unit_cost(unit)].mean()) for name, unit in units.items()}

    def search(self, view: Any, setting: Setting) -> Search:
        """Return the search of a view with a setting."""

        def ask(size: int, half: Half) -> Row:
            first, last = self._case.space.halves[half]
            queries = {"first": first, "last": last, "times": 1, "way": "batch"}
            question = {"size": size, "setting": setting.to_dict(), **queries}
            row: Row = search(view, self._case.space.data, question)
            return row

        return ask
