"""Parts *auto* and *prune*: indexes as `indexmill layout` leaves them when it chooses, and their page reads."""

from __future__ import annotations

import shutil
from typing import Any

from indexmill.formats.errors import NothingToGain
from indexmill.jobs.bench.common.curves import Row, coarse_sweep, sizes_at, summaries, trial
from indexmill.jobs.bench.common.intervals import curve, curve_ratios, figures_at
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.process import run_indexmill
from indexmill.jobs.bench.layouts import fit
from indexmill.jobs.bench.layouts.cases import Case, laid_out_facts
from indexmill.jobs.bench.layouts.reads import JUDGE, POLICIES, STAR, Views
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.ours import lockstep

#: Experimental option of `indexmill layout`: neighbour lists are chosen anew once a layout is known.
PRUNE = "prune_edges"


def auto(case: Case) -> dict[str, Any]:
    """Let the command choose an order, given the first half of the queries; read its pages on the second."""
    queries, truth = case.tuning_files()
    name = case.laid_out("auto")
    options = {"order": "auto", "queries": queries, "truth": truth}
    cost = lay_out(case, name, options)
    made = ours.manifest(case.space.index(name))["layout"]
    chosen = made["order"]
    return {
        "chosen": chosen,
        "choice": made["choice"],
        "proxies": {what: made[what] for what in ("overlap_ratio", "in_page_edges", "page_compactness")},
        **cost,
        **judged(case, name, chosen),
    }


def prune(case: Case, best: str) -> dict[str, Any]:
    """Lay the index out in the best order with edges chosen for its pages; say so where that saves nothing.

    Parameters
    ----------
    case : Case
    best : str
        The order with the fewest page reads; what is gained is told beside it.
    """
    name = case.laid_out("pruned")
    try:
        cost = lay_out(case, name, {"order": best, PRUNE: True})
    except RuntimeError as error:
        if not str(error).startswith(f"exit code {NothingToGain.exit_code} of"):
            raise
        return {"reason": str(error).splitlines()[-1].rpartition("nothing was published: ")[2]}
    made = ours.manifest(case.space.index(name))
    return {
        "reason": None,
        "order": best,
        "layout": {what: value for what, value in made["layout"].items() if what != "choice"},
        "graph": made["graph"],
        **cost,
        **judged(case, name, best),
    }


def lay_out(case: Case, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Write the case's index anew as `name` by ``indexmill layout``.

    Parameters
    ----------
    case : Case
    name : str
        Folder of the new index and stem of its log; an index of that name is removed first.
    options : dict
        Options of the command by their names in Python.

    Returns
    -------
    dict
        ``wall_s`` and ``cpu_s``, seconds of the command by the clock and of processor time, and `laid_out_facts`.

    Raises
    ------
    RuntimeError
        If the command fails, or if no index is there afterwards.
    """
    out = case.space.index(name)
    shutil.rmtree(out, ignore_errors=True)
    usage = run_indexmill(
        case.folder / f"{name}.log", "layout", case.index, **options, out=out, workers=THREADS
    )
    if not (out / "manifest.json").exists():
        raise RuntimeError(f"{out}: nothing was written: {(case.folder / f'{name}.log').read_text()[-500:]}")
    return {"wall_s": round(usage.wall_s, 3), "cpu_s": round(usage.cpu_s, 3), **laid_out_facts(out)}


def judged(case: Case, name: str, order: str) -> dict[str, Any]:
    """Page reads of a written index, and their ratios to star packing and to `order` without what the command adds."""
    orders, views = fit.orders(case, (STAR, order)), Views(case)
    beside = {STAR: views.view(orders[STAR]), order: views.view(orders[order])}
    found: dict[str, Any] = {}
    with ours.Ours(case.space) as searcher:
        for policy in POLICIES:
            setting = lockstep(policy, JUDGE[1])
            searches = {"this": searcher.search(name, setting)}
            searches |= {other: views.search(view, setting) for other, view in beside.items()}
            rows: dict[str, list[Row]] = {}
            for who, search in searches.items():
                sizes = sizes_at(coarse_sweep(search, sizes=case.coarse))
                rows[who] = trial(search, sizes, "report")
            curves = {who: curve([some], "pages_read") for who, some in rows.items()}
            found[policy] = {
                "pages_read": figures_at(curves["this"]),
                "to_star": curve_ratios(curves["this"], curves[STAR]),
                "to_order": curve_ratios(curves["this"], curves[order]),
                "rows": summaries(rows["this"]),
            }
    return {"entry": JUDGE[1], "policies": found}
