"""Find the slots of given ids in one pass over ids.imx, without an inverse table."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.index.ids import By, IdBlocks
from indexmill.formats.sources.ids import IdList

#: Least slots of a block. Wanted ids are hashed for each block, so a block has at least as many slots as they are.
_LEAST_ROWS = 1 << 16
#: Characters of the longest text that may be an integer of 64 bits.
_LONGEST = 20


class Matches:
    """The vectors with given ids.

    Time: one pass over ids.imx. Memory: the ids, as many of ids.imx, and 16 bytes a vector found.

    Parameters
    ----------
    blocks : IdBlocks
    ids : IdList
        An id that is there twice counts once.
    by : {"user", "vector"}
        Whether they are user ids or vector ids.

    Attributes
    ----------
    given : pyarrow Array
        The ids, each once, in their order.
    slots, places : int64 arrays, shape (m,)
        Slots of the vectors that have one of them, ascending, and which one it is: a place in `given`.

    Raises
    ------
    InputError
        If the ids are of another type than those of the index.
    FormatError
        If ids.imx is damaged.
    """

    def __init__(self, blocks: IdBlocks, ids: IdList, by: By) -> None:
        kind = blocks.arrow_type(by)
        is_written = ids.lines is not None and pa.types.is_integer(kind)
        self.given = pc.unique(_written_numbers(ids, kind) if is_written else ids.values)
        wanted, of_wanted = (_read_numbers if is_written else _fitting)(self.given, ids.name, kind)
        slots, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for first, block in blocks.read(by, max(_LEAST_ROWS, len(wanted))):
            found = pc.index_in(block, value_set=wanted)
            slots.append(first + np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False)))
            places.append(of_wanted[found.drop_null().to_numpy()])
        self.slots, self.places = np.concatenate(slots), np.concatenate(places)

    def count(self, which: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how many of these of the vectors found each id has, int64 (len(given),)."""
        return np.bincount(self.places[which], minlength=len(self.given))


def _written_numbers(ids: IdList, kind: pa.DataType) -> pa.Array:
    """Return the lines of a text, each a whole number of any size, without zeros in front."""
    is_number = pc.match_substring_regex(ids.values, r"^-?[0-9]+$")
    wrong = pc.index(is_number, False).as_py()
    if wrong >= 0 and ids.lines is not None:
        raise InputError(
            f"{ids.name}: line {ids.lines[wrong]}: ids are whole numbers ({kind}), got {ids.values[wrong].as_py()!r}; "
            "correct or remove the line"
        )
    return pc.replace_substring_regex(ids.values, r"^(-?)0*([0-9])", r"\1\2")


def _read_numbers(given: pa.Array, name: str, kind: pa.DataType) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return, as `_fitting`, what `_written_numbers` returned."""
    short = np.flatnonzero(pc.less_equal(pc.utf8_length(given), _LONGEST).to_numpy(zero_copy_only=False))
    numbers = given.take(pa.array(short)).cast(pa.decimal128(_LONGEST + 1, 0))
    limits = np.iinfo(kind.to_pandas_dtype())
    least, most = (pa.scalar(Decimal(int(limit)), numbers.type) for limit in (limits.min, limits.max))
    fits = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most))
    return numbers.filter(fits).cast(kind), short[fits.to_numpy(zero_copy_only=False)]


def _fitting(given: pa.Array, name: str, kind: pa.DataType) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the ids that the index's type can hold, in this type, and their places in `given`."""
    if not len(given):
        return pa.array([], kind), np.empty(0, np.int64)
    if pa.types.is_integer(given.type) and pa.types.is_integer(kind):
        dtype: Any = kind.to_pandas_dtype()
        numbers, limits = given.to_numpy(), np.iinfo(dtype)
        fits = np.flatnonzero((numbers >= limits.min) & (numbers <= limits.max))
        return pa.array(numbers[fits].astype(dtype)), fits
    if f"large_{given.type}" == str(kind):
        return given.cast(kind), np.arange(len(given))
    have = str(kind).removeprefix("large_")
    raise InputError(
        f"{name}: the index's ids are of type {have}, got ids of type {given.type}; give ids of the index's type"
    )
