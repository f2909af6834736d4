"""Parts *data*, *oneshot*, *budget* and *limit*: builds in a stated memory beside those that are given enough."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from indexmill.jobs.bench.common import cgroup, difficulty
from indexmill.jobs.bench.common.dataset import K, read_bin
from indexmill.jobs.bench.common.intervals import mean_of
from indexmill.jobs.bench.mill.space import BUDGETS, Mill
from indexmill.jobs.bench.programs.job import AMPLE, Job, build, count_right

#: Most shards that a vector is in, for the bound of scratch: fanout x input + 2 x output.
FANOUT = 2
#: Bytes that the kernel's limit leaves for page cache above a budget, which counts none.
ALLOWANCE = 256 << 20


def data(mill: Mill) -> dict[str, Any]:
    """Measure how hard both sets are, with held-out queries and with rows of their own."""
    found: dict[str, Any] = {}
    for name, one in mill.sets.items():
        base = read_bin(one.base)
        found[name] = {
            "held_out": asdict(difficulty.measure(base, read_bin(one.query))),
            "left_out": asdict(difficulty.measure(base)),
        }
    sift1m, generated = (found[name]["held_out"] for name in ("sift1m", "generated"))
    ratios = {figure: generated[figure] / sift1m[figure] for figure in ("lid", "contrast")}
    return {"sets": found, "ratio": ratios}


def oneshot(mill: Mill) -> dict[str, Any]:
    """Build each set in one piece."""
    found = {}
    for name, one in mill.sets.items():
        job = mill.job(name, "oneshot", memory=AMPLE)
        made = build(job, mill.out)
        found[name] = made | {"recall": mean_of(count_right(job.index(mill.out), one) / K)}
    return {"sets": found}


def budget(mill: Mill) -> dict[str, Any]:
    """Build each set within its budget; recall beside the build in one piece, query by query."""
    mill.run.earlier("oneshot")
    found = {}
    for name, one in mill.sets.items():
        job = _job(mill, name)
        made = build(job, mill.out)
        right = count_right(job.index(mill.out), one)
        whole = count_right(mill.job(name, "oneshot").index(mill.out), one)
        found[name] = made | {
            "budget_bytes": _budget_bytes(name),
            "to_budget": made["peak_bytes"] / _budget_bytes(name),
            "to_scratch_bound": made["scratch_bytes"] / scratch_bound(made),
            "recall": mean_of(right / K),
            "points_lost": mean_of(100 * (whole - right) / K),
        }
    return {"sets": found, "fanout": FANOUT}


def limit(mill: Mill) -> dict[str, Any]:
    """Build each set again where the kernel allows no more than the budget and `ALLOWANCE`."""
    found: dict[str, Any] = {}
    for name in mill.sets:
        try:
            found[name] = _limited(mill, name)
        except cgroup.NoLimits as reason:
            return {"allowance_bytes": ALLOWANCE, "sets": {}, "reason": str(reason)}
    return {"allowance_bytes": ALLOWANCE, "sets": found, "reason": None}


def _limited(mill: Mill, name: str) -> dict[str, Any]:
    job = _job(mill, name, kind="limited")
    with cgroup.memory_limit(_budget_bytes(name) + ALLOWANCE) as group:
        try:
            made, failure = build(job, mill.out, group), None
        except RuntimeError as error:
            made, failure = {}, str(error)
        pressure = group.pressure()
    same = None
    if made:
        same = made["build_id"] == mill.run.earlier("budget")["sets"][name]["build_id"]
    return made | {
        "limit_bytes": pressure.limit_bytes,
        "charged_bytes": pressure.peak_bytes,
        "limit_hits": pressure.limit_hits,
        "oom_kills": pressure.oom_kills,
        "completed": float(not failure),
        "failure": failure,
        "same_bytes": same,
    }


def scratch_bound(made: dict[str, Any]) -> int:
    """Return the bytes of scratch that a build may need."""
    return int(FANOUT * made["input_bytes"] + 2 * made["output_bytes"])


def _job(mill: Mill, name: str, kind: str = "budget") -> Job:
    return mill.job(name, kind, memory=BUDGETS[name])


def _budget_bytes(name: str) -> int:
    from indexmill.pipeline.spec import parse_size

    return int(parse_size(BUDGETS[name]))
