"""Resources that a node of a cluster offers to the tasks of one stage."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import NamedTuple

from indexmill.pipeline.execution.balance import combined_rate

#: Node resources that declare a speed, in percent of a usual node's (Ray takes whole numbers only): of
#: computing, and of reading the work folder. A node without them is a usual node.
RATE_RESOURCE = "indexmill_rate"
STORAGE_RESOURCE = "indexmill_storage"


def cores_here() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Capacity(NamedTuple):
    """See `capacity`; `lanes` is 0 where no task fits."""

    threads: int
    lanes: int
    memory: int
    speed: float


def capacity(
    resources: Mapping[str, float], workers: int, budget: int | None, wide: bool, task_bytes: int
) -> Capacity:
    """Return the threads of a task, how many tasks run at once, their bytes together, and the declared relative speed.

    Parameters
    ----------
    resources : mapping
        Ray's, of the node: ``CPU``, ``memory`` in bytes, and perhaps a speed.
    workers : int
        Threads used at most.
    budget : int or None
        Bytes that tasks may use, if fewer than the node has.
    wide : bool
        Whether a task takes all threads.
    task_bytes : int
        What one task may use; 0 if that is not known.
    """
    threads = min(workers, int(resources.get("CPU", 0)))
    memory = min(int(resources.get("memory", 0)), budget or sys.maxsize)
    lanes = min(threads, 1) if wide else threads
    if task_bytes:
        lanes = min(lanes, memory // task_bytes)
    return Capacity(threads if wide else min(threads, 1), lanes, memory, _declared(resources))


def _declared(resources: Mapping[str, float]) -> float:
    """Return the relative speed that a node declares, for a task that reads half of the time on a usual node.

    A node that declares only its speed of computing counts as equally fast in reading.
    """
    rate = resources.get(RATE_RESOURCE, 100.0) / 100
    return 2 * combined_rate(resources.get(STORAGE_RESOURCE, rate * 100) / 100, rate)
