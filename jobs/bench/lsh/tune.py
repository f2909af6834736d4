"""The cheapest setting of a method that reaches an overall ratio on the first half of the queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from indexmill.jobs.bench.common.curves import summaries

#: The overall ratio at which methods are compared, and the numbers of neighbours.
TARGET = 1.05
KS = (1, 100)
#: A bisection ends when its ends are this near.
_NEAR = 1.02
#: Factor by which a number grows until it is enough.
_STEP = 4

Row: TypeAlias = dict[str, Any]


def least(
    ask: Callable[[int], Row], low: int, high: int, target: float = TARGET
) -> tuple[int | None, list[Row]]:
    """Return the least number in low .. high with which the ratio is at most `target`, and the rows that were tried.

    The ratio falls with the number, apart from noise. The number is found to 2%; None if even `high` is not enough.
    """
    return least_that(lambda row: bool(row["ratio"] <= target), ask, low, high)


def least_that(
    good: Callable[[Row], bool], ask: Callable[[int], Row], low: int, high: int
) -> tuple[int | None, list[Row]]:
    """Return the least number in low .. high, to 2%, whose row is `good`, as the rows of all larger ones are.

    It is approached from below, since larger numbers take longer.
    """
    tried = [ask(low)]
    if good(tried[-1]):
        return low, summaries(tried)
    above = low
    while not good(tried[-1]):
        if above == high:
            return None, summaries(tried)
        low, above = above, min(above * _STEP, high)
        tried.append(ask(above))
    while above > low + 1 and above > low * _NEAR:
        middle = min(max(round((low * above) ** 0.5), low + 1), above - 1)
        tried.append(ask(middle))
        low, above = (low, middle) if good(tried[-1]) else (middle, above)
    return above, summaries(tried)


def first_of(
    ask: Callable[[float], Row], values: Sequence[float], most_us: float = math.inf
) -> tuple[float | None, list[Row]]:
    """Return the first of `values`, from cheap to dear, with which the ratio is at most `TARGET`; None if none is.

    None is tried after one with which a query takes more than `most_us`.
    """
    tried = []
    for value in values:
        tried.append(ask(value))
        if tried[-1]["ratio"] <= TARGET:
            return value, summaries(tried)
        if tried[-1]["us"] > most_us:
            break
    return None, summaries(tried)


def tune_candidates(
    ask: Callable[[dict[str, Any], int], Row], n: int, k: int, most: int | None = None, **search: Any
) -> dict[str, Any]:
    """Return S, or None, and the trail of the search for it; other options of the search are fixed.

    Parameters
    ----------
    most : int, optional
        Of S; by default an eighth of the vectors.
    """

    def tried(candidates: int) -> Row:
        return ask({"candidates": candidates, **search}, k)

    value, rows = least(tried, k, most or max(k + 1, n // 8))
    return {"candidates": value, "tuning_rows": rows}
