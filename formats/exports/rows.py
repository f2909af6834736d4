"""The bases of indexes as targets see them: ids and metadata by slot, and vectors by row where there are any."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError
from indexmill.formats.graph.nodes import NodeBlock

#: Table in every export: slot, vector id, user id, metadata.
ID_MAP_NAME = "ids.parquet"

Ids = Literal["user", "slot"]
#: ``advance(n)`` is told that `n` more rows are finished.
Advance = Callable[[int], None]


class DumpBlock(NamedTuple):
    """Consecutive rows.

    Attributes
    ----------
    first : int
        Slot of the first row.
    partitions : int64 array, shape (m,)
        Page of a graph, or list, of each row: vectors of one partition are near each other.
    vectors : array, shape (m, dim)
        The user's vectors.
    nodes : NodeBlock or None
        Nodes of a graph.
    """

    first: int
    partitions: NDArray[np.int64]
    vectors: NDArray[Any]
    nodes: NodeBlock | None

    @property
    def last(self) -> int:
        """The slot after the last row."""
        return self.first + len(self.vectors)

    def cut(self, rows: int) -> Iterator[DumpBlock]:
        """Yield the block in parts of at most `rows` rows."""
        for skip in range(0, len(self.vectors), rows):
            part = slice(skip, skip + rows)
            nodes = None if self.nodes is None else self.nodes[part]
            yield DumpBlock(self.first + skip, self.partitions[part], self.vectors[part], nodes)


@dataclass(frozen=True, kw_only=True)
class ExportedIndex(ABC):
    """Ids and metadata of an index's vectors; each kind of index adds its parts.

    Attributes
    ----------
    KIND : str
        Kind of index.
    PARTS : set of str
        Those of `target.PARTS` that such an index has.
    vector_ids : uint32 array, shape (n,)
        Vector id of each slot.
    user_ids : pyarrow.Array or None
        User id of each slot; None if user ids are the vector ids.
    metadata_of : callable
        ``metadata_of(vector_ids)``: the metadata of these vectors, a table without columns if there is none.
    build_id : str
        Build id of the index, 64 hex digits.
    generation : int
        Of the index: deletions do not change the build id.
    deleted : bool array by slot, or None
        Which vectors were deleted; `by_row` leaves them out. None if there are none.
    ids : {"user", "slot"}
        The engine's ids of vectors: user ids or slots.
    """

    KIND: ClassVar[str]
    PARTS: ClassVar[frozenset[str]]

    vector_ids: NDArray[np.uint32]
    user_ids: pa.Array | None
    metadata_of: Callable[[NDArray[np.uint32]], pa.Table]
    build_id: str
    generation: int = 1
    deleted: NDArray[np.bool_] | None = None
    ids: Ids = "user"

    @property
    def n(self) -> int:
        """Number of vectors."""
        return len(self.vector_ids)

    @property
    def n_rows(self) -> int:
        """Number of rows that a target writes: more than vectors if some are in several lists."""
        return self.n

    @property
    @abstractmethod
    def dim(self) -> int:
        """Components of the user's vectors; inner product stores one more."""

    @property
    @abstractmethod
    def metric(self) -> str:
        """``l2``, ``ip`` or ``cosine``."""

    def by_row(self) -> ExportedIndex:
        """Return the index in the form in which slot s is the s-th row written."""
        return self

    def without_deleted(self) -> Self:
        """Return the index with the ids of the vectors that are left, and of no others."""
        if self.deleted is None:
            return self
        kept = np.flatnonzero(~self.deleted)
        user_ids = None if self.user_ids is None else self.user_ids.take(pa.array(kept))
        return replace(self, vector_ids=self.vector_ids[kept], user_ids=user_ids)

    def metadata(self, first: int, last: int) -> pa.Table:
        """Return the metadata of slots [first, last)."""
        return self.metadata_of(self.vector_ids[first:last])

    def names(self, first: int, last: int) -> pa.Array:
        """Return the user ids of slots [first, last); vector ids as int64 if there are none."""
        if self.user_ids is None:
            return pa.array(self.vector_ids[first:last].astype(np.int64))
        return self.user_ids.slice(first, last - first)

    def names_of(self, vector_ids: NDArray[np.uint32]) -> pa.Array:
        """Return the user ids of `vector_ids`, if slots are vector ids; vector ids as int64 if there are none."""
        if self.user_ids is None:
            return pa.array(vector_ids.astype(np.int64))
        return self.user_ids.take(pa.array(vector_ids))

    def whole_ids(self, target: str, bits: int) -> NDArray[np.int64]:
        """Return the engine's id of each slot, int64 (n,); raises errors as `check_ids`."""
        self.check_ids(target, bits)
        if self.ids == "slot":
            return np.arange(self.n, dtype=np.int64)
        if self.user_ids is None:
            return self.vector_ids.astype(np.int64)
        ids: NDArray[np.int64] = self.user_ids.to_numpy().astype(np.int64)
        return ids

    def check_ids(self, target: str, bits: int) -> None:
        """Check that the engine can represent the id of every slot.

        Raises
        ------
        ConfigError
            If user ids are not integers from 0 on of at most `bits` bits.
        """
        if self.ids == "slot" or self.user_ids is None:
            return
        most = 2**bits - 1
        holds = f"{target} holds ids from 0 to {most:,}"
        way_out = (
            f"give --ids slot: its answers are then slots, and {ID_MAP_NAME} says which user id a slot has"
        )
        kind = str(self.user_ids.type).removeprefix("large_")
        if not pa.types.is_integer(self.user_ids.type):
            raise ConfigError(f"ids: {kind} ids, but {holds}; {way_out}")
        found = self.user_ids.to_numpy()
        if found.min() >= 0 and found.max() <= most:
            return
        slot = int(np.argmax((found < 0) | (found > most)))
        raise ConfigError(f"ids: {found[slot]:,} of vector {self.vector_ids[slot]:,}, but {holds}; {way_out}")


@dataclass(frozen=True, kw_only=True)
class ExportedRows(ExportedIndex):
    """An index whose vectors are read as rows, those of a partition together.

    Attributes
    ----------
    PARTITION : str
        What a partition of `rows` is.
    """

    PARTITION: ClassVar[str]

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of the vectors of `rows`."""

    @property
    def codes_alone(self) -> str | None:
        """Codec of an index that contains codes in place of the user's vectors; None for one with the vectors."""
        return None

    @abstractmethod
    def rows(self) -> Iterator[DumpBlock]:
        """Yield all rows in slot order, a few MiB at a time."""
