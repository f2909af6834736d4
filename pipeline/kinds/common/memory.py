"""Memory that every kind of index counts alike: tasks, record batches, merges and shared stages within a budget.

Memory means anonymous memory of all our processes on one machine. Files read through the page cache do not count: the
system takes those pages back when it needs them. Each figure is the sum of the arrays that a stage holds at its worst
moment, read off its code and measured; tests hold whole builds against the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from indexmill.builders.lists.exact import BLOCK_BYTES
from indexmill.builders.lists.scan import MARGIN
from indexmill.pipeline.bisection import least
from indexmill.pipeline.execution.limits import MOST_NARROW, RAY_WORKER_BYTES
from indexmill.pipeline.mill.external_sort import MESSAGE_BYTES, SORT_BYTES

#: Kept out of shards and tasks: the interpreter with numba, Arrow and scikit-learn, and what compiling kernels takes
#: the first time a build runs on a machine.
FIXED_BYTES = 256 << 20
#: Work space of BLAS in each thread after the first; of kernels, in each.
THREAD_BYTES = 8 << 20
#: The interpreter with numba, Arrow and scikit-learn; the kernels of a build, compiled before, that a process has
#: from its graph on.
LOADED_BYTES, KERNEL_BYTES = 120 << 20, 24 << 20
_BEFORE_KERNELS = ("ingest", "sample", "cluster", "assign", "carve", "regions")
_LEAST_TASK, _MOST_TASK = 8 << 20, 4 << 30
#: Record batches of a chunk file: small ones cost messages, large ones buffers of the merge.
_LEAST_BATCH, _MOST_BATCH = 4 << 10, 1 << 20
#: Most buffers of a merge.
_MOST_MERGE = 128 << 20
#: Least number of tasks of a stage, where there are enough vectors: workers finish together.
_LEAST_TASKS, _LEAST_ROWS = 8, 32_768
#: Copies of an id, and bytes beside them, while duplicates are looked for and while ids are put in slot order.
_ID_COPIES, _ID_BYTES = 4.5, 40
_MIB = 1 << 20


def task_bytes(memory: int) -> int:
    """Return the memory of one narrow task under a budget; workers, which must not decide bytes, do not count."""
    return int(np.clip((memory - FIXED_BYTES) // MOST_NARROW, _LEAST_TASK, _MOST_TASK))


def task_bounds(n: int, row_bytes: int, memory: int, align: int = 1) -> list[int]:
    """Return the bounds of tasks over `n` rows, each of which takes `row_bytes` in its task.

    All but the last bound are multiples of `align`, for tasks whose results depend on where blocks of rows begin.
    """
    tasks = max(-(-n * row_bytes // task_bytes(memory)), min(_LEAST_TASKS, n // _LEAST_ROWS), 1)
    return sorted({*(n * t // tasks // align * align for t in range(tasks)), n})


def narrow_tasks(n: int, row_bytes: int, memory: int) -> tuple[int, int]:
    """Return the rows of a narrow task, and how many tasks there are."""
    tasks = len(task_bounds(n, row_bytes, memory)) - 1
    return -(-n // tasks), tasks


class Narrow(NamedTuple):
    """A stage of narrow tasks, as many of which run side by side as fit.

    Attributes
    ----------
    tasks : int
    bytes : int
        Most memory of a task, beside the work space of its thread.
    """

    tasks: int
    bytes: int

    def fitting(self, memory: int, workers: int, processes: int) -> int:
        """Return how many tasks fit at once beside the work space of all threads: at least one.

        Parameters
        ----------
        processes : int
            Bytes that worker processes take without vectors.
        """
        return max((memory - FIXED_BYTES - processes - workers * THREAD_BYTES) // self.bytes, 1)

    def peak(self, memory: int, workers: int, processes: int) -> int:
        """Return the memory of the tasks that run at once."""
        return min(workers, self.tasks, MOST_NARROW, self.fitting(memory, workers, processes)) * self.bytes


def merge_bytes(memory: int) -> int:
    """Return the buffers of one merge under a budget; larger ones read no faster."""
    return min(task_bytes(memory), _MOST_MERGE)


def batch_bytes(chunks: int, payload_bytes: int, memory: int) -> int:
    """Return the size of record batches such that half of `merge_bytes` merges `chunks` files.

    A merge holds a batch of each file and three more, each with a generous message, and `SORT_BYTES` a record
    (`pipeline.mill.external_sort`).
    """
    record = 8 + payload_bytes
    most = merge_bytes(memory) // 2 - (chunks + 3) * 4 * MESSAGE_BYTES
    return int(np.clip(most * record // ((record + SORT_BYTES) * (chunks + 4)), _LEAST_BATCH, _MOST_BATCH))


def ingest_bytes(n: int, dim: int, metric: str, id_bytes: float) -> int:
    """Return the memory of ingest: batches of 8 MiB as they come, and under cosine twice in float64; ids."""
    batches = {"l2": 2, "ip": 3, "cosine": 6}[metric]
    norms = 28 * n if metric == "ip" else 0
    batch = min(8 << 20, 4 * n * dim)
    return batches * batch + norms + ids_bytes(n, id_bytes) + (64 << 20) * (id_bytes > 0)


def ids_bytes(n: int, id_bytes: float) -> int:
    """Return the memory of ids while duplicates are looked for, and while they are put in another order."""
    return int(n * (_ID_COPIES * id_bytes + _ID_BYTES)) if id_bytes else 0


def exact_bytes(n: int, dim: int, queries: int, k: int, workers: int) -> int:
    """Return the memory of a brute-force search: a block of float32 rows, candidates and products."""
    block = 2 * min(BLOCK_BYTES, n * 4 * dim)
    return block + workers * ((2 << 20) + 24 * queries * (k + MARGIN + 1)) + (workers - 1) * THREAD_BYTES


def workers_bytes(executor: str, workers: int) -> int:
    """Return the memory of worker processes without vectors."""
    return workers * RAY_WORKER_BYTES if executor == "ray" else 0


def peak_bytes(stages: Mapping[str, int], executor: str, workers: int) -> dict[str, int]:
    """Return the memory of all processes during each stage, from the memory of the stages alone."""
    loaded = LOADED_BYTES + workers_bytes(executor, workers)
    return {name: loaded + own + KERNEL_BYTES * (name not in _BEFORE_KERNELS) for name, own in stages.items()}


def worst_stage(stages: Mapping[str, int], executor: str, workers: int) -> tuple[str, int]:
    """Return the stage that needs the largest budget, and that budget, with memory for compiling kernels."""
    name = max(stages, key=lambda stage: stages[stage])
    return name, stages[name] + FIXED_BYTES + workers_bytes(executor, workers)


def least_budget(needed: Callable[[int], int | None]) -> int:
    """Return the smallest budget, in whole MiB, that holds a build.

    Parameters
    ----------
    needed : callable
        Returns the budget that a build cut for a budget needs; None where it cannot be cut so small.
    """

    def holds(budget: int) -> bool:
        need = needed(budget * _MIB)
        return need is not None and need <= budget * _MIB

    low, high = FIXED_BYTES // _MIB, 2 * FIXED_BYTES // _MIB
    while not holds(high):
        low, high = high, 2 * high
    return least(holds, low, high) * _MIB
