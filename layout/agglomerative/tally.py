"""Sums by number, of few numbers: a small hash table that is cleared by what was added.

Loops take the arrays of a `Tally` apart before they begin: numba counts references when it takes one from a tuple.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from llvmlite import ir
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


@kernel
def new_firsts(most: int) -> Any:  # pragma: no cover - compiled
    size = 64
    while size < 8 * most:
        size *= 2
    return np.empty(size, np.uint32)


@kernel(inline="always")
def sum_up(
    names: Any, amounts: Any, m: Any, firsts: Any, places: Any, found: Any, totals: Any
) -> Any:  # pragma: no cover - compiled
    size = 64
    while size < 8 * m:
        size *= 2
    mask = np.uint64(size - 1)
    for i in range(m - 1, -1, -1):
        firsts[(np.uint64(names[i]) * _MULTIPLIER >> np.uint64(16)) & mask] = i
    n = np.uint64(0)
    for i in range(m):
        name = names[i]
        first = firsts[(np.uint64(name) * _MULTIPLIER >> np.uint64(16)) & mask]
        is_new = first == i
        place = n if is_new else np.uint64(places[first])
        if names[first] != name:
            place = n
            for k in range(n):
                if found[k] == name:
                    place = k
            is_new = place == n
        places[i] = place
        found[place] = name
        totals[place] = amounts[i] + (np.int32(0) if is_new else totals[place])
        n += np.uint64(is_new)
    return np.int64(n)


@intrinsic
def prefetch(context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        data = make_array(kind)(context, builder, arguments[0]).data
        at = context.cast(builder, arguments[1], signature.args[1], types.uint64)
        pointer = builder.bitcast(builder.gep(data, [at]), ir.IntType(8).as_pointer())
        i32 = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [pointer.type], ir.FunctionType(ir.VoidType(), [pointer.type, i32, i32, i32])
        )
        builder.call(function, [pointer, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, index), generate
