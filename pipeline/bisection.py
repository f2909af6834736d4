"""Bisection over whole numbers."""

from __future__ import annotations

from collections.abc import Callable


def least(works: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least number that works, of those above `low` and up to `high`.

    Parameters
    ----------
    works : callable
        Is taken to be false up to some number and true from there on. `low`, which does not work, and `high`, which
        works, are not tried.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high


def greatest(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Return the greatest number that fits, from `low`, which does, up to but not including `high`, which does not."""
    return least(lambda number: not fits(number), low, high) - 1
