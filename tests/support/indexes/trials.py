"""Curves in place of the small indexes by which formats are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from indexmill.pipeline.kinds.common.judge import Cost
from indexmill.pipeline.kinds.graph.parameters import Parameters


class TrialCurves:
    """Stand-in for `TrialIndexes`: recall and page reads of each list, the shortest first, by an index's parameters."""

    def __init__(self, curve_of: Callable[[Parameters], Sequence[tuple[float, float]]]) -> None:
        self._curve_of = curve_of

    def cost(self, p: Parameters, recall: float) -> Cost:
        """Return page reads where the curve crosses `recall`, or at the end that is nearest to it."""
        recalls, pages = np.array(self._curve_of(p)).T
        at = float(np.clip(recall, recalls[0], recalls[-1]))
        return Cost(np.interp([at], recalls, pages), at, 0.0, at >= recall)

    def highest_recall(self, p: Parameters) -> float:
        """Return the recall of the longest list."""
        return self._curve_of(p)[-1][0]

    @contextmanager
    def opened(self, *_: Any) -> Iterator[Self]:
        """Stand in for `trial_indexes`."""
        yield self
