"""Rates of a graph's kernels, as a trial of a machine might tell them."""

from __future__ import annotations

from typing import Any

from indexmill.pipeline.kinds.graph.seconds import Rates
from indexmill.pipeline.kinds.graph.seconds_insertion import Insertions

INSERTIONS = Insertions(vertices=8192, seconds=1e-4, distances=1500.0, more=90.0)


def graph_rates(threads: int, **others: Any) -> Rates:
    """Return rates of a machine, which do not change with what else it does."""
    return Rates(
        threads=float(threads), insertions=INSERTIONS, scattered=5e-8, gathered=4e-8, encoding=1e-6, centroids=0.1,
        ordering=1e-8, certifying=1e-6, reading=1e-7, writing=1e-9, **{"partition": None, **others},
    )  # fmt: skip
