"""How many tasks one machine runs side by side, and what a worker process costs: both decide what fits a budget."""

from __future__ import annotations

#: Most narrow tasks that run side by side on one machine: each may use an eighth of the budget.
MOST_NARROW = 8
#: Memory of a Ray worker process before any task: the interpreter with numba, Arrow and scikit-learn.
RAY_WORKER_BYTES = 200 << 20
