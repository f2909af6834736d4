"""Measure hash tables on storage beside SRS, QALSH, a cost model and the other kinds of index.

What a part needs of an earlier one it reads from the record. Indexes that are missing are built.
"""

from __future__ import annotations

from functools import partial

from indexmill.jobs.bench.common.benchmark import Benchmark, Target
from indexmill.jobs.bench.common.dataset import facts
from indexmill.jobs.bench.lsh import (
    beyond,
    blocks,
    devices,
    footprint,
    growth,
    kinds,
    speed,
    storage,
    tables,
)
from indexmill.jobs.bench.lsh.sets import FIRST_OF_RAND, make_sets
from indexmill.jobs.bench.lsh.space import SHAPES, Space
from indexmill.jobs.bench.lsh.tune import KS, TARGET

SETS = ("sift1m", "text40k", "rand", "gauss")
#: Those with tables and speeds of their own: also the first vectors of rand, in which QALSH is searched too.
MEASURED = (*SETS, FIRST_OF_RAND)


def _targets(k: int) -> tuple[Target, ...]:
    of = f"sift1m, k = {k}"
    return (
        Target(f"speed in memory / SRS, {of}", f"speed_sift1m.k{k}.ratios['memory / srs']", ">=", 10, "x"),
        Target(f"speed from storage, share of Equation 7's, {of}", f"storage.k{k}.to_model", ">=", 0.8),
        Target(f"speed on the simulated XLFDD / in memory, {of}", f"simulated.k{k}.ratio", ">=", 0.95, "x"),
        Target(
            f"speed of io_uring / mmap, share of the disk's at {storage.DEPTH} / at 1, {of}",
            f"storage.k{k}.async_to_disk", ">=", 0.8,
        ),
    )  # fmt: skip


BENCHMARK = Benchmark[Space](
    "lsh",
    {
        "build": tables.insertions,
        **{f"tables-{name}": partial(tables.measure, name) for name in MEASURED},
        **{f"speed-{name}": partial(speed.measure, name) for name in MEASURED},
        "storage": storage.measure,
        "simulated": storage.simulated,
        "synchronous": storage.synchronous,
        "devices": devices.measure,
        "interfaces": devices.interfaces,
        "footprint": footprint.measure,
        "blocks": blocks.measure,
        "srs-accuracy": blocks.srs,
        "growth": growth.measure,
        "growth-storage": growth.on_storage,
        "beyond": beyond.measure,
        "kinds": kinds.measure,
    },
    (
        *(target for k in KS for target in _targets(k)),
        Target("exponent of query time over n, k = 1", "growth.lsh_exponent", "<=", 0.7),
        Target("insertions a second, two workers", "build.per_s / 1e6", ">=", 5, "million"),
    ),
    sets=("sift1m", "text40k"),
    space=lambda run: Space(run, make_sets(run)),
    data=lambda space: [facts(name, space.data(name)) for name in SETS],
    parameters={
        "ratio": TARGET,
        "k": list(KS),
        "shapes": {shape.name: shape.options for shape in SHAPES.values()},
        "inflight": tables.INFLIGHT,
    },
)

if __name__ == "__main__":
    BENCHMARK.main()
