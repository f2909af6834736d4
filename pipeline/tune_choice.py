"""Which of what was tried is worth its price, and which one to take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.bootstrap import percentiles
from indexmill.pipeline.tune_curve import AtRecall
from indexmill.pipeline.tune_space import GraphCandidate

T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """What an index of all vectors costs: everything that does not hang on how fast a machine is.

    Attributes
    ----------
    reads : float
        Page reads a query at the target recall; infinite where it is not reached.
    memory_bytes : int
        That searches hold.
    index_bytes : int
    build_list_size, max_degree : int
        What the time of a build grows with.
    """

    reads: float
    memory_bytes: int
    index_bytes: int
    build_list_size: int
    max_degree: int

    @property
    def price(self) -> tuple[int, int, int, int]:
        """What is paid for few reads: memory counts most, then space, then the time of the build."""
        return self.memory_bytes, self.index_bytes, self.build_list_size, self.max_degree

    def beats(self, other: Cost) -> bool:
        """Whether this is no worse in anything, and better in something."""
        mine, theirs = (self.reads, *self.price), (other.reads, *other.price)
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def frontier(costs: Sequence[Cost]) -> list[int]:
    """Return the places of those costs that reach the recall and that no other one beats."""
    return [
        i
        for i, one in enumerate(costs)
        if np.isfinite(one.reads) and not any(other.beats(one) for other in costs)
    ]


def recommended(
    costs: Sequence[Cost], possible: Sequence[NDArray[np.float64]], max_reads: float | None
) -> int | None:
    """Return the place of the cost to take; None if none is within `max_reads`, or reaches the recall.

    The cheapest (`Cost.price`) of those with at most `max_reads` page reads; without that limit, of those whose reads
    noise does not tell from the fewest.

    Parameters
    ----------
    possible : sequence of float64 arrays, shape (draws,)
        Reads of each in the same draws.
    """
    able = [i for i, one in enumerate(costs) if np.isfinite(one.reads)]
    if max_reads is not None:
        alike = [i for i in able if costs[i].reads <= max_reads]
    elif able:
        best = min(able, key=lambda i: costs[i].reads)
        alike = [i for i in able if not _is_more(possible[i], possible[best])]
    else:
        alike = []
    return min(alike, key=lambda i: (costs[i].price, costs[i].reads), default=None)


def _is_more(draws: NDArray[np.float64], than: NDArray[np.float64]) -> bool:
    """Whether the 95% interval of the paired difference lies above zero."""
    with np.errstate(invalid="ignore"):
        low, _ = percentiles(draws - than)
    return low is not None and low > 0


def best_slacks(graphs: Sequence[GraphCandidate], found: Sequence[AtRecall]) -> list[GraphCandidate]:
    """Return for each degree the graph with the fewest reads."""
    return [
        min(group, key=lambda one: (one[1].reads, one[0]))[0]
        for group in _grouped(zip(graphs, found, strict=True), lambda one: one[0].max_degree)
    ]


def worthwhile_lists(graphs: Sequence[GraphCandidate], found: Sequence[AtRecall]) -> list[GraphCandidate]:
    """Return for each degree and slack the shortest build list, or a longer one whose fewer reads are no noise."""
    chosen = []
    for group in _grouped(zip(graphs, found, strict=True), lambda one: (one[0].max_degree, one[0].alpha)):
        kept = group[0]
        for one in group[1:]:
            if _is_more(kept[1].draws, one[1].draws):
                kept = one
        chosen.append(kept[0])
    return chosen


def fewest(graphs: Sequence[GraphCandidate], found: Sequence[AtRecall], count: int) -> list[GraphCandidate]:
    """Return the `count` graphs with the fewest reads, in the order of `graphs`."""
    order = sorted(range(len(graphs)), key=lambda i: (found[i].reads, graphs[i]))
    return [graphs[i] for i in sorted(order[:count])]


def _grouped(items: Iterable[T], key: Callable[[T], object]) -> list[list[T]]:
    groups: dict[object, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())
