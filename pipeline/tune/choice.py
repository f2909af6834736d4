"""The settings worth their price among those tried, the one to take, and those that go on to the next sample."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.bootstrap import TAIL
from indexmill.pipeline.tune.growth import Outlook


@dataclass(frozen=True)
class Cost:
    """Costs of an index of all vectors that do not depend on the speed of a machine.

    Attributes
    ----------
    reads : float
        Of a search that has the quality that is wanted, see `Outlook`; infinite where it is not reached.
    memory_bytes : int
        Memory of searches.
    index_bytes : int
    price : tuple of int
        The price of few reads, what counts most first.
    """

    reads: float
    memory_bytes: int
    index_bytes: int
    price: tuple[int, ...]


def frontier(costs: Sequence[Cost]) -> list[int]:
    """Return the places of those costs that reach the quality and that no other one beats."""
    return [
        i
        for i, one in enumerate(costs)
        if np.isfinite(one.reads) and not any(_beats(other, one) for other in costs)
    ]


def _beats(one: Cost, other: Cost) -> bool:
    """Whether `one` is no worse in anything, and better in something."""
    own, others = (one.reads, *one.price), (other.reads, *other.price)
    return own != others and all(a <= b for a, b in zip(own, others, strict=True))


def recommended(costs: Sequence[Cost], found: Sequence[Outlook], max_reads: float | None) -> int | None:
    """Return the place of the cost to take; None if none is within `max_reads`, or reaches the quality.

    The cheapest (`Cost.price`) of those with at most `max_reads` page reads; without that limit, of those whose reads
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
        alike = [i for i in able if not is_more(found[i].draws, found[best].draws)]
    else:
        alike = []
    return min(alike, key=lambda i: (costs[i].price, costs[i].reads), default=None)


def is_more(draws: NDArray[np.float64], than: NDArray[np.float64]) -> bool:
    """Whether the 95% interval of the paired difference lies above zero; infinite reads are more than any others.

    A draw in which both are infinite tells nothing, and counts as if there were fewer.
    """
    with np.errstate(invalid="ignore"):
        apart = draws - than
    low = np.sort(np.where(np.isnan(apart), -np.inf, apart))[int(TAIL * len(apart))]
    return bool(low > 0)


def kept(
    reads: Sequence[float],
    prices: Sequence[tuple[Any, ...]],
    count: int,
    max_reads: float | None,
    best: Collection[int] = (),
) -> list[int]:
    """Return the places of `count` settings, ascending: that with the fewest reads, and others with few.

    Where reads are limited, the cheapest within the limit come before them: what is wanted is a small index.

    Parameters
    ----------
    prices : sequence of tuple
        Of each, which also ranks equal reads.
    best : collection of int
        Places that come before others with as few reads.
    """
    order = sorted(range(len(reads)), key=lambda i: (reads[i], prices[i]))
    within = [] if max_reads is None else [i for i in order if reads[i] <= max_reads]
    ranked = [
        order[0], *sorted(within, key=lambda i: prices[i]), *(i for i in order if i in best), *order
    ]  # fmt: skip
    return sorted(list(dict.fromkeys(ranked))[:count])
