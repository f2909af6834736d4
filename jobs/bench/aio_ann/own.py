"""Parts *own-SET*: the whole system on each set's own queries and an idle disk (AIO-ANN, Figure 5).

Beside it stand DiskANN, DiskANN with a node cache of as many bytes, and the control: our beam search with a cache of as
many bytes. Our cache holds the pages that searches for the tuning queries read most often; DiskANN's holds the nodes
that its own searches for a sample of the vectors visit most often, as its programs choose them. Codes are as large on
both sides.
"""

from __future__ import annotations

import time
from typing import Any

from indexmill.jobs.bench.aio_ann import searches
from indexmill.jobs.bench.aio_ann.loaded import DISKANN
from indexmill.jobs.bench.aio_ann.searches import POINTS, RECALLS, ROUNDS, SERIES, WHOLE
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import LONG_SIZES, Half, Row, Search, coarse_sweep, in_turns, sizes_at
from indexmill.jobs.bench.common.dataset import facts
from indexmill.jobs.bench.common.intervals import medians_at, ratios_at, short
from indexmill.jobs.bench.common.parameters import pq_bytes
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.ours import Shape
from indexmill.jobs.bench.programs.workspace import Workspace

#: Sets, the first one's indexes lying in the folder of the run and the others' below it.
SETS = ("sift1m", "text40k", "embed768")
CONTROL, CACHED = "beam, cache of 10%", "DiskANN, node cache"
OURS = {name: SERIES[name] for name in (CONTROL, WHOLE)}
#: What speeds are told over.
OVER = {"to_diskann": DISKANN, "to_cached": CACHED, "to_control": CONTROL}


def measure(name: str, run: Run) -> dict[str, Any]:
    """Search for the set's queries, DiskANN and ours in turns; indexes that are missing are built."""
    space = _space(name, run)
    n_bytes = _ensure(space)
    nodes = n_bytes // diskann.node_bytes(space.data)
    with diskann.DiskAnn(space) as peer, diskann.DiskAnn(space, cached_nodes=nodes) as cached:
        series: dict[str, Search] = {
            DISKANN: until_idle(peer.search()),
            CACHED: until_idle(cached.search()),
            **searches.opened(space, space.data, ours.ENGINE, OURS),
        }
        sizes = {
            one: sizes_at(coarse_sweep(search, POINTS[-1], LONG_SIZES), POINTS)
            for one, search in series.items()
        }
        rounds = in_turns(series, sizes, run.options.rounds or ROUNDS)
    return {
        "data": facts(name, space.data),
        **searches.described(space.data, OURS),
        "pq_bytes": pq_bytes(space.data.shape()[1]),
        "cache_bytes": n_bytes,
        "cached_nodes": nodes,
        "qps": {one: medians_at(rounds, one, "qps", RECALLS) for one in series},
        "pages_read": {one: medians_at(rounds, one, "pages_read", RECALLS) for one in series},
        **{
            key: {one: ratios_at(rounds, one, other, "qps", RECALLS) for one in series}
            for key, other in OVER.items()
        },
        "rounds": short(rounds),
    }


def _space(name: str, run: Run) -> Workspace:
    out = run.out if name == SETS[0] else run.out / name
    out.mkdir(exist_ok=True)
    return Workspace(run.sets[name], out, run.results)


def _ensure(space: Workspace) -> int:
    """Build DiskANN's index and ours unless they are there; return the bytes of the control's cache."""
    diskann.ensure(space)
    code_bytes = pq_bytes(space.data.shape()[1])
    for order in dict.fromkeys(one.order for one in OURS.values()):
        ours.ensure_shape(space, Shape(order, pq_bytes=code_bytes))
    control = OURS[CONTROL]
    return round(control.cache * (space.index(control.order) / "graph.imx").stat().st_size)


def until_idle(search: Search) -> Search:
    """Return a search of DiskANN that ends when its threads rest: ours, in this process, would not wait for them."""

    def ask(size: int, half: Half) -> Row:
        row = search(size, half)
        time.sleep(diskann.SPIN_SECONDS["batch"])
        return row

    return ask
