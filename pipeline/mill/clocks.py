"""Clocks for short trials: growing trials, the median of many, the fastest of a few."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np


class Tries:
    """Tries that grow, until the next would probably end after `deadline` (of `time.perf_counter`)."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._began, self._before = time.perf_counter(), math.inf

    def leave_time(self, growth: float) -> bool:
        """A try has ended: whether there is time for another, which takes at least `growth` times as long."""
        now = time.perf_counter()
        took = now - self._began
        expected = took * max(growth, min(took / self._before, 2 * growth))
        self._began, self._before = now, max(took, 1e-9)
        return now + expected <= self._deadline


class BatchClock:
    """Seconds of a vertex in each batch; the median of them is that of an undisturbed machine."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._seconds: list[float] = []

    def __call__(self, vertices: int) -> None:
        """Note that a batch of so many vertices has ended."""
        now = time.perf_counter()
        self._seconds.append((now - self._last) / vertices)
        self._last = now

    def median(self) -> float:
        """Return the median over the batches so far."""
        return float(np.median(self._seconds))


def fastest(run: Callable[[], Any], deadline: float, times: int = 3) -> float:
    """Return the seconds of the fastest of a few runs, for others use the machine too; after `deadline`, of one run."""
    seconds: list[float] = []
    while not seconds or (len(seconds) < times and time.perf_counter() < deadline):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
