"""Sums by number, of few numbers.

Each number has a place in a small table, where the first of its entries is written; the other entries find that one
there. Nothing is cleared, because each place that is read was written before. No branch tells new numbers from others,
because no processor foretells it; one tells that two numbers share a place, which is rare.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from indexmill.formats.kernel import kernel

#: Knuth's multiplier: the upper bits of the product depend on all bits of the number.
_MULTIPLIER = np.uint64(2654435761)
#: Places of the smallest table, and at least for each entry.
_LEAST, _PLACES = 64, 8


@kernel
def _size_for(m: Any) -> Any:  # pragma: no cover - compiled
    """Return the size of a table, a power of two; few entries touch little memory."""
    size = _LEAST
    while size < _PLACES * m:
        size *= 2
    return size


@kernel
def new_tally(most: int) -> Any:  # pragma: no cover - compiled
    """Return a table for at most `most` entries, and space for the places of their sums."""
    return np.empty(_size_for(most), np.uint32), np.empty(most, np.uint32)


@kernel(inline="always")
def sum_up(
    numbers: Any, amounts: Any, m: Any, firsts: Any, places: Any, found: Any, totals: Any
) -> Any:  # pragma: no cover - compiled
    """Write each of `m` numbers once, in the order of their first entries, and its sum; return how many these are.

    Parameters
    ----------
    numbers : uint32 array, shape (most,)
    amounts, totals : int32 array, shape (most,)
    m : int64
        Entries.
    firsts, places : uint32 array
        Of `new_tally`.
    found : uint32 array, shape (most,)
    """
    mask = np.uint64(_size_for(m) - 1)
    for i in range(m - 1, -1, -1):
        firsts[(np.uint64(numbers[i]) * _MULTIPLIER >> np.uint64(16)) & mask] = i
    n = np.uint64(0)  # numba foresees that indices of type int64 may be negative
    for i in range(m):
        number = numbers[i]
        first = firsts[(np.uint64(number) * _MULTIPLIER >> np.uint64(16)) & mask]
        place = n if first == i else np.uint64(places[first])
        if numbers[first] != number:  # another number has the place in the table
            place = n
            for k in range(n):
                if found[k] == number:
                    place = np.uint64(k)
        is_new = place == n
        places[i], found[place] = place, number
        totals[place] = amounts[i] + (np.int32(0) if is_new else totals[place])
        n += np.uint64(is_new)
    return np.int64(n)
