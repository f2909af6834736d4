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
#: Places of the smallest table.
_LEAST = 64


class Tally(NamedTuple):
    """A table.

    Attributes
    ----------
    numbers : uint32 array, shape (2^k,)
    sums : int32 array, shape (2^k,)
    places : int32 array, shape (2^(k - 1) + 1,)
        Where numbers stand, in the order in which they were added first.
    """

    numbers: NDArray[np.uint32]
    sums: NDArray[np.int32]
    places: NDArray[np.int32]


@kernel
def new_tally(most: int) -> Any:  # pragma: no cover - compiled
    """Return an empty table for at least `most` numbers."""
    size = np.int64(mask_for(most)) + 1
    return Tally(
        np.full(size, _EMPTY, np.uint32), np.empty(size, np.int32), np.empty(size // 2 + 1, np.int32)
    )


@kernel
def mask_for(most: int) -> Any:  # pragma: no cover - compiled
    """Return the mask of the part of a table that is used for `most` numbers: few of them touch little memory."""
    size = _LEAST
    while size < 2 * most:
        size *= 2
    return np.uint64(size - 1)


@kernel(inline="always")
def add(
    numbers: Any, sums: Any, places: Any, mask: Any, n: Any, number: Any, amount: Any
) -> Any:  # pragma: no cover - compiled
    """Add to the sum of `number`, where `n` numbers have one; return how many have one now.

    No branch tells new numbers from others, because no processor foretells it.
    """
    at = (np.uint64(number) * _MULTIPLIER >> np.uint64(16)) & mask
    there = numbers[at]
    while there != number and there != _EMPTY:
        at = (at + np.uint64(1)) & mask
        there = numbers[at]
    is_new = there == _EMPTY
    sums[at] = amount + (np.int32(0) if is_new else sums[at])
    numbers[at], places[n] = number, at
    return n + is_new


@kernel(inline="always")
def take(
    numbers: Any, sums: Any, places: Any, n: Any, found: Any, totals: Any
) -> None:  # pragma: no cover - compiled
    """Write all `n` numbers and their sums, in the order in which they were added first, and clear the table."""
    for i in range(n):
        found[i], totals[i] = numbers[places[i]], sums[places[i]]
        numbers[places[i]] = _EMPTY
