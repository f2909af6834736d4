"""Executors: where tasks run. A task is a module-level function from named files to named files.

Which executor runs it, and how many workers it has, never reaches the bytes it writes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol

from threadpoolctl import threadpool_limits

from indexmill.formats.errors import BudgetError
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.execution.limits import MOST_NARROW

Task = Callable[..., Any]
#: Tasks submitted ahead for each worker: enough to keep it busy, few enough that results do not pile up.
AHEAD = 2


class Executor(Protocol):
    """Runs tasks; results come back in the order of the tasks."""

    workers: int
    #: Memory of a worker without vectors, if it is a process.
    process_bytes: int

    def map(
        self,
        task: Task,
        arguments: Sequence[tuple[Any, ...]],
        *,
        wide: bool = False,
        memory: int = 0,
        at_once: int | None = None,
        at: str | None = None,
        advance: Callable[[int], None] | None = None,
    ) -> Generator[Any, None, None]:
        """Yield ``task(*a)`` for each of `arguments`, in order.

        Parameters
        ----------
        wide : bool
            Whether a task uses all cores of a machine: it gets ``threads=``, and one runs at a time on each
            machine. Otherwise a task has one thread and as many run as there are workers.
        memory : int
            Bytes one task may use.
        at_once : int, optional
            Narrow tasks that fit a machine's memory beside each other, where that may be fewer than workers.
        at : str, optional
            Resource of Ray that a node must offer to run them; on one machine all tasks run here.
        advance : callable, optional
            Wide tasks that report their steps get it as a keyword where they run in this process.
        """

    def call(
        self, task: Task, *arguments: Any, advance: Callable[[int], None] | None = None, memory: int = 0
    ) -> Any:
        """Return the result of one wide task.

        With `advance`, a task that reports its steps gets it as a keyword where it runs in this process.
        """

    def share(self, value: Any) -> Any:
        """Return what to pass to tasks in place of `value`, so that it travels once to each machine."""

    def close(self) -> None:
        """Let workers go."""


def run_single_threaded(task: Task, *arguments: Any, **keywords: Any) -> Any:
    """Run `task` with BLAS and OpenMP on one thread: their reductions must not depend on the machine's cores."""
    with threadpool_limits(1):
        return task(*arguments, **keywords)


def write_file(task: Task, arguments: tuple[Any, ...], target: str, **threads: int) -> Any:
    """Run a task that writes the file named by its last argument, so that `target` is whole or missing."""
    partial = f"{target}.{os.getpid()}.partial"
    result = task(*arguments, partial, **threads)
    failpoint("task-written")
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, target)
    failpoint("task-done")
    return result


class LocalExecutor:
    """Threads of this process: kernels, sorts, matrix products and Arrow let go of the interpreter's lock.

    Worker processes would each hold numba and Arrow in memory, about 150 MiB, for no gain in speed.
    """

    process_bytes = 0

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._limits = threadpool_limits(1)

    def map(
        self,
        task: Task,
        arguments: Sequence[tuple[Any, ...]],
        *,
        wide: bool = False,
        memory: int = 0,
        at_once: int | None = None,
        at: str | None = None,
        advance: Callable[[int], None] | None = None,
    ) -> Generator[Any, None, None]:
        """See `Executor.map`.

        Raises
        ------
        BudgetError
            If memory runs out although only one task is running.
        """
        lanes = min(self.workers, MOST_NARROW, at_once or MOST_NARROW)
        if wide:
            for a in arguments:
                yield self.call(task, *a, advance=advance)
        elif lanes == 1 or len(arguments) == 1:
            for a in arguments:
                yield _alone(task, a)
        else:
            yield from self._map_threads(task, arguments, lanes)

    def _map_threads(self, task: Task, arguments: Sequence[tuple[Any, ...]], lanes: int) -> Iterator[Any]:
        waiting: deque[tuple[tuple[Any, ...], Future[Any]]] = deque()
        with ThreadPoolExecutor(lanes) as pool:
            try:
                for a in arguments:
                    waiting.append((a, pool.submit(task, *a)))
                    if len(waiting) >= AHEAD * lanes:
                        yield self._result(task, waiting)
                while waiting:
                    yield self._result(task, waiting)
            finally:
                for _, future in waiting:
                    future.cancel()

    @staticmethod
    def _result(task: Task, waiting: deque[tuple[tuple[Any, ...], Future[Any]]]) -> Any:
        """Return the first result; a task that ran out of memory beside others is run again when they are through."""
        arguments, future = waiting.popleft()
        try:
            return future.result()
        except MemoryError:
            wait([other for _, other in waiting])
            return _alone(task, arguments)

    def call(
        self, task: Task, *arguments: Any, advance: Callable[[int], None] | None = None, memory: int = 0
    ) -> Any:
        """See `Executor.call`."""
        report = {} if advance is None else {"advance": advance}
        return task(*arguments, threads=self.workers, **report)

    def share(self, value: Any) -> Any:
        """See `Executor.share`: nothing travels."""
        return value

    def close(self) -> None:
        """Give BLAS its threads back."""
        self._limits.restore_original_limits()


def _alone(task: Task, arguments: tuple[Any, ...]) -> Any:
    try:
        return task(*arguments)
    except MemoryError as error:
        raise BudgetError(
            f"{task.__name__}: the machine has no memory left ({error}): lower --memory, so that tasks are smaller, "
            "and run again; finished tasks are kept"
        ) from None
