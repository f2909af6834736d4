"""Divide joins among a host and the drives it holds: by workers slowed to given rates, and in simulation.

No drive computes here. Part *emulated* is a real join of real batches whose loads and searches wait until a drive of
the paper, scaled down, would be through; part *emulated-16* has as few batches as the paper, which have to be cut. Part
*simulated* is a discrete-event simulation of the paper's platform, in which nothing is loaded. Workers of the other
parts (`apart`) have paths of their own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.benchmark import Benchmark, Run, Target
from indexmill.jobs.bench.common.dataset import K, read_bin
from indexmill.jobs.bench.split import apart, paper
from indexmill.jobs.bench.split.index import built, work_of
from indexmill.pipeline.join.options import JoinOptions
from indexmill.pipeline.join.platform import Worker
from indexmill.pipeline.join.run import run_join
from indexmill.pipeline.join.simulate import spread

LISTS, NPROBE, BATCHES, DRIVES, ROUNDS = 64, 4, 200, 8, 3
#: Batches of the paper's 50 million vectors, and lists of each here.
FEW_BATCHES, FEW_LISTS = 16, 1024
#: Seconds that the host alone is slowed to.
HOST_SECONDS = 17.0


def emulated(space: Run, batches: int = BATCHES, lists: int = LISTS) -> dict[str, Any]:
    """Run the join of a host, of drives, and of both, slowed to the paper's rates over a scale, in turns."""
    index = built(space, batches, lists)
    queries = np.array(read_bin(space.sets["sift1m"].query))
    crews = _crews(index, queries)
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in crews}
    for _ in range(ROUNDS):
        for kind, crew in crews.items():
            runs[kind].append(_run(space, index, queries, crew))
    seconds = {kind: median(one["seconds"] for one in found) for kind, found in runs.items()}
    return {
        "queries": len(queries),
        "batches": batches,
        "drives": DRIVES,
        "seconds": seconds,
        "hybrid_to_host": seconds["host"] / seconds["hybrid"],
        "hybrid_to_drives": seconds["drives"] / seconds["hybrid"],
        "spread": max(one["spread"] for one in runs["hybrid"]),
        "off": max(one["off"] for one in runs["hybrid"]),
        "runs": runs,
    }


def _crews(index: Path, queries: Any) -> dict[str, list[Worker]]:
    """Return the paper's workers with rates such that its host takes `HOST_SECONDS` for these batches and queries."""
    rates = paper.fit_rates()
    n_bytes, compares = work_of(index, queries, NPROBE)
    whole_set = paper.costs(1e9, 1, 1)
    host, drive = (paper.crew(rates, DRIVES, kind)[0] for kind in ("host", "drives"))
    whole = host.load_seconds(whole_set.n_bytes[0]) + host.search_seconds(whole_set.compares[0])

    def slowed(worker: Worker, name: str) -> Worker:
        scale = HOST_SECONDS / whole
        load = n_bytes / (scale * worker.load_seconds(whole_set.n_bytes[0]))
        compare = compares / (scale * worker.search_seconds(whole_set.compares[0]))
        return replace(worker, name=name, load_mb_s=load, compare_m_s=compare, throttle=True)

    drives = [slowed(drive, f"drive-{i}") for i in range(DRIVES)]
    return {"host": [slowed(host, "host")], "drives": drives, "hybrid": [slowed(host, "host"), *drives]}


def _run(space: Run, index: Path, queries: Any, crew: list[Worker]) -> dict[str, Any]:
    report = run_join(queries, index, space.out / "split.parquet", JoinOptions(K, NPROBE, platform=crew))
    assert report.workers is not None
    seconds = [one.seconds for one in report.workers]
    planned = [one.predicted_seconds for one in report.workers]
    return {
        "seconds": max(seconds),
        "spread": spread(seconds),
        "off": max(abs(took - said) / said for took, said in zip(seconds, planned, strict=True) if said),
        "worker_seconds": seconds,
        "planned_seconds": planned,
        "planned_batches": [one.planned for one in report.workers],
        "batches": [len(one.batches) for one in report.workers],
    }


def simulated(space: Run) -> dict[str, Any]:
    """Simulate the paper's platform at its size."""
    rates = paper.fit_rates()
    return {
        "host_compare_m_s": rates.host,
        "drive_compare_m_s": rates.drive,
        "virtual_memory": paper.virtual_memory(rates, 5e7, 0.25),
        "scaling": paper.scaling(rates, 5e7),
        "hybrids": paper.hybrids(rates),
        "energy": paper.energy(rates),
    }


TARGETS = (
    Target("queries a second, host and 8 emulated drives over the host", "emulated.hybrid_to_host", ">=", 1.6, "x"),
    Target("first worker done before the last one, share of the time", "emulated.spread", "<=", 0.10),
    Target("worker's time off its plan by at most, share of it", "emulated.off", "<=", 0.10),
    Target("queries a second, two drives with paths of their own over one", "paths.drives_to_one", ">=", 1.8, "x"),
    Target("the same bytes by workers with paths of their own (1: yes)", "paths.same|int", ">=", 1),
    Target("the same bytes by two processes (1: yes)", "two_processes.same|int", ">=", 1),
    Target("the same bytes by two nodes of Ray (1: yes)", "ray.same|int", ">=", 1),
)  # fmt: skip

BENCHMARK = Benchmark[Run](
    "split",
    {
        "emulated": emulated,
        "emulated-16": partial(emulated, batches=FEW_BATCHES, lists=FEW_LISTS),
        "simulated": simulated,
        "paths": apart.paths,
        "two-processes": apart.two_processes,
        "ray": apart.on_ray,
    },
    TARGETS,
    parameters={"lists": LISTS, "nprobe": NPROBE, "batches": BATCHES, "k": K},
    peers=("ray",),
)

if __name__ == "__main__":
    BENCHMARK.main()
