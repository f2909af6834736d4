"""Part *beyond*: batches read once, against the same lists through a mapped file, beyond memory.

Every side is a process of its own in a control group. It starts and warms up without a limit; then the group may hold
what the process holds, and page cache for a quarter of the lists beside it. The files are dropped from the page cache
before each run, and queries come in the order given.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import Any

from indexmill.jobs.bench.common.cgroup import run_lowered
from indexmill.jobs.bench.common.dataset import Dataset
from indexmill.jobs.bench.common.disk import drop_cache
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.process import module

#: Lists that are searched, and the kernel's advice for their mapping: by default it reads ahead at a fault as far as
#: the device is set to, which may be megabytes.
SIDES = {
    "bss": ("bss", "default"),
    "mapped": ("mapped", "default"),
    "mapped-random": ("mapped", "random"),
    "faiss-ondisk": ("faiss-ondisk", "default"),
    "faiss-ondisk-random": ("faiss-ondisk", "random"),
}
#: Share of the lists that the page cache may hold.
CACHE_SHARE = 0.25
_ROUNDS = 2


def measure(data: Dataset, whole: Path, batches: Path, ondisk: Path, nprobe: int, k: int) -> dict[str, Any]:
    """Return queries a second of every side, in turns, and how the join compares with the better of both advices.

    Parameters
    ----------
    whole, batches : Path
        The index in one batch, which is mapped, and in many, of which two fit the limit.
    ondisk : Path
        faiss's index.
    """
    indexes = {"bss": batches, "mapped": whole, "faiss-ondisk": ondisk}
    lists = _list_bytes(whole)
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for _ in range(_ROUNDS):
        for side in SIDES:
            index = indexes[SIDES[side][0]]
            runs[side].append(_run(side, data, index, nprobe, k, int(CACHE_SHARE * lists)))
    qps = {side: median(one["queries"] / one["seconds"] for one in found) for side, found in runs.items()}
    return {
        "nprobe": nprobe,
        "list_bytes": lists,
        "cache_bytes": int(CACHE_SHARE * lists),
        "threads": THREADS,
        "runs": runs,
        "qps": qps,
        "bss_to_mapped": qps["bss"] / max(qps["mapped"], qps["mapped-random"]),
        "bss_to_ondisk": qps["bss"] / max(qps["faiss-ondisk"], qps["faiss-ondisk-random"]),
    }


def _list_bytes(index: Path) -> int:
    return sum(path.stat().st_size for path in index.glob("batch-*.imx"))


def _run(side: str, data: Dataset, index: Path, nprobe: int, k: int, cache_bytes: int) -> dict[str, Any]:
    """Run one side once under its limit.

    Raises
    ------
    NoLimits
        If memory cannot be limited here.
    RuntimeError
        If it fails.
    """
    for folder in (index if index.is_dir() else index.parent, data.folder):
        drop_cache(folder)
    what, advice = SIDES[side]
    command = module(sys.executable, "join.beyond_child", what, data.folder, index, nprobe, k, advice)
    return run_lowered(command, cache_bytes)
