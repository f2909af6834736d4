"""Part *beyond*: batches read once, against the same lists through a mapped file, beyond memory.

Every side is a process of its own in a control group. It starts and warms up without a limit; then the group may hold
what the process holds, and page cache for a quarter of the lists beside it. The files are dropped from the page cache
before each run, and queries come in the order given.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from indexmill.formats.chunks.tally import forget
from indexmill.jobs.bench.common.cgroup import Group, NoLimits, memory_limit
from indexmill.jobs.bench.common.dataset import Dataset, sync_files
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
_ROUNDS, _FREE_BYTES = 2, 16 << 30
#: Bytes that a process may need beside those that it held when the limit was set, such as stacks of threads.
_SLACK_BYTES = 24 << 20


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
    drop_cache(index if index.is_dir() else index.parent)
    drop_cache(data.folder)
    what, advice = SIDES[side]
    command = module(sys.executable, "join.beyond_child", what, data.folder, index, nprobe, k, advice)
    with memory_limit(_FREE_BYTES) as group:
        child = subprocess.Popen(
            group.wrap(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert child.stdin is not None
        assert child.stdout is not None
        held = int(child.stdout.readline() or 0)
        if not held:
            raise RuntimeError(f"{side}: exit code {child.wait()} before it was ready")
        limit = _set_limit(group, held + cache_bytes + _SLACK_BYTES)
        print("go", file=child.stdin)
        out = child.stdout.read()
        if child.wait():
            raise RuntimeError(f"{side}: exit code {child.returncode}, {limit.pressure()}")
        return {**json.loads(out), "held_bytes": held, "limit_bytes": limit.limit_bytes}


def _set_limit(group: Group, limit_bytes: int) -> Group:
    """Lower a group's limit to where its page cache is what is wanted; what is cached beyond that is dropped."""
    lower = replace(group, limit_bytes=limit_bytes)
    try:
        lower.set_limit()
    except OSError as error:
        raise NoLimits(f"{group.folder}: the limit cannot be lowered to {limit_bytes}: {error}") from None
    return lower


def drop_cache(folder: Path) -> None:
    """Drop the files of a folder from the page cache."""
    sync_files(folder)
    for path in folder.iterdir():
        if path.is_file():
            forget(path)
