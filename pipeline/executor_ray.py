"""Tasks on Ray: the only file that imports it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from indexmill.formats.errors import BudgetError, ConfigError, IndexmillError
from indexmill.pipeline.executor import Task, run_single_threaded

#: Tasks sent ahead for each worker: enough to hide scheduling, few enough to bound what a driver holds.
_AHEAD = 2


class RayExecutor:
    """Tasks on a Ray cluster: the one ``RAY_ADDRESS`` names, else one started here with `workers` CPUs.

    The work directory must be one that every node sees under the same path.
    """

    def __init__(self, workers: int) -> None:
        try:
            import ray
        except ImportError:
            raise ConfigError(
                "executor: ray is not installed; run pip install 'indexmill[ray]' or use --executor local"
            ) from None
        self.workers = workers
        self._ray = ray
        self._started = not ray.is_initialized()
        if self._started:
            own: dict[str, Any] = (
                {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers, "include_dashboard": False}
            )
            ray.init(logging_level=logging.ERROR, log_to_driver=False, **own)

    def map(self, task: Task, arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """See `Executor.map`."""
        remote = self._ray.remote(run_single_threaded).options(num_cpus=1)
        waiting: list[Any] = []
        for a in arguments:
            waiting.append(remote.remote(task, *a))
            if len(waiting) >= _AHEAD * self.workers:
                yield self._get(waiting.pop(0))
        for reference in waiting:
            yield self._get(reference)

    def call(self, task: Task, *arguments: Any, advance: Callable[[int], None] | None = None) -> Any:
        """See `Executor.call`; steps inside a remote task are not reported."""
        nodes: list[dict[str, Any]] = self._ray.nodes()  # type: ignore[no-untyped-call]
        most = max(int(node["Resources"].get("CPU", 0)) for node in nodes)
        threads = max(1, min(self.workers, most))  # one task runs on one node
        remote = self._ray.remote(_run_with_threads).options(num_cpus=threads)
        return self._get(remote.remote(task, arguments, threads))

    def close(self) -> None:
        """Stop the cluster if it was started here."""
        if self._started:
            self._ray.shutdown()

    def _get(self, reference: Any) -> Any:
        """Return a result, raising a task's own error rather than Ray's wrapping of it."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, IndexmillError):
                raise error.cause from None
            raise
        except (self._ray.exceptions.WorkerCrashedError, self._ray.exceptions.OutOfMemoryError) as error:
            raise BudgetError(
                f"a Ray worker died, probably for lack of memory: lower --memory and run again, "
                f"finished stages are kept ({error})"
            ) from None


def _run_with_threads(task: Task, arguments: tuple[Any, ...], threads: int) -> Any:
    return run_single_threaded(partial(task, threads=threads), *arguments)
