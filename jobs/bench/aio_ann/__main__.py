"""Measure AIO-ANN's search with all of its parts, beside beam search, DiskANN and our default search.

    python -m indexmill.jobs.bench.aio_ann --sift1m DIR --text40k DIR --embed768 DIR --out DIR [--parts tail] [--keep]

OUT may be the folder of the benchmark ``sift1m``, whose indexes are then used; missing ones are built. The other two
sets are searched by parts *own-SET* alone.
"""

from __future__ import annotations

from functools import partial

from indexmill.jobs.bench.aio_ann import loaded, own, steady, tail
from indexmill.jobs.bench.common.benchmark import ROUNDS_OPTION, Benchmark, Run
from indexmill.jobs.bench.common.dataset import facts
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.programs.diskann import PACKAGES

BENCHMARK = Benchmark[Run](
    "aio_ann",
    {
        "tail": tail.measure,
        "loaded": loaded.measure,
        "steady": steady.measure,
        **{f"own-{name}": partial(own.measure, name) for name in own.SETS},
    },
    sets=own.SETS,
    data=lambda run: [facts("sift1m", run.sets["sift1m"])],
    parameters={"threads": THREADS},
    peers=PACKAGES,
    options=ROUNDS_OPTION,
)

if __name__ == "__main__":
    BENCHMARK.main()
