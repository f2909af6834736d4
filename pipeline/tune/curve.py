"""Recall and page reads of an index by list size, query by query, and interpolated to a wanted recall."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.bootstrap import Interval, crossing, draws, percentiles
from indexmill.pipeline.kinds.common.judge import Judge

if TYPE_CHECKING:
    from indexmill.pipeline.tune.sample import Level
    from indexmill.reader.index import Index

#: Each list is so many times as long as the one before, and the longest has so many candidates.
_STEP, MOST_CANDIDATES = 1.25, 512
#: Curves go on until the quality is better than the target by this share of what is missing to the best: draws of the
#: bootstrap cross the target on both sides of where the mean does.
_BEYOND = 0.25


@dataclass(frozen=True)
class Curve:
    """Searches of one index.

    Attributes
    ----------
    sizes : int64 array, shape (s,)
        List sizes, ascending.
    recalls, pages : float32 array, shape (q, s)
        Of each query: share of the k nearest that were found, and pages read.
    """

    sizes: NDArray[np.int64]
    recalls: NDArray[np.float32]
    pages: NDArray[np.float32]

    def tuning_half(self) -> Curve:
        """The first half of the queries."""
        return self.part(slice(None, len(self.recalls) // 2))

    def reporting_half(self) -> Curve:
        """The second half of the queries."""
        return self.part(slice(len(self.recalls) // 2, None))

    def part(self, queries: slice) -> Curve:
        """Return the curve of some of the queries."""
        return Curve(self.sizes, self.recalls[queries], self.pages[queries])


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


def measure_curve(index: Index, level: Level, target: float, threads: int) -> Curve:
    """Search with longer and longer lists until recall@k is well above `target`, or lists are as long as they get."""
    queries = level.queries
    judge = Judge(level.points, queries, threads)
    sizes: list[int] = []
    recalls: list[NDArray[np.float32]] = []
    pages: list[NDArray[np.float32]] = []
    enough = beyond(target)
    for size in list_sizes(queries.k, min(MOST_CANDIDATES, level.size), _STEP):
        result = index.search(queries.vectors, queries.k, L=size, threads=threads, deterministic=True)
        hits = np.minimum(judge.hits(result.vector_ids).sum(axis=1), queries.k)
        sizes.append(size)
        recalls.append((hits / queries.k).astype(np.float32))
        pages.append(result.counters["pages_read"].astype(np.float32))
        if worse_half(recalls[-1]) >= enough:
            break
    return Curve(np.array(sizes), np.column_stack(recalls), np.column_stack(pages))


def beyond(target: float, best: float = 1.0) -> float:
    """Return a quality somewhat better than `target`, at which curves end."""
    return target + _BEYOND * (best - target)


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
