"""The common base of opened indexes of every kind: conversion of queries, user ids and metadata."""

from __future__ import annotations

import os
import threading
import warnings
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.index.names import IDS_NAME, METADATA_NAME
from indexmill.reader.carriers import Carriers
from indexmill.reader.choices import PLACES
from indexmill.reader.queries import as_queries
from indexmill.reader.wanted import as_integers, as_texts

if TYPE_CHECKING:
    import pyarrow as pa

    from indexmill.formats.index.metadata import ChosenRows
    from indexmill.reader import _native
    from indexmill.reader.choices import Place
    from indexmill.reader.stored import Stored

    Native = TypeVar("Native", _native.Index, _native.LshIndex, _native.IvfIndex)
else:
    Native = TypeVar("Native")


class Opened(ABC, Generic[Native]):
    """An opened index; several threads may search it at once.

    Parameters
    ----------
    path : path
        The index directory.
    native : object of the native module
        The index opened by the native reader.
    engine : str
        The requested engine; ``auto`` warns if the best engine is unavailable.
    ids : {"memory", "storage"}
        Whether the ids that searches look up are loaded, or read with the results.
    stored : Stored, optional
        Where the blocks are that searches read, if not in the directory.

    Raises
    ------
    ConfigError
        If `ids` is neither, or there is too little memory.
    CorruptFile
        If ids that are loaded differ from those written.
    """

    #: Kind of index, as in manifests.
    kind: ClassVar[str]

    def __init__(
        self, path: str | Path, native: Native, engine: str, ids: Place, stored: Stored | None = None
    ) -> None:
        self.path = Path(path)
        self.native: Native = native
        self._stored = stored
        if ids not in PLACES:
            raise ConfigError(f"ids: expected {' or '.join(PLACES)}, got {ids!r}; choose one of them")
        if ids == "memory":
            self._fill(IDS_NAME)
            native.hold_ids()
        # Held open, so that the metadata stays available after a new build has replaced this one.
        descriptor = native.open_metadata()
        self._metadata_file = None if descriptor is None else os.fdopen(descriptor, "rb")
        self._metadata: pa.Table | None = None
        self._reading = threading.Lock()  # of that file, which has one position
        if engine == "auto" and self.engine_note is not None:
            warnings.warn(f"{path}: {self.engine_note}", stacklevel=3)

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of vectors, deleted ones included: vector ids are below it."""

    def __repr__(self) -> str:
        n, name = self.native, type(self).__name__
        return f"{name}({str(self.path)!r}, {len(self):,} x {n.dim} {n.dtype}, {n.metric}, {self._facts()})"

    @abstractmethod
    def _facts(self) -> str:
        """Return what `repr` says of indexes of this kind alone."""

    @property
    def dim(self) -> int:
        """Dimensions of a query."""
        return self.native.dim

    @property
    def n_deleted(self) -> int:
        """Number of vectors that were deleted: no search returns them."""
        return self.native.n_deleted

    @property
    def metric(self) -> str:
        """``l2``, ``cosine`` or ``ip``."""
        return self.native.metric

    @property
    def engine(self) -> str:
        """The engine in use."""
        return self.native.engine

    @property
    def engine_note(self) -> str | None:
        """Difference from the best engine, and its reason; None if there is none. Searches may add to it."""
        return self.native.engine_note

    @property
    def search_defaults(self) -> dict[str, Any]:
        """Options of `search` that depend on where the index is, as a search has them that names none."""
        return {}

    def metadata(self, vector_ids: ArrayLike) -> pa.Table:
        """Return the metadata rows of `vector_ids`, int64 (m,), in that order; no columns if the input had none.

        The file is read on first use, checked against the manifest, and kept in memory.

        Raises
        ------
        CorruptFile
            If the file differs from the one written.
        """
        import pyarrow as pa

        if self._metadata is None:
            self._metadata = self._read_metadata()
        if self._metadata.num_columns == 0:
            return self._metadata
        return self._metadata.take(pa.array(np.asarray(vector_ids, dtype=np.int64)))

    def where(self, condition: str) -> NDArray[np.bool_]:
        """Return which vectors have metadata that satisfy a condition: bool, shape (n_vectors,), for a filter.

        Parameters
        ----------
        condition : str
            Comparisons of metadata columns with values or each other, ``in (...)`` and ``is null``, joined by ``and``,
            ``or``, ``not`` and parentheses: ``price < 20 and lang = 'de'``.

        Raises
        ------
        InputError
            If there are no metadata columns, or the condition does not fit them.
        CorruptFile
            If the file of the metadata differs from the one written.
        """
        return self._chosen(condition).mask

    def vector_ids_of(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return the vector ids of user ids, int64 (m,); -1 for ids that no vector has.

        A filter for some user ids is ``index.filter(index.vector_ids_of(ids))`` (where all are known).

        Time: one pass over the user ids of ``ids.imx``, however many are looked up, which ends when all are found.
        Memory: that of `ids`; no inverse table is made.

        Parameters
        ----------
        ids : array or list of whole numbers, str or bytes, shape (m,)
            Of the index's type; without user ids, vector ids. Those of deleted vectors are not found.

        Raises
        ------
        InputError
            If the ids are of another type.
        CorruptFile
            If a page differs from the one written.
        """
        self._fill(IDS_NAME)
        kind = self.native.id_type
        if kind in ("string", "binary"):
            return self.native.find_ids(as_texts(ids, kind))
        numbers, fits = as_integers(ids, np.uint64 if kind == "uint64" else np.int64)
        return np.where(fits, self.native.find_ids(numbers), -1)

    def _chosen(self, condition: str, label_column: str | None = None) -> ChosenRows:
        """Return the vectors that satisfy a condition, and whether they are a label of a column; see `where`."""
        from indexmill.formats.index.metadata import chosen_rows

        if (there := self._metadata_there()) is None:
            raise InputError(f"where: {self.path}: no metadata columns; build it with --metadata-columns")
        with self._reading:
            return chosen_rows(*there, condition, label_column)

    def _read_metadata(self) -> pa.Table:
        import pyarrow as pa

        from indexmill.formats.index.metadata import read_metadata

        there = self._metadata_there()
        if there is None:
            return pa.table({})
        with self._reading:
            return read_metadata(*there)

    def _metadata_there(self) -> tuple[BinaryIO, Path, str] | None:
        """Return the open file of the metadata, its name and its digest in the manifest."""
        expected = self.native.metadata_sha256
        if expected is None or self._metadata_file is None:
            return None
        self._fill(METADATA_NAME)
        return self._metadata_file, self.path / METADATA_NAME, expected

    def _fill(self, name: str) -> None:
        """Fetch a file that is read as one of this machine, if it is not there."""
        if self._stored is not None:
            self._stored.store.fill(name)

    def _as_queries(self, queries: ArrayLike) -> NDArray[Any]:
        return as_queries(queries, np.dtype(self.native.query_dtype), self.dim)

    @staticmethod
    def _take_ids(found: dict[str, Any], vector_ids: NDArray[np.int64]) -> NDArray[Any]:
        """Take the user ids out of what the reader found, in the shape of `vector_ids`, which they are by default."""
        ids: NDArray[Any] | None = found.pop("user_ids")
        return vector_ids if ids is None else ids.reshape(vector_ids.shape)


def options_of(stored: Stored | None) -> dict[str, Any] | None:
    """Return where blocks are in the form of the native reader."""
    if stored is None:
        return None
    return {
        "carry": partial(Carriers, stored.store, stored.timeout_s),
        "place": stored.store.where(""),
        "timeout_s": stored.timeout_s,
        "cache_bytes": stored.cache_bytes,
        "blocks": stored.blocks,
    }
