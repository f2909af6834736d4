"""Sums by number, of few numbers: a small hash table that is cleared by what was added.

Loops take the arrays of a `Tally` apart before they begin: numba counts references when it takes one from a tuple.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel

_EMPTY = np.uint32(0xFFFFFFFF)
#: Knuth's multiplier: the upper bits of the product depend on all bits of the number.
_MULTIPLIER = np.uint64(2654435761)


class Tally(NamedTuple):
    """A table.

    Attributes
    ----------
    numbers : uint32 array, shape (2^k,)
    sums : int32 array, shape (2^k,)
    places : int32 array, shape (2^(k - 1),)
        Where numbers stand, in the order in which they were added first.
    """

    numbers: NDArray[np.uint32]
    sums: NDArray[np.int32]
    places: NDArray[np.int32]


@kernel
def new_tally(most: int) -> Any:  # pragma: no cover - compiled
    """Return an empty table for at least `most` numbers."""
    size = 16
    while size < 2 * most:
        size *= 2
    return Tally(np.full(size, _EMPTY, np.uint32), np.empty(size, np.int32), np.empty(size // 2, np.int32))


@kernel(inline="always")
def add(
    numbers: Any, sums: Any, places: Any, n: Any, number: Any, amount: Any
) -> Any:  # pragma: no cover - compiled
    """Add to the sum of `number`, where `n` numbers have one; return how many have one now.

    A number that finds no room is left out.
    """
    mask = numbers.size - 1
    at = np.int64(np.uint64(number) * _MULTIPLIER >> np.uint64(16)) & mask
    while numbers[at] != number and numbers[at] != _EMPTY:
        at = (at + 1) & mask
    if numbers[at] == number:
        sums[at] += amount
    elif n < places.size:
        numbers[at], sums[at], places[n] = number, amount, at
        n += 1
    return n


@kernel
def clear(tally: Any, n: int) -> None:  # pragma: no cover - compiled
    """Remove all `n` numbers."""
    numbers, places = tally.numbers, tally.places
    for i in range(n):
        numbers[places[i]] = _EMPTY
