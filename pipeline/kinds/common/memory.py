"""Memory that every kind of index counts alike: tasks, record batches, external sorts and shared stages.

Memory means anonymous memory of all our processes on one machine. Files read through the page cache do not count: the
system takes those pages back when it needs them. Each figure is the sum of the arrays that a stage holds at its worst
moment, read off its code and measured; tests hold whole builds against the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from indexmill.builders.lists.coded import coded_bytes
from indexmill.builders.lists.exact import BLOCK_BYTES
from indexmill.builders.lists.scan import MARGIN
from indexmill.formats.errors import BudgetError
from indexmill.pipeline.bisection import least
from indexmill.pipeline.execution.limits import MOST_NARROW, RAY_WORKER_BYTES
from indexmill.pipeline.mill.external_sort import READ_MESSAGE_BYTES, SORT_BYTES

#: Kept out of shards and tasks: the interpreter with numba and Arrow, and a reserve.
FIXED_BYTES = 256 << 20
#: Work space of BLAS in each thread after the first; of kernels, in each.
THREAD_BYTES = 8 << 20
#: The interpreter with numba and Arrow; the kernels of a build, compiled before, that a process has
#: from some stage on (`Size.before_kernels`).
LOADED_BYTES, KERNEL_BYTES = 72 << 20, 24 << 20
_LEAST_TASK, _MOST_TASK = 8 << 20, 4 << 30
#: Record batches of a chunk file: small ones cost messages, large ones buffers of the external sort.
_LEAST_BATCH, _MOST_BATCH = 4 << 10, 1 << 20
#: Most buffers of an external sort.
MOST_SORT_BUFFERS = 128 << 20
#: Least number of tasks of a stage, where there are enough vectors: workers finish together.
_LEAST_TASKS, LEAST_ROWS = 8, 32_768
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
    tasks = max(-(-n * row_bytes // task_bytes(memory)), min(_LEAST_TASKS, n // LEAST_ROWS), 1)
    return sorted({*(n * t // tasks // align * align for t in range(tasks)), n})


def narrow_tasks(n: int, row_bytes: int, memory: int) -> tuple[int, int]:
    """Return the rows of a narrow task, and how many tasks there are."""
    tasks = len(task_bounds(n, row_bytes, memory)) - 1
    return -(-n // tasks), tasks


def lanes(workers: int, tasks: int) -> int:
    """Return how many of `tasks` narrow tasks run side by side where memory sets no lower limit."""
    return min(workers, tasks, MOST_NARROW)


class Narrow(NamedTuple):
    """A stage of narrow tasks, as many of which run side by side as fit.

    Attributes
    ----------
    tasks : int
    bytes : int
        Most memory of a task, beside the work space of its thread.
    expected : int, optional
        About the memory of its largest task, where that is foreseen to stay below `bytes`.
    """

    tasks: int
    bytes: int
    expected: int | None = None

    def fitting(self, memory: int, workers: int, processes: int) -> int:
        """Return the number of tasks that fit at once beside the work space of all threads: at least one.

        Parameters
        ----------
        processes : int
            Bytes that worker processes take without vectors.
        """
        return max((memory - FIXED_BYTES - processes - workers * THREAD_BYTES) // self.bytes, 1)

    def lanes(self, memory: int, workers: int, processes: int) -> int:
        """Return how many of the tasks run side by side; parameters are as of `fitting`."""
        return min(lanes(workers, self.tasks), self.fitting(memory, workers, processes))

    def peak(self, memory: int, workers: int, processes: int, *, expected: bool = False) -> int:
        """Return the memory of the tasks that run side by side: the most, or the `expected` one."""
        task = self.bytes if not expected or self.expected is None else self.expected
        return self.lanes(memory, workers, processes) * task


def sort_buffer_bytes(memory: int) -> int:
    """Return the buffers of one external sort under a budget; larger ones read no faster."""
    return min(task_bytes(memory), MOST_SORT_BUFFERS)


def batch_bytes(chunks: int, payload_bytes: int, memory: int) -> int:
    """Return the size of record batches such that half of `sort_buffer_bytes` sorts `chunks` files.

    An external sort holds a batch of each file and three more, each with a generous message, and `SORT_BYTES` a record
    (`pipeline.mill.external_sort`).
    """
    record = 8 + payload_bytes
    most = sort_buffer_bytes(memory) // 2 - (chunks + 3) * 4 * READ_MESSAGE_BYTES
    return int(np.clip(most * record // ((record + SORT_BYTES) * (chunks + 4)), _LEAST_BATCH, _MOST_BATCH))


def ingest_bytes(n: int, dim: int, metric: str, id_bytes: float) -> int:
    """Return the memory of ingest: batches of 8 MiB as they come, and under cosine one of unit length; ids."""
    batches = {"l2": 2, "ip": 3, "cosine": 3}[metric]
    norms = 28 * n if metric == "ip" else 0
    batch = min(8 << 20, 4 * n * dim)
    return batches * batch + norms + ids_bytes(n, id_bytes) + (64 << 20) * (id_bytes > 0)


def ids_bytes(n: int, id_bytes: float) -> int:
    """Return the memory of ids while duplicates are looked for, and while they are put in another order."""
    return int(n * (_ID_COPIES * id_bytes + _ID_BYTES)) if id_bytes else 0


def exact_bytes(n: int, dim: int, queries: int, k: int, workers: int) -> int:
    """Return the memory of a brute-force search: a block of float32 rows and their codes, candidates and products."""
    coded = coded_bytes(dim)
    block = 2 * min(BLOCK_BYTES, n * 4 * dim) + min(coded.group, n * (dim + 64)) + queries * coded.query
    a_worker = max(2 << 20, coded.thread) + 24 * queries * (k + MARGIN + 1)
    return block + workers * a_worker + (workers - 1) * THREAD_BYTES


def workers_bytes(executor: str, workers: int) -> int:
    """Return the memory of worker processes without vectors."""
    return workers * RAY_WORKER_BYTES if executor == "ray" else 0


def check_need(what: str, need: int, memory: int, hint: str = "") -> None:
    """Refuse work that holds `need` bytes and has `memory`.

    Parameters
    ----------
    what : str
        What holds them, with its verb.
    hint : str
        Further advice, beginning with ", or".

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    if need > memory:
        raise BudgetError(
            f"memory: {what} {need:,} bytes beside the page cache, and the budget is {memory:,}; give at least "
            f"{need:,} bytes with --memory{hint}"
        )


def check_stages(
    stages: Mapping[str, int], memory: int, executor: str, workers: int, content: str,
    advice: Callable[[str], str], cut: Callable[[int], Mapping[str, int] | None],
) -> Mapping[str, int]:  # fmt: skip
    """Return `stages`, the memory of each stage; raise BudgetError unless every stage fits a budget of `memory` bytes.

    Parameters
    ----------
    content : str
        What is built, in words.
    advice : callable
        Returns what to change for the stage that needs most, ending with "or ", or nothing.
    cut : callable
        Returns the memory of each stage of the build cut for another budget; None where it cannot be cut so small.

    Raises
    ------
    BudgetError
        Naming the stage that needs most, what to lower, and the smallest budget that works.
    """
    worst = max(stages, key=lambda stage: stages[stage])
    need = stages[worst] + FIXED_BYTES + workers_bytes(executor, workers)
    if need > memory:
        least = least_budget(cut, executor, workers)
        raise BudgetError(
            f"memory: stage {worst} needs {need:,} bytes for {content}, the budget is {memory:,}; {advice(worst)}give "
            f"at least {least:,} bytes"
        )
    return stages


def least_budget(cut: Callable[[int], Mapping[str, int] | None], executor: str, workers: int) -> int:
    """Return the smallest budget, in whole MiB, that holds a build; `cut` is as of `check_stages`."""
    fixed = FIXED_BYTES + workers_bytes(executor, workers)

    def holds(budget: int) -> bool:
        stages = cut(budget * _MIB)
        return stages is not None and max(stages.values()) + fixed <= budget * _MIB

    low, high = FIXED_BYTES // _MIB, 2 * FIXED_BYTES // _MIB
    while not holds(high):
        low, high = high, 2 * high
    return least(holds, low, high) * _MIB
