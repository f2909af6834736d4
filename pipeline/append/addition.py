"""Vectors to be added to an index, from files or from another index, and what must agree with the index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.index.deleted import next_generation
from indexmill.formats.index.manifest import Manifest
from indexmill.formats.sources.validate import origin_of, repeated_id
from indexmill.pipeline.append.scratch import GrowingGraph
from indexmill.pipeline.kinds.common.ingest import MAX_VECTORS


class Extendable(Protocol):
    """An opened index of any kind, as far as what is added must agree with it."""

    @property
    def name(self) -> Path:
        """Path, as errors name it."""

    @property
    def n(self) -> int:
        """Vectors."""

    @property
    def dim(self) -> int:
        """Dimensions of the user's vectors."""

    @property
    def input_dtype(self) -> str:
        """Type of the vectors it was built from."""

    @property
    def id_type(self) -> str:
        """Type of user ids, ``"none"`` if there are none."""

    @property
    def metadata(self) -> pq.ParquetFile | None:
        """Rows in vector-id order."""

    @property
    def vector_ids(self) -> NDArray[np.uint32]:
        """Vector id of each slot, uint32 (n,)."""

    @property
    def user_ids(self) -> pa.Array | None:
        """User id of each slot, or None."""

    @property
    def deleted(self) -> NDArray[np.uint32]:
        """Slots of deleted vectors, ascending, uint32 (m,)."""


class Part(NamedTuple):
    """What an addition is made of, in the order of vector ids: one for each index, or one for all files.

    Attributes
    ----------
    n : int
    metadata : pyarrow ParquetFile or None
        In vector-id order.
    fingerprint : str
        64 hex digits that stand for the vectors, ids and metadata.
    """

    n: int
    metadata: pq.ParquetFile | None
    fingerprint: str


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
    parts : tuple of Part
    fill : callable
        ``fill(graph, advance)`` writes vectors, and neighbours where there are some, to the new rows.
    """

    n: int
    vector_ids: NDArray[np.uint32]
    user_ids: pa.Array | None
    parts: tuple[Part, ...]
    fill: Callable[[GrowingGraph, Callable[[int], None]], None]


def check_alike(index: Extendable, name: str, facts: Sequence[tuple[str, object, object, str]]) -> None:
    """Refuse an addition called `name` that differs from `index` in one of (what, expected, got, what to do).

    Raises
    ------
    InputError
    """
    for what, expected, got, action in facts:
        if got != expected:
            raise InputError(f"{name}: {what} {got}; expected {expected} as in {index.name}; {action}")


def check_size(index: Extendable, added: int) -> None:
    """Refuse more vectors than one index holds.

    Raises
    ------
    InputError
    """
    if index.n + added > MAX_VECTORS:
        raise InputError(
            f"{index.name}: {index.n:,} vectors and {added:,} more; one index holds at most {MAX_VECTORS:,}; "
            "keep the two apart, and search both"
        )


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
    index: Extendable,
    new: pa.Array | None,
    origins: Sequence[tuple[int, str, int]],
    vector_ids: NDArray[np.uint32],
) -> None:
    """Refuse user ids of vectors that `index` has and that are not deleted.

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
        Naming the first new vector whose id is not new, and the first of the index with that id; a vector of an index
        is named by its vector id.
    """
    if new is None or index.user_ids is None:
        return
    slots = replaced_slots(index, new)
    if not len(slots):
        return
    there = index.user_ids.take(pa.array(slots))
    rows = np.flatnonzero(pc.is_in(new, value_set=there).to_numpy(zero_copy_only=False))
    row = int(rows[np.argmin(vector_ids[rows])])
    user_id = new[row]
    alike = slots[
        pc.is_in(there, value_set=pa.array([user_id.as_py()], there.type)).to_numpy(zero_copy_only=False)
    ]
    old, vector_id = int(index.vector_ids[alike].min()), int(vector_ids[row])
    raise InputError(repeated_id(user_id.as_py(), f"{index.name} row {old}", origin_of(vector_id, origins)))


def replaced_slots(index: Extendable, new: pa.Array) -> NDArray[np.int64]:
    """Return the slots of the vectors of `index` with a user id among the `new` ones, without deleted vectors."""
    if index.user_ids is None:
        return np.empty(0, np.int64)
    found = pc.is_in(index.user_ids, value_set=new).to_numpy(zero_copy_only=False)
    found[index.deleted] = False
    return np.flatnonzero(found)


def deleted_after(index: Extendable, new: pa.Array | None, is_replaced: bool) -> NDArray[np.int64]:
    """Return the slots of `index` that are deleted once vectors with the `new` user ids are added, ascending."""
    if not is_replaced or new is None:
        return index.deleted.astype(np.int64)
    return np.sort(np.concatenate([index.deleted, replaced_slots(index, new)]))


def check_replace(index: Extendable) -> None:
    """Refuse to replace vectors of an index without user ids.

    Raises
    ------
    ConfigError
    """
    if index.id_type == "none":
        raise ConfigError(
            f"replace: {index.name} has no user ids, so nothing tells which vectors to replace; delete them by their "
            "vector ids first, or leave it out"
        )


def with_deleted(
    directory: Path, following: Manifest, previous: int, n: int, slots: NDArray[np.int64]
) -> Manifest:
    """Write the file of deletions of a manifest whose generation was made from the `previous` one; return it."""
    made = next_generation(directory, following, following.generation, n, slots)
    return replace(made, deleted={**(made.deleted or {}), "previous": previous})
