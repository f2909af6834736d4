"""Where tasks run. A task is a module-level function from named files to named files.

Which executor runs it, and how many workers it has, never reaches the bytes it writes.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

from threadpoolctl import threadpool_limits

from indexmill.formats.errors import BudgetError, ConfigError

Task = Callable[..., Any]
_PR_SET_PDEATHSIG = 1


class Executor(Protocol):
    """Runs tasks; results come back in the order of the tasks."""

    workers: int

    def map(self, task: Task, arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield ``task(*a)`` for each of `arguments`, in order, many at a time, one thread each."""

    def call(self, task: Task, *arguments: Any, advance: Callable[[int], None] | None = None) -> Any:
        """Return ``task(*arguments, threads=workers)``, run with all threads.

        With `advance`, a task that reports its steps gets it as a keyword where it runs in this process.
        """

    def close(self) -> None:
        """Let workers go."""


def run_single_threaded(task: Task, *arguments: Any) -> Any:
    """Run `task` with BLAS and OpenMP on one thread: their reductions must not depend on the machine's cores."""
    with threadpool_limits(1):
        return task(*arguments)


def write_file(task: Task, arguments: tuple[Any, ...], target: str, **threads: int) -> None:
    """Run a task that writes the file named by its last argument, so that `target` is whole or missing."""
    partial = f"{target}.{os.getpid()}.partial"
    task(*arguments, partial, **threads)
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, target)


def _die_with_parent() -> None:
    """Make this worker end when the build is killed, so that it never writes beside the build that follows."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:  # the parent was gone before
            os.kill(os.getpid(), signal.SIGKILL)


class LocalExecutor:
    """Processes of this machine; a single task runs in this process, on threads."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def map(self, task: Task, arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """See `Executor.map`.

        Raises
        ------
        BudgetError
            If a worker process dies, which on Linux usually means that memory ran out.
        """
        if self.workers == 1 or len(arguments) == 1:
            for a in arguments:
                yield run_single_threaded(task, *a)
            return
        if self._pool is None:
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.workers, spawn, initializer=_die_with_parent)
        try:
            futures = [self._pool.submit(run_single_threaded, task, *a) for a in arguments]
            for future in futures:
                yield future.result()
        except BrokenProcessPool:
            raise BudgetError(
                f"{task.__name__}: a worker process died, probably for lack of memory: lower --memory or --workers "
                "and run again, finished stages are kept; in a script of your own, call build under "
                "if __name__ == '__main__'"
            ) from None

    def call(self, task: Task, *arguments: Any, advance: Callable[[int], None] | None = None) -> Any:
        """See `Executor.call`."""
        report = {} if advance is None else {"advance": advance}
        with threadpool_limits(1):
            return task(*arguments, threads=self.workers, **report)

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def make_executor(name: str, workers: int) -> Executor:
    """Return the executor called `name`, ``"local"`` or ``"ray"``.

    Raises
    ------
    ConfigError
        If `name` is unknown, or Ray is not installed.
    """
    if name == "local":
        return LocalExecutor(workers)
    if name == "ray":
        from indexmill.pipeline.executor_ray import RayExecutor

        return RayExecutor(workers)
    raise ConfigError(f"executor: {name!r} is unknown; choose local or ray")
