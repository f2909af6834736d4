"""Parts *units*: reads of 64 KiB and 1 MiB at equal recall for every order, and for its pages as they were packed."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import POINTS, RECALL, coarse_sweep, sizes_at, value_at
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.layouts import fit
from indexmill.jobs.bench.layouts.cases import Case, facts, nodes_per_page
from indexmill.jobs.bench.layouts.reads import Views
from indexmill.jobs.bench.programs.ours import Setting

#: Units that are counted, the page first.
UNITS = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20}
#: Recalls on the tuning queries around the one that is compared; the other half's differ by up to a percent.
NEXT_TO = POINTS[1:-1]
#: The default search.
SETTING = Setting()


def measure(case: Case) -> dict[str, Any]:
    """Count the units that queries read from views of every order, with the list sizes of page reads."""
    orders, views = fit.orders(case), Views(case)
    packed, seconds = packed_orders(case)
    rows = []
    for order, permutation in orders.items():
        print(f"  {case.name}: {order}", file=sys.stderr, flush=True)
        view = views.view(permutation)
        sizes = sizes_at(coarse_sweep(views.search(view, SETTING), sizes=case.coarse), NEXT_TO)
        before = _reads(views, views.view(packed[order]), sizes) if order in packed else None
        rows.append({"order": order, "reads": _reads(views, view, sizes), "packed": before})
    return {
        "index": facts(case),
        "queries": case.space.halves,
        "setting": SETTING.to_dict(),
        "recall": RECALL,
        "units": UNITS,
        "rows": rows,
        "star_cpu_s": seconds,
    }


def _reads(views: Views, view: Any, sizes: list[int]) -> dict[str, float | None]:
    """Return the reads of a query, of each unit, at the recall that is compared."""
    search = views.search(view, SETTING)
    rows = [search(size, "report") | views.units(view, SETTING, size, UNITS) for size in sizes]
    return {unit: value_at(rows, unit) for unit in UNITS}


def packed_orders(case: Case) -> tuple[dict[str, Any], dict[str, float]]:
    """Fit orders whose pages are put in units without that step.

    Returns
    -------
    orders : dict of uint32 arrays, shape (n,)
    seconds : dict of float
        CPU time of star packing: of its ``pages``, and of putting them in ``units``.
    """
    from indexmill.layout.order import Adjacency, Given, Work, in_memory
    from indexmill.layout.portfolio import ORDERS
    from indexmill.layout.units.order import InUnits, in_units

    with fit.unpacked(case) as folder:
        neighbours, degrees, points = (
            np.load(folder / f"{part}.npy", mmap_mode="r+") for part in ("neighbours", "degrees", "points")
        )
        graph, per_page = Adjacency(neighbours, degrees), nodes_per_page(case)
        given = Given(graph, points, per_page, SEED, THREADS, Work(), in_memory)
        one_unit = (len(degrees),)  # holds all pages, which then stay as they are packed
        made = {
            name: replace(order, unit_pages=one_unit)
            for name, order in ORDERS.items()
            if isinstance(order, InUnits)
        }
        packed = {name: order.arrange(given) for name, order in made.items()}
        in_units(packed[fit.STAR], given)  # loads the kernels
        began = time.process_time()
        stars = made[fit.STAR].arrange(given)
        between = time.process_time()
        in_units(stars, given)
        seconds = {"pages": between - began, "units": time.process_time() - between}
    return packed, seconds
