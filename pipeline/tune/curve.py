"""Quality and cost of searches by list size, query by query, and the cost interpolated to a wanted quality."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.bootstrap import Interval, crossing, draws, percentiles


@dataclass(frozen=True)
class Curve:
    """Searches of one index.

    Attributes
    ----------
    sizes : int64 array, shape (s,)
        List sizes, ascending: L of a graph, S of hash tables.
    recalls, pages : float32 array, shape (q, s)
        Of each query: share of the k nearest that were found, and pages read. Of hash tables the quality that is
        wanted, see `Target.quality`, and the work.
    """

    sizes: NDArray[np.int64]
    recalls: NDArray[np.float32]
    pages: NDArray[np.float32]

    def half(self, *, reporting: bool) -> Curve:
        """Return the curve of the second half of the queries, which report, or of the first one, which tunes."""
        middle = len(self.recalls) // 2
        half = slice(middle, None) if reporting else slice(middle)
        return Curve(self.sizes, self.recalls[half], self.pages[half])


@dataclass(frozen=True)
class AtRecall:
    """Cost of a recall.

    Attributes
    ----------
    reads, list_size : float
        Page reads a query and L, linear in recall between two list sizes; infinite where the recall is not reached.
    recall : float
        The target; or the recall of the shortest list if that is higher, or the highest recall if that is lower.
    draws : float64 array, shape (DRAWS,)
        Page reads in each draw of the bootstrap.
    """

    reads: float
    list_size: float
    recall: float
    draws: NDArray[np.float64]

    @property
    def reached(self) -> bool:
        """Whether the target was reached."""
        return bool(np.isfinite(self.reads))

    def interval(self) -> Interval:
        """95% interval of the page reads, over queries."""
        return percentiles(self.draws)


def worse_half(quality: NDArray[np.float32]) -> np.float32:
    """Return the mean of the half of the queries, (q,), whose mean is lower."""
    half = len(quality) // 2
    return np.float32(min(quality[:half].mean(), quality[half:].mean()))


def list_sizes(k: int, most: int, step: float) -> list[int]:
    """Return list sizes from `k` to `most`, each about `step` times the one before."""
    sizes = [k]
    while sizes[-1] < most:
        sizes.append(min(most, max(sizes[-1] + 1, round(sizes[-1] * step))))
    return sizes


def at_recall(curve: Curve, target: float) -> AtRecall:
    """Return the cost of `target`, over all queries of `curve`."""
    recalls, pages = curve.recalls.mean(axis=0, dtype=np.float64), curve.pages.mean(axis=0, dtype=np.float64)
    drawn = np.concatenate(
        [_crossing(w @ curve.recalls, w @ curve.pages, target) for w in draws(len(curve.recalls))]
    )
    sizes = curve.sizes.astype(np.float64)
    return AtRecall(
        reads=float(_crossing(recalls[None], pages[None], target)[0]),
        list_size=float(_crossing(recalls[None], sizes[None], target)[0]),
        recall=float(np.clip(target, recalls[0], max(recalls[0], recalls.max()))),
        draws=drawn,
    )


def _crossing(recalls: NDArray[Any], costs: NDArray[Any], target: float) -> NDArray[np.float64]:
    """Costs where recall crosses `target`: of the shortest list if that is above it, infinite if no list is."""
    values = crossing(recalls, costs, target)
    return np.where(np.isneginf(values), costs[:, 0], values)


def recall_with(curve: Curve, list_size: float) -> NDArray[np.float64]:
    """Return each query's recall with lists of `list_size`, linear between two sizes that were searched with."""
    after = int(np.clip(np.searchsorted(curve.sizes, list_size), 1, max(1, len(curve.sizes) - 1)))
    if len(curve.sizes) == 1:
        return curve.recalls[:, 0].astype(np.float64)
    low, high = curve.sizes[after - 1], curve.sizes[after]
    share = float(np.clip((list_size - low) / (high - low), 0, 1))
    wide = curve.recalls.astype(np.float64)
    return (1 - share) * wide[:, after - 1] + share * wide[:, after]
