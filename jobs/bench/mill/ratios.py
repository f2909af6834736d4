"""Parts *shards*, *workers* and *ray*: times of builds beside each other, in turns."""

from __future__ import annotations

from statistics import median
from typing import Any

from indexmill.jobs.bench.common.dataset import K, read_bin
from indexmill.jobs.bench.common.intervals import mean_of, over_rounds
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.mill.space import Mill
from indexmill.jobs.bench.programs.job import Job, build, count_right

#: Shards that builds are cut into where the budget does not ask for it, apart from the vectors that are in two.
SHARDS = 4
ROUNDS = 2
#: Vectors of the builds with one worker and two.
WORKER_ROWS = 500_000
#: Ray's runs are small, since each begins with a start-up, and more.
RAY_ROWS, RAY_ROUNDS = 200_000, 3
#: Vectors of a build that is almost nothing but start-up.
_FEW_ROWS = 2000


def shards(mill: Mill) -> dict[str, Any]:
    """Build sift1m in one piece and in shards."""
    n_vectors = mill.sets["sift1m"].shape()[0]
    limit = {"shard_vectors": -(-n_vectors // SHARDS)}
    jobs = {
        "oneshot": mill.job("sift1m", "whole"),
        "sharded": mill.job("sift1m", "sharded", parameters=limit),
    }
    found = _in_turns(mill, jobs, ROUNDS)
    data = mill.sets["sift1m"]
    whole, cut = (count_right(job.index(mill.out), data) for job in jobs.values())
    return {
        "shard_vectors": limit["shard_vectors"],
        **found,
        "ratio": _ratios(found, "sharded", "oneshot"),
        "points_lost": mean_of(100 * (whole - cut) / K),
    }


def workers(mill: Mill) -> dict[str, Any]:
    """Build a part of sift1m in shards with one worker and with two."""
    base = mill.first("sift1m", WORKER_ROWS)
    rows = len(read_bin(base))
    limit = {"shard_vectors": -(-rows // SHARDS)}
    jobs = {
        str(number): Job(f"workers-{number}", base, workers=number, parameters=limit)
        for number in (1, THREADS)
    }
    found = _in_turns(mill, jobs, ROUNDS)
    same = len({found[name][0]["build_id"] for name in jobs}) == 1
    return {"rows": rows, **found, "speedup": _ratios(found, "1", str(THREADS)), "same_bytes": same}


def ray(mill: Mill) -> dict[str, Any]:
    """Build a part of sift1m on Ray and locally; Ray's start-up is what a tiny build takes more."""
    jobs = {}
    for size, rows in (("few", _FEW_ROWS), ("many", RAY_ROWS)):
        base = mill.first("sift1m", rows)
        limit = {"shard_vectors": -(-len(read_bin(base)) // SHARDS)}
        for executor in ("local", "ray"):
            name = f"{size}-{executor}"
            jobs[name] = Job(f"executor-{name}", base, executor=executor, parameters=limit)
    found = _in_turns(mill, jobs, RAY_ROUNDS)
    startup = median(one["wall_s"] for one in found["few-ray"]) - median(
        one["wall_s"] for one in found["few-local"]
    )
    ratios = [
        (far["wall_s"] - startup) / near["wall_s"]
        for far, near in zip(found["many-ray"], found["many-local"], strict=True)
    ]
    same = len({one["build_id"] for name in ("many-ray", "many-local") for one in found[name]}) == 1
    return {
        "rows": min(RAY_ROWS, mill.sets["sift1m"].shape()[0]),
        **found,
        "startup_s": startup,
        "ratio": over_rounds(ratios),
        "same_bytes": same,
    }


def _in_turns(mill: Mill, jobs: dict[str, Job], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Build each job once a round."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            found[name].append(build(job, mill.out))
    return found


def _ratios(found: dict[str, list[dict[str, Any]]], a: str, b: str) -> Any:
    """Return the ratio of two jobs' times over the rounds."""
    return over_rounds([x["wall_s"] / y["wall_s"] for x, y in zip(found[a], found[b], strict=True)])
