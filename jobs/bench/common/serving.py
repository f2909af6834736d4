"""The children's side of `session`; needs numpy only, so both sides' environments share it."""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from indexmill.jobs.bench.common.dataset import K

#: Queries that are searched untimed before others are timed one by one: meanwhile other processes had the processor's
#: caches.
WARM_UPS = 5
#: Where the kernel tells the nanoseconds for which a thread ran, and those for which it waited for a processor.
_SCHEDULE = Path("/proc/thread-self/schedstat")


def serve(answer: Callable[[dict[str, Any]], Any]) -> None:
    """Answer a JSON line of standard input with one of standard output, until there are no more."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print would otherwise stand between the answers
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=replies, flush=True)


@dataclass
class Cost:
    """Seconds that a block took: by the clock, and of this process on all cores; of these, outside the kernel."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    user_s: float = 0.0


@contextmanager
def measured() -> Iterator[Cost]:
    """Measure a block's time and this process's user and system time in it (getrusage)."""
    cost = Cost()
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    yield cost
    cost.wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    cost.user_s = after.ru_utime - before.ru_utime
    cost.cpu_s = cost.user_s + after.ru_stime - before.ru_stime


def bytes_fetched() -> int:
    """Return the bytes that this process has fetched from storage so far (``read_bytes`` of proc(5), io)."""
    for line in Path("/proc/self/io").read_text().splitlines():
        name, value = line.split(": ")
        if name == "read_bytes":
            return int(value)
    raise RuntimeError("/proc/self/io: no line read_bytes")


def after_warm_ups(queries: Any, first: int, last: int) -> tuple[Any, Any]:
    """Return the `WARM_UPS` queries before `first`, those before query 0 being the last ones; and `first` to `last`."""
    asked = np.ascontiguousarray(queries[np.arange(first - WARM_UPS, last)])
    return asked[:WARM_UPS], asked[WARM_UPS:]


class Calls:
    """Calls of this thread that are timed one by one; as a context it keeps Python from collecting garbage.

    Attributes
    ----------
    call_us : list of float
        Microseconds of each.
    ready_us : list of float
        Those of them in which the thread could have run and had no processor; empty if the kernel does not tell.
    """

    def __init__(self) -> None:
        self.call_us: list[float] = []
        self.ready_us: list[float] = []

    def __enter__(self) -> Self:
        self._schedule = os.open(_SCHEDULE, os.O_RDONLY) if _SCHEDULE.exists() else None
        gc.disable()
        return self

    def __exit__(self, *error: object) -> None:
        gc.enable()
        if self._schedule is not None:
            os.close(self._schedule)

    def time(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call and return what that returns."""
        waited_ns, began = self._waited_ns(), time.perf_counter()
        found = call(*arguments, **options)
        self.call_us.append(1e6 * (time.perf_counter() - began))
        if waited_ns is not None:
            self.ready_us.append(((self._waited_ns() or 0) - waited_ns) / 1000)
        return found

    def columns(self) -> dict[str, Any]:
        """Return what is known of each call, for `make_row`."""
        known = {"call_us": self.call_us, "ready_us": self.ready_us}
        return {name: np.array(values) for name, values in known.items() if values}

    def _waited_ns(self) -> int | None:
        return None if self._schedule is None else int(os.pread(self._schedule, 64, 0).split()[1])


def make_row(size: int, cost: Cost, times: int, queries: dict[str, Any], **means: float) -> dict[str, Any]:
    """Put together what one search of all queries found and cost.

    Parameters
    ----------
    size : int
        L.
    cost : Cost
        Of `times` searches of all the queries.
    queries : dict of arrays, shape (n_queries,)
        What is known of each query: ``hits`` and ``hits1`` (right answers among the first K and the first one), and
        perhaps ``pages_read``, ``hops`` and times, which end in ``_us``.
    **means : float
        Other figures of a query.
    """
    n_queries = len(queries["hits"])
    searched = times * n_queries
    row: dict[str, Any] = {
        "L": size,
        "n_queries": n_queries,
        "recall": float(np.mean(queries["hits"])) / K,
        "recall1": float(np.mean(queries["hits1"])),
        "qps": searched / cost.wall_s,
        "cpu_us": 1e6 * cost.cpu_s / searched,
        "user_us": 1e6 * cost.user_s / searched,
        **means,
    }
    for name, values in queries.items():
        if name.endswith("_us"):
            row[f"{name}_mean"] = float(np.mean(values))
            row[f"{name}_p99"] = float(np.percentile(values, 99))
        elif not name.startswith("hits"):
            row[name] = float(np.mean(values))
    row["queries"] = {name: np.asarray(values).tolist() for name, values in queries.items()}
    return row
