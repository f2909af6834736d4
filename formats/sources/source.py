"""Opening of vector sources: files of several kinds, or arrays in memory.

A source is cheap to open, checks types before it reads, streams in bounded memory, and reads single rows at random.
Vector ids count the rows of all files in order. Sources can be pickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from indexmill.formats.errors import InputError
from indexmill.formats.extras import require
from indexmill.formats.sources.array import ArrayFile, open_npy
from indexmill.formats.sources.arrow import ArrowVectors, IpcPieces, TablePieces
from indexmill.formats.sources.arrow_columns import Wanted, cast_ids, id_type_of
from indexmill.formats.sources.binary import BIN_DTYPES, VECS_DTYPES, open_bin, open_vecs
from indexmill.formats.sources.file import VectorFile, Vectors
from indexmill.formats.sources.filesystem import InputFile, resolve
from indexmill.formats.sources.joined import DEFAULT_BATCH_ROWS, JoinedSource, VectorBatch, VectorSource
from indexmill.formats.sources.parquet import ParquetVectors, RowGroupCache
from indexmill.formats.sources.stream import STREAM_NAME, VectorStream, open_stream
from indexmill.formats.sources.validate import check_batch

__all__ = [
    "ARRAY_NAME",
    "DEFAULT_BATCH_ROWS",
    "VectorBatch",
    "VectorSource",
    "array_source",
    "held",
    "open_queries",
    "open_source",
    "read_queries",
    "source_or_stream",
]

#: Name of an array from Python in errors.
ARRAY_NAME = "<array>"

_PARQUET = (".parquet",)
_IPC = (".arrow", ".feather", ".ipc")
_HDF5 = (".h5", ".hdf5")
#: All supported file name extensions.
SUFFIXES = (*_PARQUET, *_IPC, ".npy", *VECS_DTYPES, *BIN_DTYPES, *_HDF5)


def open_source(
    inputs: str | Path | Sequence[str | Path],
    *,
    column: str | None = None,
    id_column: str | None = None,
    metadata_columns: Sequence[str] = (),
) -> VectorSource:
    """Open files as one source.

    Parameters
    ----------
    inputs : str, Path or sequence of them
        Files, directories, globs or URLs, see `indexmill.formats.sources.filesystem.resolve`. The suffix of a file, one
        of `SUFFIXES`, decides its type.
    column : str, optional
        Column (Parquet, Arrow) or data set (HDF5) of the vectors. By default the only column with lists of numbers; the
        data set ``train``, or the only two-dimensional one.
    id_column : str, optional
        Column of the user ids; Parquet and Arrow only.
    metadata_columns : sequence of str
        Columns kept with the vectors; Parquet and Arrow only.

    Raises
    ------
    InputError
        If the input is missing, unreadable or empty, or its files disagree.
    """
    return _open(inputs, Wanted(column, id_column, metadata_columns), hdf5_default="train")


def array_source(
    vectors: Any,
    *,
    ids: Any = None,
    metadata: pa.Table | None = None,
    column: str | None = None,
    id_column: str | None = None,
    metadata_columns: Sequence[str] = (),
) -> VectorSource:
    """Return an array or an Arrow table as a source; errors call it ``<array>``.

    Parameters
    ----------
    vectors : array, shape (n_vectors, dim), pyarrow.Table, or what `open_stream` takes, which is held in memory
    ids : array-like, shape (n_vectors,), optional
        User ids of an array: integers, strings or bytes.
    metadata : pyarrow.Table, optional
        Metadata of an array, n_vectors rows.
    column, id_column, metadata_columns
        Columns of a table, as in `open_source`.

    Raises
    ------
    InputError
        If the shape, type or length is unsupported, or an option does not apply to the type of `vectors`.
    """
    return _at_hand(held(vectors), Wanted(column, id_column, metadata_columns), ids, metadata)


def held(vectors: Any) -> pa.Table | Vectors:
    """Return what can be read many times: a table of pyarrow as it is, a stream as a table in memory, else an array."""
    if isinstance(vectors, pa.Table):
        return vectors
    stream = open_stream(vectors, Wanted())
    return np.asarray(vectors) if stream is None else stream.table()


def source_or_stream(
    vectors: Any, wanted: Wanted, ids: Any = None, metadata: pa.Table | None = None
) -> VectorSource | VectorStream:
    """Return what `open_stream` takes as a stream, which is read once, and an array or an Arrow table as a source.

    Raises
    ------
    InputError
        As `array_source`.
    """
    stream = None if isinstance(vectors, pa.Table) else open_stream(vectors, wanted)
    if stream is None:
        return _at_hand(vectors, wanted, ids, metadata)
    _check_beside(STREAM_NAME, ids, metadata)
    return stream


def _at_hand(vectors: Any, wanted: Wanted, ids: Any, metadata: pa.Table | None) -> VectorSource:
    """Return an array or an Arrow table as a source."""
    if isinstance(vectors, pa.Table):
        _check_beside(ARRAY_NAME, ids, metadata)
        return JoinedSource([ArrowVectors(TablePieces(vectors, ARRAY_NAME), wanted)])
    if wanted.vectors is not None or wanted.ids is not None or wanted.metadata:
        raise InputError(
            f"{ARRAY_NAME}: column names go with an Arrow table; expected ids and metadata for an array"
        )
    arrow_ids, id_type = _array_ids(ids)
    return JoinedSource([ArrayFile(ARRAY_NAME, np.asarray(vectors), arrow_ids, id_type, metadata)])


def _check_beside(name: str, ids: Any, metadata: Any) -> None:
    if ids is not None or metadata is not None:
        raise InputError(
            f"{name}: ids and metadata go with an array; expected id_column and metadata_columns for a table"
        )


def read_queries(path: str | Path | Sequence[str | Path], column: str | None = None) -> Vectors:
    """Read a whole input into memory, as queries; the default data set in HDF5 is ``test``.

    Returns
    -------
    queries : array, shape (n_queries, dim)

    Raises
    ------
    InputError
        See `open_source`; also if a component is not finite.
    """
    source = open_queries(path, column)
    out = np.empty((source.n_vectors, source.dim), source.dtype)
    for batch in source.batches():
        check_batch(batch, "l2")
        out[batch.start : batch.start + len(batch.vectors)] = batch.vectors
    return out


def open_queries(path: str | Path | Sequence[str | Path], column: str | None = None) -> VectorSource:
    """Open queries as a source; the default data set in HDF5 is ``test``, otherwise as `open_source`."""
    return _open(path, Wanted(column), hdf5_default="test")


def _open(inputs: str | Path | Sequence[str | Path], wanted: Wanted, hdf5_default: str) -> VectorSource:
    files = resolve(inputs, SUFFIXES)
    if wanted.vectors is not None and not any(f.suffix in (*_PARQUET, *_IPC, *_HDF5) for f in files):
        got = f"a {files[0].suffix} file has no columns, got column {wanted.vectors!r}"
        raise InputError(f"{files[0].name}: {got}; leave it out")
    cache = RowGroupCache()
    opened = [_open_file(file, wanted, hdf5_default, cache) for file in files]
    return JoinedSource(opened, [file for file in files if not file.is_local])


def _open_file(file: InputFile, wanted: Wanted, hdf5_default: str, cache: RowGroupCache) -> VectorFile:
    if file.suffix in _PARQUET:
        return ParquetVectors(file, wanted, cache)
    if file.suffix in _IPC:
        return ArrowVectors(IpcPieces(file), wanted)
    if wanted.ids is not None or wanted.metadata:
        names = ", ".join(name for name in (wanted.ids, *wanted.metadata) if name)
        raise InputError(
            f"{file.name}: a {file.suffix} file has no columns for ids and metadata, got {names}; "
            "leave them out or convert the input to Parquet"
        )
    if file.suffix in _HDF5:
        require("h5py", file.name)
        from indexmill.formats.sources.hdf5 import Hdf5Vectors  # h5py is slow to import and rarely needed

        return Hdf5Vectors(file, wanted.vectors, hdf5_default)
    if file.suffix in VECS_DTYPES:
        return open_vecs(file)
    return open_bin(file) if file.suffix in BIN_DTYPES else open_npy(file)


def _array_ids(ids: Any) -> tuple[pa.Array | None, str]:
    if ids is None:
        return None, "none"
    try:
        array = ids if isinstance(ids, (pa.Array, pa.ChunkedArray)) else pa.array(ids)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"{ARRAY_NAME}: ids: {error}; expected integers, strings or bytes of one type"
        ) from error
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    id_type = id_type_of(array.type, ARRAY_NAME)
    return cast_ids(array, id_type, ARRAY_NAME, 0), id_type
