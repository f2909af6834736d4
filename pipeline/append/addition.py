"""Vectors to be added to an index, from files or from another index, and what must agree with the index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.sources.validate import check_unique_ids
from indexmill.pipeline.append.scratch import GrowingGraph
from indexmill.pipeline.generations.opened import OpenedIndex


@dataclass(frozen=True)
class Addition:
    """New vectors; a *row* counts them in the order in which they become vertices.

    Attributes
    ----------
    n : int
    vector_ids : uint32 array, shape (n,)
        Vector id of each row among the new vectors alone: a permutation of [0, n).
    user_ids : pyarrow Array or None
        User id of each row.
    metadata : pyarrow ParquetFile or None
        In vector-id order.
    fingerprint : str
        64 hex digits that stand for the vectors, ids and metadata.
    fill : callable
        ``fill(graph, advance)`` writes vectors, and neighbours where there are some, to the new rows.
    """

    n: int
    vector_ids: NDArray[np.uint32]
    user_ids: pa.Array | None
    metadata: pq.ParquetFile | None
    fingerprint: str
    fill: Callable[[GrowingGraph, Callable[[int], None]], None]


def check_alike(index: OpenedIndex, name: str, facts: Sequence[tuple[str, object, object, str]]) -> None:
    """Refuse an addition called `name` that differs from `index` in one of (what, expected, got, what to do).

    Raises
    ------
    InputError
    """
    for what, expected, got, action in facts:
        if got != expected:
            raise InputError(f"{name}: {what} {got}; expected {expected} as in {index.path}; {action}")


def column_types(schema: pa.Schema | None) -> str:
    """Describe metadata columns as metadata.parquet keeps them: ``"price: double, shop: string"`` or ``"none"``.

    Writing and reading changes some types (seconds become milliseconds), so an empty file is written and read.
    """
    if schema is None or len(schema) == 0:
        return "none"
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink, compression="zstd")
    kept = pq.read_schema(pa.BufferReader(sink.getvalue()))
    return ", ".join(f"{field.name}: {field.type}" for field in kept)


def check_new_ids(
    index: OpenedIndex,
    new: pa.Array | None,
    origins: Sequence[tuple[int, str, int]],
    vector_ids: NDArray[np.uint32],
) -> None:
    """Refuse user ids that `index` has already.

    Parameters
    ----------
    new : pyarrow Array of the new user ids, by row, or None
    origins : sequence of (first vector id, path, row of it)
        Where the new vectors come from, by vector id.
    vector_ids : uint32 array, shape (n,)
        Vector id of each row among the new.

    Raises
    ------
    InputError
        Naming the first id that is not new, and where both its vectors are; a vector of an index is named by
        its vector id.
    """
    if new is None or index.user_ids is None or not pc.any(pc.is_in(index.user_ids, value_set=new)).as_py():
        return

    def by_vector_id(ids: pa.Array, order: NDArray[np.uint32]) -> pa.Array:
        return ids.take(pa.array(np.argsort(order)))

    there = by_vector_id(index.user_ids, index.vector_ids)
    shifted = [(start + index.n, path, row) for start, path, row in origins]
    both = pa.concat_arrays([there, by_vector_id(new, vector_ids)])
    check_unique_ids(both, [(0, str(index.path), 0), *shifted])
