"""The bootstrap of costs at equal recall, one draw and one curve at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.jobs.compare.costs import cost_at_recall
from indexmill.jobs.compare.measure import Measurement


def slow_ratio_interval(
    base: Sequence[Measurement], other: Sequence[Measurement], target: float, weights: NDArray[Any]
) -> tuple[float, float]:
    """95% interval of the ratio of page reads at recall `target`, over draws of queries, shape (draws, n_queries)."""
    ratios = []
    for draw in np.round(weights * weights.shape[1]).astype(int):
        queries = np.repeat(np.arange(len(draw)), draw)
        values = []
        for curve in (base, other):
            rows = [
                {"recall": m.recalls[queries].mean(), "pages_read": m.counter("pages_read")[queries].mean()}
                for m in curve
            ]
            values.append(cost_at_recall(rows, "pages_read", target).value)
        assert values[0] is not None
        assert values[1] is not None
        ratios.append(values[1] / values[0])
    ratios.sort()
    beyond = len(ratios) // 40
    return ratios[beyond], ratios[-1 - beyond]
