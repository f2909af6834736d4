"""The children's side of `session`; needs numpy only, so both sides' environments share it."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.dataset import K


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
        perhaps ``pages_read``, ``hops``, ``latency_us`` and ``call_us``.
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
