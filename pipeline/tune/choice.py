"""The settings worth their price among those tried, and the one to take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.bootstrap import TAIL
from indexmill.pipeline.tune.growth import Outlook
from indexmill.pipeline.tune.space import GraphCandidate

T = TypeVar("T")


class Priced(Protocol):
    """Costs of an index of all vectors."""

    @property
    def reads(self) -> float:
        """Cost of a search that has the quality that is wanted; infinite where it is not reached."""

    @property
    def price(self) -> tuple[int, ...]:
        """The price of few reads, what counts most first."""


@dataclass(frozen=True)
class Cost:
    """Costs of a graph of all vectors that do not depend on the speed of a machine.

    Attributes
    ----------
    reads : float
        Page reads a query at the target recall; infinite where it is not reached.
    memory_bytes : int
        Memory of searches.
    index_bytes : int
    build_list_size, max_degree : int
        The time of a build grows with them.
    """

    reads: float
    memory_bytes: int
    index_bytes: int
    build_list_size: int
    max_degree: int

    @property
    def price(self) -> tuple[int, int, int, int]:
        """The price of few reads: memory counts most, then space, then the time of the build."""
        return self.memory_bytes, self.index_bytes, self.build_list_size, self.max_degree


def frontier(costs: Sequence[Priced]) -> list[int]:
    """Return the places of those costs that reach the quality and that no other one beats."""
    return [
        i
        for i, one in enumerate(costs)
        if np.isfinite(one.reads) and not any(_beats(other, one) for other in costs)
    ]


def _beats(one: Priced, other: Priced) -> bool:
    """Whether `one` is no worse in anything, and better in something."""
    own, others = (one.reads, *one.price), (other.reads, *other.price)
    return own != others and all(a <= b for a, b in zip(own, others, strict=True))


def recommended(costs: Sequence[Priced], found: Sequence[Outlook], max_reads: float | None) -> int | None:
    """Return the place of the cost to take; None if none is within `max_reads`, or reaches the quality.

    The cheapest (`Priced.price`) of those with at most `max_reads` page reads; without that limit, of those whose reads
    noise does not tell from the fewest.

    Parameters
    ----------
    found : sequence of Outlook
        Of each, in the same draws.
    """
    able = [i for i, one in enumerate(costs) if np.isfinite(one.reads)]
    if max_reads is not None:
        alike = [i for i in able if costs[i].reads <= max_reads]
    elif able:
        best = min(able, key=lambda i: costs[i].reads)
        alike = [i for i in able if not _is_more(found[i].draws, found[best].draws)]
    else:
        alike = []
    return min(alike, key=lambda i: (costs[i].price, costs[i].reads), default=None)


def _is_more(draws: NDArray[np.float64], than: NDArray[np.float64]) -> bool:
    """Whether the 95% interval of the paired difference lies above zero; infinite reads are more than any others.

    A draw in which both are infinite tells nothing, and counts as if there were fewer.
    """
    with np.errstate(invalid="ignore"):
        apart = draws - than
    low = np.sort(np.where(np.isnan(apart), -np.inf, apart))[int(TAIL * len(apart))]
    return bool(low > 0)


def fewest_of_each_degree(
    graphs: Sequence[GraphCandidate], found: Sequence[Outlook], count: int
) -> list[GraphCandidate]:
    """Return for each degree the `count` graphs with the fewest reads, those first."""
    chosen = []
    for group in _grouped(zip(graphs, found, strict=True), lambda one: one[0].max_degree):
        chosen += [graph for graph, _ in sorted(group, key=lambda one: (one[1].reads, one[0]))[:count]]
    return chosen


def worthwhile_lists(graphs: Sequence[GraphCandidate], found: Sequence[Outlook]) -> list[GraphCandidate]:
    """Return for each degree the shortest build list, or a longer one whose fewer reads are no noise."""
    chosen = []
    for group in _grouped(zip(graphs, found, strict=True), lambda one: one[0].max_degree):
        kept = group[0]
        for one in group[1:]:
            if _is_more(kept[1].draws, one[1].draws):
                kept = one
        chosen.append(kept[0])
    return chosen


def kept_graphs(
    graphs: Sequence[GraphCandidate], found: Sequence[Outlook], count: int, max_reads: float | None
) -> list[GraphCandidate]:
    """Return `count` graphs, in the order of `graphs`: that with the fewest reads, and others with few.

    Where reads are limited, the smallest degrees within the limit come before them: what is wanted is a small index.
    """
    order = sorted(range(len(graphs)), key=lambda i: (found[i].reads, graphs[i]))
    within = [] if max_reads is None else [i for i in order if found[i].reads <= max_reads]
    ranked = [order[0], *sorted(within, key=lambda i: graphs[i]), *order]
    return [graphs[i] for i in sorted(list(dict.fromkeys(ranked))[:count])]


def _grouped(items: Iterable[T], key: Callable[[T], object]) -> list[list[T]]:
    groups: dict[object, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())
