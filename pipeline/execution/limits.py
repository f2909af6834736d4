"""Limits of executors that decide what fits a budget: tasks side by side, and memory of a worker process."""

from __future__ import annotations

#: Most narrow tasks that run side by side on one machine: each may use an eighth of the budget.
MOST_NARROW = 8
#: Memory of a Ray worker process before any task: the interpreter with numba and Arrow.
RAY_WORKER_BYTES = 200 << 20
