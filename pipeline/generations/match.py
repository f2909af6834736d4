"""Which slots have given ids: ids.imx is read once, front to back, and no inverse table is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.index.ids import By, IdBlocks

#: Slots that are looked at together; as many as wanted ids if these are more, for they are hashed for each block.
_LEAST_ROWS = 1 << 16


class Matches:
    """The vectors with given ids.

    Time: one pass over ids.imx. Memory: the ids, as many of ids.imx, and 16 bytes a vector found.

    Parameters
    ----------
    blocks : IdBlocks
    ids : pyarrow Array
        int64, uint64, string or binary; an id that is there twice counts once.
    by : {"user", "vector"}
        Whether they are user ids or vector ids.
    is_text : bool
        Whether strings may stand for numbers.

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

    def __init__(self, blocks: IdBlocks, ids: pa.Array, by: By, is_text: bool) -> None:
        kind = blocks.arrow_type(by)
        self.given = pc.unique(_as_numbers(ids, blocks.path, kind) if is_text else ids)
        wanted, of_wanted = _fitting(self.given, blocks.path, kind)
        slots, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for first, block in blocks.read(by, max(_LEAST_ROWS, len(wanted))):
            found = pc.index_in(block, value_set=wanted)
            slots.append(first + np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False)))
            places.append(of_wanted[found.drop_null().to_numpy()])
        self.slots, self.places = np.concatenate(slots), np.concatenate(places)

    def count(self, which: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how many of these of the vectors found each id has, int64 (len(given),)."""
        return np.bincount(self.places[which], minlength=len(self.given))


def _as_numbers(ids: pa.Array, path: Path, kind: pa.DataType) -> pa.Array:
    """Return texts as whole numbers, if the index has such ids."""
    if not pa.types.is_integer(kind):
        return ids
    try:
        return ids.cast(pa.uint64() if kind == pa.uint64() else pa.int64())
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: ids are whole numbers ({kind}), got others: {error}") from None


def _fitting(given: pa.Array, path: Path, kind: pa.DataType) -> tuple[pa.Array, NDArray[np.int64]]:
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
    raise InputError(f"{path}: ids are of type {have}, got ids of type {given.type}; pass the index's ids")
