"""Recall curves: a cost at the recall that is compared, and the list sizes worth measuring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

#: Recall@10 at which costs are compared.
RECALL = 0.95
#: Recall on the tuning queries between which the reported list sizes lie.
RECALL_LOW, RECALL_HIGH = 0.92, 0.975
#: List sizes of a first sweep: steps of about 1.4, above K so that a smaller one can warm up before them.
COARSE_SIZES = (11, 14, 20, 28, 40, 56, 80, 112, 160)
#: List sizes of a reported sweep.
FINE_SIZES = 8

Rows = Sequence[Mapping[str, Any]]


def value_at(rows: Rows, name: str, recall: float = RECALL) -> float | None:
    """Interpolate `name` linearly between the two rows, next by L, around `recall`; None without them."""
    ordered = sorted(rows, key=lambda row: row["L"])
    for low, high in pairwise(ordered):
        if low["recall"] <= recall <= high["recall"]:
            span = high["recall"] - low["recall"]
            part = (recall - low["recall"]) / span if span else 0.0
            return float(low[name] + part * (high[name] - low[name]))
    return None


def sizes_around(rows: Rows) -> list[int]:
    """List sizes that lead from `RECALL_LOW` to `RECALL_HIGH` by a first sweep, or to its ends."""
    smallest, largest = min(row["L"] for row in rows), max(row["L"] for row in rows)
    low, high = value_at(rows, "L", RECALL_LOW), value_at(rows, "L", RECALL_HIGH)
    first = smallest if low is None else int(low)
    last = largest if high is None else int(np.ceil(high))
    return sorted({int(size) for size in np.linspace(first, last, FINE_SIZES).round()})


def ratio(a: float | None, b: float | None) -> float | None:
    """Return a / b; None if either could not be measured."""
    return None if a is None or not b else a / b
