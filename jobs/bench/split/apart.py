"""Parts *paths*, *two-processes* and *ray*: joins by workers with paths of their own.

Part *paths* has Figures 8b and 8c of the Batch Similarity Search paper. Paths, processes and searches are real. All
paths lie on one disk, so loads are slowed to the rate of a drive whose loads take as long as the searches of the host;
so it is on the paper's platform. Two workers with a core each stand for the host with two drives, and for two drives
alone. More drives are simulated at the rates that were measured. In the other parts nothing is slowed.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from indexmill.jobs.bench.cluster.nodes import cluster, pinned
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import K, read_bin
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.process import indexmill, told
from indexmill.jobs.bench.split import paper
from indexmill.jobs.bench.split.index import ROWS, built, work_of
from indexmill.pipeline.join.options import JoinOptions, JoinReport
from indexmill.pipeline.join.platform import Costs, Worker
from indexmill.pipeline.join.run import run_join
from indexmill.pipeline.join.simulate import simulate
from indexmill.pipeline.join.split import plan_split

BATCHES, LISTS, NPROBE, ROUNDS = 40, 64, 32, 3
#: Millions of vectors a second that no worker reaches: its searches are not slowed.
UNSLOWED = 1e6
#: Memory that Ray offers on a node.
NODE_MEMORY = 3 << 30


class Joins:
    """Joins of one index and their results, all of which must be the same bytes.

    Parameters
    ----------
    space : Run
    """

    def __init__(self, space: Run) -> None:
        self.index = built(space, BATCHES, LISTS)
        self.queries = np.array(read_bin(space.sets["sift1m"].query))
        self.folder = space.out / "paths"
        self.out = space.out / "split.parquet"
        self.digests: set[str] = set()
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name: str) -> str:
        """Return a folder for the copies of a worker."""
        made = self.folder / name
        made.mkdir(parents=True, exist_ok=True)
        return str(made)

    def run(self, platform: list[Worker]) -> JoinReport:
        """Join by a platform, or by none."""
        options = JoinOptions(K, NPROBE, workers=THREADS, platform=platform)
        report = run_join(self.queries, self.index, self.out, options)
        self.seen()
        return report

    def seen(self) -> None:
        """Note the bytes of a result, and remove it."""
        self.digests.add(hashlib.sha256(self.out.read_bytes()).hexdigest())
        self.out.unlink()

    @property
    def same(self) -> bool:
        """Whether all results were the same bytes."""
        return len(self.digests) == 1


def paths(space: Run) -> dict[str, Any]:
    """Join by the host and by drives, with one path and with two, in turns; simulate more."""
    joins = Joins(space)
    joins.run([])
    n_bytes, compares = work_of(joins.index, joins.queries, NPROBE)
    one = partial(Worker, overlap=False, path=joins.path("one"))
    rates = {}
    for kind, threads in (("host", THREADS), ("drive", 1)):
        (worker,) = joins.run([one(kind, 1.0, 1.0, threads=threads)]).workers or []
        rates[kind] = compares / worker.search_seconds
    load = n_bytes / (compares / rates["host"])
    pair = [
        Worker(f"drive-{i}", load, UNSLOWED, overlap=False, throttle=True, path=joins.path(f"two-{i}"))
        for i in range(2)
    ]
    crews = {
        "host": [one("host", load, UNSLOWED, throttle=True, threads=THREADS)],
        "drive": [one("drive", load, UNSLOWED, throttle=True)],
        "two": pair,
    }
    copied = joins.run(pair)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in crews}
    for _ in range(ROUNDS):
        for name, crew in crews.items():
            runs[name].append(_facts(joins.run(crew)))
    seconds = {name: median(max(run["worker_s"]) for run in made) for name, made in runs.items()}
    for kind in rates:
        rates[kind] = compares / median(run["search_s"] for run in runs[kind])
    return {
        "queries": len(joins.queries),
        "batches": BATCHES,
        "nprobe": NPROBE,
        "load_mb_s": load,
        "compare_m_s": rates,
        "copied_bytes": copied.copied_bytes,
        "seconds": seconds,
        "host_to_one": seconds["host"] / seconds["two"],
        "drives_to_one": seconds["drive"] / seconds["two"],
        "simulated": _simulated(load, rates, n_bytes, compares),
        "same": joins.same,
        "runs": runs,
    }


def _facts(report: JoinReport) -> dict[str, Any]:
    workers = report.workers or []
    return {
        "wall_s": report.seconds,
        "worker_s": [worker.seconds for worker in workers],
        "load_s": sum(worker.load_seconds for worker in workers),
        "search_s": sum(worker.search_seconds for worker in workers),
        "batches": [len(worker.batches) for worker in workers],
    }


def _simulated(
    load: float, rates: dict[str, float], n_bytes: float, compares: float
) -> dict[str, dict[str, float]]:
    """Return the seconds of a host with so many drives, and of so many drives alone."""
    costs = Costs.even(BATCHES, LISTS, n_bytes * 1e6, compares * 1e6, ROWS)

    def seconds(workers: list[Worker]) -> float:
        return max(one.seconds for one in simulate(plan_split(workers, costs)))

    return {
        "host": {
            str(n): seconds([Worker("host", load * n, rates["host"], overlap=False)]) for n in paper.DRIVES
        },
        "drives": {
            str(n): seconds([Worker(f"drive-{i}", load, rates["drive"], overlap=False) for i in range(n)])
            for n in paper.DRIVES
        },
    }


def two_processes(space: Run) -> dict[str, Any]:
    """Join in this process with two threads, and by two processes with a thread and a path each, in turns."""
    joins = Joins(space)
    crew = [Worker(f"process-{i}", 1.0, 1.0, path=joins.path(f"process-{i}")) for i in range(2)]
    first = joins.run(crew)
    runs: dict[str, list[dict[str, Any]]] = {"one": [], "two": []}
    for _ in range(ROUNDS):
        runs["one"].append({"wall_s": joins.run([]).seconds})
        runs["two"].append(_facts(joins.run(crew)))
    wall = {name: median(run["wall_s"] for run in made) for name, made in runs.items()}
    return {
        "queries": len(joins.queries),
        "batches": BATCHES,
        "nprobe": NPROBE,
        "wall_s": wall,
        "worker_s": median(max(run["worker_s"]) for run in runs["two"]),
        "copied_bytes": first.copied_bytes,
        "with_copies_s": first.seconds,
        "same": joins.same,
        "runs": runs,
    }


def on_ray(space: Run) -> dict[str, Any]:
    """Join on one core without Ray, and on two Ray nodes of a core and a path each, in turns."""
    joins = Joins(space)
    platform = joins.folder / "platform.toml"
    platform.parent.mkdir(parents=True, exist_ok=True)
    platform.write_text(
        "".join(
            f'[[worker]]\nname = "node-{i}"\nload_mb_s = 1\ncompare_m_s = 1\npath = "{joins.path(f"copies-{i}")}"\n'
            for i in range(2)
        )
    )
    words = ("join", space.sets["sift1m"].query, joins.index)
    shared = {"k": K, "nprobe": NPROBE, "out": joins.out, "memory": "2GiB", "workers": 1, "json": True}

    def measured(command: list[str]) -> dict[str, Any]:
        began = time.perf_counter()
        found = told(command)
        joins.seen()
        return {"wall_s": time.perf_counter() - began} | {
            name: found[name] for name in ("seconds", "copied_bytes", "workers") if name in found
        }

    one = indexmill(*words, **shared)
    runs: dict[str, list[dict[str, Any]]] = {"one": [], "ray": []}
    with cluster(2, joins.folder, NODE_MEMORY) as made:
        both = indexmill(*words, **shared, executor="ray", ray_address=made.address, platform=platform)
        first = measured(made.joining(pinned(2, both)))
        for _ in range(ROUNDS):
            runs["one"].append(measured(pinned(1, one)))
            runs["ray"].append(measured(made.joining(pinned(2, both))))
    return {
        "queries": len(joins.queries),
        "batches": BATCHES,
        "nprobe": NPROBE,
        "nodes": 2,
        "wall_s": {name: median(run["wall_s"] for run in got) for name, got in runs.items()},
        "seconds": {name: median(run["seconds"] for run in got) for name, got in runs.items()},
        "worker_s": median(max(one["seconds"] for one in run["workers"]) for run in runs["ray"]),
        "copied_bytes": first["copied_bytes"],
        "same": joins.same,
        "runs": runs,
    }
