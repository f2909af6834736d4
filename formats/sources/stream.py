"""Vectors that come once, in batches of an Arrow stream: data frames, queries of DuckDB, data sets of Ray and others.

A build reads its input more than once and has to know its length beforehand. So a stream is first copied to a Parquet
file, decoded and checked for rows of another length, a batch at a time. The SHA-256 of that file tells whether another
run was given the same rows, in however many batches they came.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indexmill.formats.errors import IndexmillError, InputError, first_line
from indexmill.formats.pagefile.atomic import atomic_write
from indexmill.formats.sources.arrow_columns import (
    ID_TYPES,
    Columns,
    Wanted,
    choose_columns,
    first_dim,
    row_block,
)
from indexmill.formats.sources.file import RowBlock, rechunk
from indexmill.formats.sources.filesystem import reading, resolve
from indexmill.formats.sources.joined import MAX_DIM, JoinedSource
from indexmill.formats.sources.parquet import ParquetVectors, RowGroupCache

#: Name of a stream in errors.
STREAM_NAME = "<stream>"
#: Bytes of vectors in a row group of the copy.
_GROUP_BYTES = 8 << 20
#: Name that Ray gives a column of arrays of unlike lengths, which are kept as lists beside their shapes.
_RAGGED = "ray.data.arrow_variable_shaped_tensor"
#: The last frame of a traceback, and the line after it, which names the error. What Ray says of a task has a traceback
#: of every process that the error went through, the one that raised it first; each begins with a line of the process,
#: and may lack frames.
_RAISED = re.compile(r'^(?:  File "|.*ray::.*\(pid=).*\n(?: .*\n)*(?!.*ray::)(\S.*)', re.MULTILINE)
#: Rows asked of a data set at a time; what it gives is cut further.
_ROWS_ASKED = 1024


class StreamedSource(JoinedSource):
    """The copy of a stream, whose rows errors count as those of the stream.

    Attributes
    ----------
    digest : str
        SHA-256 of the copy: equal for equal rows, ids and metadata.
    """

    def __init__(self, vectors: ParquetVectors, digest: str) -> None:
        super().__init__([vectors])
        self.digest = digest


class VectorStream:
    """Vectors that can be read once.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
    wanted : Wanted
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], wanted: Wanted) -> None:
        self._batches, self._wanted = iter(batches), wanted

    def copied(self, path: Path) -> StreamedSource:
        """Read the stream to its end and copy it to `path`, which appears when it is whole.

        Memory: two batches of the stream, and 16 MiB.

        Raises
        ------
        InputError
            If there are no rows, a column is unusable, a row is null or of another length (the message names it), or
            the stream breaks off.
        """
        first, columns, dim = self._begin()
        group_rows = max(1, _GROUP_BYTES // (dim * columns.dtype.itemsize))
        blocks = rechunk(_decoded(first, self._batches, columns, dim, group_rows), group_rows)
        names = _names(columns)
        digest = hashlib.sha256()
        with atomic_write(path) as file:
            sink = _Hashed(file, digest)
            schema = _schema(columns, names, dim)
            with pq.ParquetWriter(
                sink, schema, compression="none", use_dictionary=False, write_statistics=False,
                write_page_checksum=True, use_compliant_nested_type=False,  # elements of lists keep their name
            ) as writer:  # fmt: skip
                for block in blocks:
                    writer.write_batch(_as_batch(block, columns, schema, dim), row_group_size=group_rows)
        wanted = Wanted(names[0], names[1], columns.metadata_schema.names if columns.metadata_schema else ())
        copy = resolve(path, (path.suffix,))[0]
        vectors = ParquetVectors(copy, wanted, RowGroupCache())
        vectors.name = STREAM_NAME
        return StreamedSource(vectors, digest.hexdigest())

    def table(self) -> pa.Table:
        """Read the stream to its end into memory.

        Raises
        ------
        InputError
            If its batches have different columns, there are none, or it breaks off.
        """
        batches = list(_unbroken(self._batches, 0))
        if not batches:
            raise _no_vectors()
        with reading(STREAM_NAME, "a stream of tables with the same columns"):
            return pa.Table.from_batches(batches)

    def _begin(self) -> tuple[pa.RecordBatch, Columns, int]:
        """Return the first batch with rows, the columns to read, and the dimension."""
        columns = None
        for batch in _unbroken(self._batches, 0):
            columns = choose_columns(batch.schema, STREAM_NAME, self._wanted)
            if batch.num_rows:
                dim = first_dim(columns, batch, STREAM_NAME)
                if dim > MAX_DIM:
                    raise InputError(f"{STREAM_NAME}: dimension {dim:,}; expected at most {MAX_DIM:,}")
                return batch, columns, dim
        raise _no_vectors()


def open_stream(vectors: Any, wanted: Wanted) -> VectorStream | None:
    """Return the stream of an object that gives one; None for any other object.

    Streams are given by objects with the method ``__arrow_c_stream__`` (frames of Polars and pandas, relations of
    DuckDB, readers of pyarrow), by data sets of Ray, and by those of Hugging Face. None is returned for what numpy
    reads as an array: a frame without a column of lists (one number in each cell), unless `wanted` names a column of
    vectors, and an object of numbers that gives no table, such as a series of Polars.

    Raises
    ------
    InputError
        If what the object gives is no table, its query fails, or it is several data sets.
    """
    package = type(vectors).__module__.partition(".")[0]
    if hasattr(vectors, "__arrow_c_stream__"):
        try:
            reader = pa.RecordBatchReader.from_stream(vectors)
        except Exception as error:  # of any library, such as a query of DuckDB that fails
            if wanted.vectors is None and _is_numbers(vectors):
                return None
            raise InputError(
                f"{STREAM_NAME}: {type(vectors).__name__} gives no stream of tables ({first_line(error)}); expected "
                "columns with names; make it a frame or a table, or mend its query"
            ) from error
        if hasattr(vectors, "__array__") and wanted.vectors is None and not _has_lists(reader.schema):
            return None
        return VectorStream(_filled(reader), wanted)
    if package == "ray" and hasattr(vectors, "iter_batches"):
        return VectorStream(
            _batches_of(vectors.iter_batches(batch_size=None, batch_format="pyarrow")), wanted
        )
    if package == "datasets" and hasattr(vectors, "with_format"):
        if not hasattr(vectors, "iter"):
            raise InputError(
                f"{STREAM_NAME}: {type(vectors).__name__} has several splits, {', '.join(map(str, vectors))}; expected "
                'one data set; name a split, as in data["train"]'
            )
        return VectorStream(_batches_of(vectors.with_format("arrow").iter(_ROWS_ASKED)), wanted)
    return None


class _Hashed(io.RawIOBase):
    """A file that is written once, from its beginning to its end, and hashed meanwhile."""

    def __init__(self, file: BinaryIO, digest: Any) -> None:
        self._file, self._digest = file, digest

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()


def _filled(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a reader; an empty one with its columns if there is none."""
    empty = [pa.nulls(0, field.type) for field in reader.schema]  # which exist of all types
    yield pa.RecordBatch.from_arrays(empty, schema=reader.schema)
    yield from reader


def _batches_of(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        for batch in table.to_batches():
            yield _with_lists(batch)


def _with_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with lists in place of the vectors of unlike lengths that Ray has a type for."""
    for place, field in enumerate(batch.schema):
        kind = field.type
        if isinstance(kind, pa.ExtensionType) and kind.extension_name == _RAGGED and kind.ndim == 1:
            lists = batch.column(place).storage.flatten()[kind.storage_type.get_field_index("data")]
            batch = batch.set_column(place, field.name, lists)
    return batch


def _no_vectors() -> InputError:
    return InputError(f"{STREAM_NAME}: no vectors; expected at least 1; give a stream with rows")


def _is_numbers(vectors: Any) -> bool:
    return hasattr(vectors, "__array__") and not np.asarray(vectors).dtype.hasobject


def _has_lists(schema: pa.Schema) -> bool:
    return any(pa.types.is_nested(field.type) for field in schema)


def _unbroken(batches: Iterator[pa.RecordBatch], row: int) -> Iterator[pa.RecordBatch]:
    """Yield batches from row `row` on; where the stream breaks off, say after how many rows."""
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except (IndexmillError, MemoryError):
            raise
        except Exception as error:  # of any library, or of a function of the user that makes rows
            where = f"after row {row - 1}" if row else "before row 0"
            raise InputError(
                f"{STREAM_NAME}: breaks off {where} ({_reason(error)}); expected a stream that can be read to its end; "
                "mend what makes it, or make it anew"
            ) from error
        row += batch.num_rows
        yield batch


def _reason(error: Exception) -> str:
    """Return what an error says in a line; of tracebacks in what it says, the error that was raised first."""
    if raised := _RAISED.search(str(error)):
        return raised[1].removesuffix(": ")
    line, name = first_line(error), type(error).__name__
    return line if line == name or isinstance(error, (pa.ArrowException, OSError)) else f"{name}: {line}"


def _decoded(
    first: pa.RecordBatch, rest: Iterator[pa.RecordBatch], columns: Columns, dim: int, most_rows: int
) -> Iterator[RowBlock]:
    """Decode all batches, at most `most_rows` at a time."""
    schema = first.schema
    row = 0
    for batch in _chained(first, rest):
        _check_alike(schema, batch, columns, row)
        for start in range(0, batch.num_rows, most_rows):
            part = batch.slice(start, most_rows)
            yield row_block(part, columns, dim, STREAM_NAME, row)
            row += part.num_rows


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from _unbroken(rest, first.num_rows)


def _check_alike(schema: pa.Schema, batch: pa.RecordBatch, columns: Columns, row: int) -> None:
    """Refuse a batch, from row `row` on, whose columns have other types than those of the first."""
    other = batch.schema
    if schema is other:
        return
    for name in columns.names:
        expected = schema.field(name).type
        got = other.field(name).type if name in other.names else None
        if name == columns.vectors and got is not None:
            got, expected = _stored(got), _stored(expected)  # arrays of any shape are lists
        if got != expected:
            where = f"row {row}" if batch.num_rows <= 1 else f"rows {row} to {row + batch.num_rows - 1}"
            raise InputError(
                f"{STREAM_NAME}: {where}: column {name!r} has type {got or 'none, it is missing'}; "
                f"expected {expected} as in row 0; convert it"
            )


def _stored(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _names(columns: Columns) -> tuple[str, str | None]:
    """Return names of the copy's columns of vectors and of ids, unlike those of the metadata."""
    taken = columns.metadata_schema.names if columns.metadata_schema else ()
    vectors, ids = "vector", "id"
    while vectors in taken or ids in taken:
        vectors, ids = f"_{vectors}", f"_{ids}"
    return vectors, ids if columns.ids else None


def _schema(columns: Columns, names: tuple[str, str | None], dim: int) -> pa.Schema:
    vectors = pa.list_(pa.field("item", pa.from_numpy_dtype(columns.dtype)), dim)
    fields = [pa.field(names[0], vectors)]
    if names[1] is not None:
        fields.append(pa.field(names[1], ID_TYPES[columns.id_type]))
    return pa.schema([*fields, *(columns.metadata_schema or ())])


def _as_batch(block: RowBlock, columns: Columns, schema: pa.Schema, dim: int) -> pa.RecordBatch:
    values = pa.array(np.ascontiguousarray(block.vectors).reshape(-1))
    arrays = [pa.FixedSizeListArray.from_arrays(values, type=schema.field(0).type)]
    if block.ids is not None:
        arrays.append(block.ids)
    if block.metadata is not None:
        arrays += block.metadata.columns
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
