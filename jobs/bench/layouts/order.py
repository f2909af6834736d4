"""Fit one order in a process of its own and print what that took as JSON.

    python -m indexmill.jobs.bench.layouts.order GRAPH ORDER OUT.npy NODES_PER_PAGE SEED THREADS mapped|held

GRAPH is a folder with a graph and its vectors (`pipeline.relayout.unpacked`), which are mapped files, as when
`indexmill layout` fits an order. With ``held`` lists and degrees are copied into memory first, and that counts: so a
program would work that reads the graph into memory. Kernels are compiled and loaded on a tiny graph beforehand.
"""

from __future__ import annotations

from indexmill.pipeline.execution.allocator import give_back, hold_little

hold_little()  # before numpy is imported, as the command does

import json  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from dataclasses import asdict  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from indexmill.layout.metrics import layout_metrics  # noqa: E402
from indexmill.layout.order import Adjacency  # noqa: E402
from indexmill.pipeline.mill.peak import PeakMemory, proportional_bytes  # noqa: E402
from indexmill.pipeline.relayout.fitting import Fitted, fit  # noqa: E402
from indexmill.pipeline.relayout.unpacked import UnpackedIndex  # noqa: E402

_TINY = 3000


def main() -> None:
    folder, name, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    per_page, seed, threads = (int(value) for value in sys.argv[4:7])
    held = sys.argv[7] == "held"
    # Writable, though nothing is written: kernels are compiled for arrays as the command maps them.
    neighbours, degrees, points = (
        np.load(folder / f"{part}.npy", mmap_mode="r+") for part in ("neighbours", "degrees", "points")
    )

    def fitted(graph: Adjacency, some: Any) -> Fitted:
        ids = np.arange(len(graph.degrees), dtype=np.uint32)
        with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
            return fit(name, UnpackedIndex(ids, graph, some), per_page, seed, threads, None, Path(scratch))

    with threadpool_limits(1):
        tiny = min(_TINY, len(degrees))
        fitted(_tiny(tiny, neighbours.shape[1]), points[:tiny])
        give_back()
        before = proportional_bytes("self")
        with PeakMemory() as peak:
            graph = (
                Adjacency(np.array(neighbours), np.array(degrees)) if held else Adjacency(neighbours, degrees)
            )
            began = time.perf_counter()
            found = fitted(graph, points)
            seconds = time.perf_counter() - began
        metrics = layout_metrics(neighbours, degrees, found.order, per_page, 0.0)
    np.save(out, found.order)
    measured = {
        "seconds": seconds,
        "bytes": peak.bytes - before,
        "process_bytes": peak.bytes,
        "note": peak.note,
        "work": found.work,
        "metrics": {key: value for key, value in asdict(metrics).items() if key != "fill"},
    }
    print(json.dumps(measured))


def _tiny(n: int, degree: int) -> Adjacency:
    """Return a graph of n vertices, n > 7 `degree`, with lists of `degree` different neighbours."""
    steps = 1 + 7 * np.arange(degree)
    lists = (np.arange(n)[:, None] + steps) % n
    return Adjacency(lists.astype(np.uint32), np.full(n, degree, np.int32))


main()
