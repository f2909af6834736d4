"""Tasks on Ray: the only file that imports it."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from threadpoolctl import threadpool_limits

from indexmill.formats.errors import BudgetError, ConfigError, IndexmillError
from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.execution.arguments import KEEP, replaced
from indexmill.pipeline.execution.balance import Node
from indexmill.pipeline.execution.capacity import capacity
from indexmill.pipeline.execution.dispatch import Dispatch
from indexmill.pipeline.execution.limits import RAY_WORKER_BYTES

try:
    import ray
    from ray import exceptions as ray_errors
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError:
    raise ConfigError(
        "executor: ray is not installed; run pip install 'indexmill[ray]' or use --executor local"
    ) from None

Task = Callable[..., Any]

#: Seconds between looks at the members of the cluster, and how long a cluster without a usable node is waited for.
_REFRESH_SECONDS = 2.0
_NO_NODE_SECONDS = 60.0
_IDLE_SECONDS = 0.1
_KNOCK_SECONDS = 5.0
#: Seconds that cancelled tasks get to end.
_CANCEL_SECONDS = 10.0
#: For shared values, which are centroids and codebooks; results are small. Ray takes no less than 75 MiB.
_OBJECT_STORE_BYTES = 100 << 20
#: Time for which a worker without a task is kept: longer than any stage with work for one alone. Ray's second would
#: have every stage of many tasks start workers anew, 0.7 s each.
_IDLE_WORKER_MS = 24 * 3600 * 1000
#: For libraries that a task is the first to load; those already loaded are limited at the start of each task.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_CRASHES = (ray_errors.WorkerCrashedError, ray_errors.OutOfMemoryError)
_NODE_LOSSES = (
    ray_errors.NodeDiedError,
    ray_errors.TaskUnschedulableError,
    ray_errors.LocalRayletDiedError,
    ray_errors.ObjectLostError,
)


class RayExecutor:
    """Tasks on a Ray cluster: the one at `address` or ``RAY_ADDRESS``, else one started here with `workers` CPUs.

    Files must be ones that every node sees under the same path, or go through `indexmill.pipeline.urls.storage`.
    Ray starts, or is joined, when the first task or shared value comes.

    Parameters
    ----------
    workers : int
        Threads used on each node: that many narrow tasks, or one wide task, at a time.
    address : str, optional
        ``host:port`` or ``auto``.
    memory : int, optional
        Bytes that tasks may use on each node.
    warm_up : callable, optional
        Called without arguments in every worker of a cluster that is started here, as soon as it runs: a module-level
        function whose module imports what tasks need.

    Raises
    ------
    ConfigError
        From the first use, if the cluster cannot be reached, or the process was connected to another one before.
    """

    process_bytes = RAY_WORKER_BYTES
    #: Clusters that this process has been connected to.
    _clusters: ClassVar[set[str]] = set()

    def __init__(
        self,
        workers: int,
        address: str | None = None,
        memory: int | None = None,
        warm_up: Callable[[], None] | None = None,
    ) -> None:
        self.workers = workers
        self.memory = memory
        self._warm_up = warm_up or _nothing
        self._address = address or os.environ.get("RAY_ADDRESS")
        self._connected = False

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
        """See `Executor.map`; steps inside a remote task are not reported.

        Raises
        ------
        BudgetError
            If no node has `memory`, or a task dies again and again.
        ConfigError
            If no node of the cluster has a CPU, or none offers the resource `at`.
        """
        self._start()
        if at is not None and not any(at in resources for resources in self.offers().values()):
            example = f"ray start --resources='{{\"{at}\": 1}}'"
            raise ConfigError(f"ray: no node offers the resource {at!r}; start one of its own with {example}")
        stage = _Stage(self, task, arguments, wide, memory, at_once, at)
        try:
            yield from stage.results()
        finally:
            stage.cancel()

    def call(
        self, task: Task, *arguments: Any, advance: Callable[[int], None] | None = None, memory: int = 0
    ) -> Any:
        """See `Executor.call`; steps inside a remote task are not reported."""
        (result,) = self.map(task, [arguments], wide=True, memory=memory)
        return result

    def share(self, value: Any) -> Any:
        """Put `value` into the object store once; tasks get it read-only wherever the reference stands in arguments."""
        self._start()
        return ray.put(value)

    def offers(self) -> dict[str, dict[str, float]]:
        """Return the resources of each node that is there, by its id."""
        self._start()
        return {m["NodeID"]: m["Resources"] for m in ray.nodes() if m["Alive"]}  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Stop the cluster if it was started here, leave it otherwise."""
        if self._connected:
            self._connected = False
            ray.shutdown()

    def _start(self) -> None:
        if ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options: dict[str, Any] = {"address": self._address}
        if self._address is None:
            options = {
                "address": "local",  # not a cluster of another user of this machine
                "num_cpus": self.workers,
                "include_dashboard": False,
                "object_store_memory": _OBJECT_STORE_BYTES,
                "_memory": self.memory,
                "_system_config": {"idle_worker_killing_time_threshold_ms": _IDLE_WORKER_MS},
            }
        try:
            _knock(self._address)
            with _sigterm_kept():
                ray.init(logging_level=logging.ERROR, log_to_driver=False, **options)
        except (OSError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"ray_address: {self._address or 'a local cluster'} cannot be used ({error}); expected a running "
                "cluster of this Ray and Python version; see ray status"
            ) from error
        self._connected = True
        self._clusters.add(ray.get_runtime_context().gcs_address)
        if self._address is not None and len(self._clusters) > 1:
            # Ray keeps the token of the first cluster: nodes of another get no shared value from this process.
            self.close()
            raise ConfigError(
                f"ray_address: {self._address} cannot be used by a process that used another Ray cluster before; "
                "start a new process"
            )
        if self._address is None:
            for _ in range(
                self.workers
            ):  # now, all at once: a stage would start one only when it needs one more
                _remote_run.options(num_cpus=1, max_retries=0).remote(_work(self._warm_up, ()), None)


class _Stage:
    """One `map`: sends its tasks to nodes, and again where they die."""

    def __init__(
        self, executor: RayExecutor, task: Task, arguments: Sequence[tuple[Any, ...]], wide: bool, memory: int,
        at_once: int | None, at: str | None,
    ) -> None:  # fmt: skip
        self.executor = executor
        self.task = task
        self.arguments = arguments
        self.wide = wide
        self.memory = memory
        self.at_once = at_once
        self.at = at
        self.dispatch = Dispatch(task.__name__, len(arguments))
        self.threads: dict[str, int] = {}
        self.flights: dict[Any, int] = {}
        self.looked = -math.inf
        self.seen = time.monotonic()
        self.remotes: dict[str, Any] = {}

    def results(self) -> Iterator[Any]:
        """Yield in order; no more tasks are in flight than nodes have lanes."""
        done = self.dispatch.done
        for index in range(len(self.arguments)):
            while index not in done:
                self._refresh()
                self._submit()
                self._collect()
            yield done.pop(index)

    def cancel(self) -> None:
        """End what is in flight; its processes are killed, and gone a moment after this returns."""
        flights = list(self.flights)
        self.flights.clear()
        if not flights or not ray.is_initialized():  # a call to Ray after its end would start another cluster
            return
        for reference in flights:
            ray.cancel(reference, force=True)
        ray.wait(flights, num_returns=len(flights), timeout=_CANCEL_SECONDS)

    def _refresh(self) -> None:
        """Follow nodes that came and went."""
        now = time.monotonic()
        if now - self.looked < _REFRESH_SECONDS:
            return
        self.looked = now
        usable = {}
        largest = 0
        for node, resources in self.executor.offers().items():
            if self.at is not None and self.at not in resources:
                continue
            offer = capacity(resources, self.executor.workers, self.executor.memory, self.wide, self.memory)
            largest = max(largest, offer.memory)
            if offer.lanes:
                self.threads[node] = offer.threads
                usable[node] = Node(min(offer.lanes, self.at_once or offer.lanes), offer.speed)
        self.dispatch.follow(usable)
        if usable or self.flights:
            self.seen = now
        elif self.memory > largest > 0:
            raise BudgetError(
                f"{self.task.__name__}: one task needs {self.memory:,} bytes and no node offers more than "
                f"{largest:,}; raise --memory or add a larger node"
            )
        elif now - self.seen > _NO_NODE_SECONDS:
            offering = "" if self.at is None else f" that offers the resource {self.at!r}"
            raise ConfigError(
                f"ray: no node with a CPU{offering} for {_NO_NODE_SECONDS:.0f} s; see ray status, then run again: "
                "finished stages are kept"
            )

    def _submit(self) -> None:
        """Send what should start now."""
        for index, node in self.dispatch.start(time.monotonic()):
            threads = self.threads[node]
            packed, references = _pack(self.arguments[index])
            if node not in self.remotes:
                self.remotes[node] = self._remote(node, threads)
            work = _work(self.task, packed)
            reference = self.remotes[node].remote(work, threads if self.wide else None, *references)
            self.flights[reference] = index

    def _remote(self, node: str, threads: int) -> Any:
        """Return the function that runs a task on `node` and nowhere else: `Dispatch` decides about another try."""
        memory = {"memory": self.memory} if self.memory else {}
        affinity = NodeAffinitySchedulingStrategy(node, soft=False)
        return _remote_run.options(
            name=self.task.__name__, num_cpus=threads, max_retries=0, scheduling_strategy=affinity, **memory
        )

    def _collect(self) -> None:
        """Wait for a task to end, and take its result or have it run again."""
        if not self.flights:
            time.sleep(_IDLE_SECONDS)
            return
        ready, _ = ray.wait(list(self.flights), num_returns=1, timeout=_REFRESH_SECONDS)
        for reference in ready:
            index = self.flights.pop(reference)
            try:
                seconds, result = ray.get(reference)
            except ray_errors.RayTaskError as error:
                if isinstance(error.cause, (IndexmillError, OSError)):  # a full disk has its errno again
                    raise error.cause from None
                if isinstance(error.cause, _NODE_LOSSES):  # a shared value was on its way
                    self._lost(index, error.cause)
                elif isinstance(error.cause, MemoryError):
                    self.dispatch.died(index, error)
                else:
                    raise
            except _CRASHES as error:
                self.dispatch.died(index, error)
            except _NODE_LOSSES as error:
                self._lost(index, error)
            else:
                self.dispatch.finished(index, seconds, result)

    def _lost(self, index: int, error: Exception) -> None:
        self.dispatch.lost(index, error)
        self.looked = -math.inf


@contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Put back the handler of SIGTERM that Ray replaces with one that exits with code 15."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        # only the main thread may set one; None is a handler that was not set from Python
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _knock(address: str | None) -> None:
    """Raise OSError at once if nothing answers at ``host:port``; Ray itself would wait for minutes."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), _KNOCK_SECONDS).close()


class _Shared(NamedTuple):
    """Stands for a reference inside arguments: Ray resolves only those at the top."""

    position: int


def _pack(arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Any]]:
    """Return `arguments` with each reference in them replaced by its place in a list, and the list."""
    references: list[Any] = []

    def replace(part: Any) -> Any:
        if not isinstance(part, ray.ObjectRef):
            return KEEP
        references.append(part)
        return _Shared(len(references) - 1)

    return replaced(arguments, replace), references


def _work(task: Task, packed: tuple[Any, ...]) -> bytes:
    """Return a task and its packed arguments as `_run` takes them."""
    pickled: bytes = ray.cloudpickle.dumps((task, packed))  # type: ignore[no-untyped-call]
    return pickled


def _run(work: bytes, threads: int | None, *shared: Any) -> tuple[float, Any]:
    """Run one task in a worker; return its seconds, without the wait for the node, and its result.

    Parameters
    ----------
    work : bytes
        The pickled task and its arguments. They are unpickled here and not by Ray, so that an error of ours from the
        import of their modules arrives as itself.
    """
    hold_little()
    for variable in _THREAD_VARIABLES:
        os.environ[variable] = "1"
    if "numba" in sys.modules:
        sys.modules["numba"].set_num_threads(1)
    else:
        os.environ["NUMBA_NUM_THREADS"] = "1"
    task, packed = ray.cloudpickle.loads(work)
    wide = {} if threads is None else {"threads": threads}
    begun = time.perf_counter()
    with threadpool_limits(1):
        result = task(
            *replaced(packed, lambda p: shared[p.position] if isinstance(p, _Shared) else KEEP), **wide
        )
    return time.perf_counter() - begun, result


def _nothing() -> None:
    """Start a worker, and no more."""


_remote_run = ray.remote(_run)
