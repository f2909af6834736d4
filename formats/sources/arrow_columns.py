"""Choice of a table's columns of vectors, ids and metadata, and conversion of lists to arrays."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.sources.file import SUPPORTED_DTYPES, RowBlock, Vectors, narrow, starts_of
from indexmill.formats.sources.views import without_views, without_views_type

#: Component type returned for each list element type.
_ELEMENT_DTYPES: dict[pa.DataType, np.dtype[Any]] = {
    pa.float64(): np.dtype(np.float32),
    pa.float32(): np.dtype(np.float32),
    pa.float16(): np.dtype(np.float16),
    pa.uint8(): np.dtype(np.uint8),
    pa.int8(): np.dtype(np.int8),
}
#: Arrow type of each id type.
ID_TYPES = {"int64": pa.int64(), "uint64": pa.uint64(), "string": pa.string(), "binary": pa.binary()}


class Wanted(NamedTuple):
    """Names of the columns that a caller wants: vectors (None: the only lists of numbers), user ids, metadata."""

    vectors: str | None = None
    ids: str | None = None
    metadata: Sequence[str] = ()


@dataclass(frozen=True)
class Columns:
    """The columns to read from one table.

    Attributes
    ----------
    vectors : str
    ids : str or None
    dtype : dtype
        Component type of the vectors returned.
    list_size : int or None
        The dimension, if the type fixes it (fixed_size_list).
    id_type : str
        ``"none"``, ``"int64"``, ``"uint64"``, ``"string"`` or ``"binary"``.
    metadata_schema : pyarrow.Schema or None
        Metadata columns in the requested order.
    """

    vectors: str
    ids: str | None
    dtype: np.dtype[Any]
    list_size: int | None
    id_type: str
    metadata_schema: pa.Schema | None

    @property
    def names(self) -> list[str]:
        """All columns to read, each once."""
        metadata = [] if self.metadata_schema is None else self.metadata_schema.names
        return list(dict.fromkeys([self.vectors, *([self.ids] if self.ids else []), *metadata]))


def choose_columns(schema: pa.Schema, name: str, wanted: Wanted) -> Columns:
    """Find the wanted columns of table `name`.

    Raises
    ------
    InputError
        If a column is missing, ambiguous or of an unsupported type (the message names the most similar column), or a
        metadata column is named twice.
    """
    vectors = _only_vector_column(schema, name) if wanted.vectors is None else wanted.vectors
    vector_type = _storage(_field(schema, vectors, name, "column").type)
    element = vector_type.value_type if _is_list(vector_type) else None
    if element not in _ELEMENT_DTYPES:
        raise InputError(
            f"{name}: column {vectors!r} has type {vector_type}; expected a list of {SUPPORTED_DTYPES}"
            f"{_hint(_vector_columns(schema))}"
        )
    id_type = "none"
    if wanted.ids is not None:
        id_type = id_type_of(_field(schema, wanted.ids, name, "id_column").type, name)
    twice = [one for one in wanted.metadata if list(wanted.metadata).count(one) > 1]
    if twice:
        raise InputError(
            f"{name}: metadata_columns: column {twice[0]!r} is named more than once; expected each column once; leave "
            "the others out"
        )
    metadata = [_field(schema, one, name, "metadata_columns").remove_metadata() for one in wanted.metadata]
    return Columns(
        vectors=vectors,
        ids=wanted.ids,
        dtype=_ELEMENT_DTYPES[element],
        list_size=vector_type.list_size if pa.types.is_fixed_size_list(vector_type) else None,
        id_type=id_type,
        metadata_schema=metadata_schema(metadata, name) if metadata else None,
    )


def metadata_schema(fields: Iterable[pa.Field], name: str) -> pa.Schema:
    """Return the schema in which an index holds metadata of these columns: views become plain strings.

    Raises
    ------
    InputError
        If Parquet, in which an index holds metadata, has no type for a column.
    """
    fields = [field.with_type(without_views_type(field.type)) for field in fields]
    for field in fields:
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
        except pa.ArrowNotImplementedError as error:
            raise InputError(
                f"{name}: metadata column {field.name!r} has type {field.type}; expected a type that Parquet has; "
                "convert it, or leave the column out"
            ) from error
    return pa.schema(fields)


class TableFile:
    """Common part of vector files that are tables in pieces, such as record batches or row groups."""

    def __init__(
        self, name: str, columns: Columns, first: pa.RecordBatch | None, rows: Sequence[int]
    ) -> None:
        self.name, self._columns = name, columns
        self.dim = first_dim(columns, first, name)
        self.dtype, self.id_type = columns.dtype, columns.id_type
        self.metadata_schema = columns.metadata_schema
        self._starts = starts_of(rows)
        self.n_rows = int(self._starts[-1])


def id_type_of(arrow_type: pa.DataType, name: str) -> str:
    """Return the id type of values of `arrow_type`.

    Raises
    ------
    InputError
        If they are not integers, strings or binary values.
    """
    kind = _storage(arrow_type)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_signed_integer(kind):
        return "int64"
    if pa.types.is_unsigned_integer(kind):
        return "uint64"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if any(
        test(kind)
        for test in (
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        )
    ) and not pa.types.is_decimal(kind):
        return "binary"
    raise InputError(
        f"{name}: ids of type {arrow_type}; expected integers, strings or binary values; convert them"
    )


def cast_ids(ids: pa.Array, id_type: str, name: str, first_row: int) -> pa.Array:
    """Cast one block of ids to the Arrow type of `id_type`.

    Raises
    ------
    InputError
        If an id is null; the message names the row.
    """
    if isinstance(ids, pa.ExtensionArray):
        ids = ids.storage
    ids = without_views(ids)
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    _check_no_null(ids, name, first_row, "null id", "an id in every row")
    return ids.cast(ID_TYPES[id_type])


def row_block(batch: pa.RecordBatch, columns: Columns, dim: int, name: str, first_row: int) -> RowBlock:
    """Decode vectors, ids and metadata of a record batch that starts at row `first_row` of `name`.

    Raises
    ------
    InputError
        On a null, a row of another length, or a float64 that overflows; the message names the row.
    """
    rows = range(first_row, first_row + batch.num_rows)
    ids = metadata = None
    if columns.ids is not None:
        ids = cast_ids(batch.column(columns.ids), columns.id_type, name, first_row)
    if columns.metadata_schema is not None:
        schema = columns.metadata_schema
        arrays = [without_views(batch.column(field.name)) for field in schema]
        metadata = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return RowBlock(
        first_row,
        decode_vectors(batch.column(columns.vectors), dim, columns.dtype, name, rows),
        ids,
        metadata,
    )


def decode_vectors(
    lists: pa.Array, dim: int, dtype: np.dtype[Any], name: str, rows: Sequence[int] | NDArray[np.int64]
) -> Vectors:
    """Convert a list array to an array of shape (len(lists), dim); float32 and smaller types are not copied.

    Parameters
    ----------
    lists : list, large_list or fixed_size_list array, or an extension array of one
    rows : sequence of int
        Row of each list in the file, for errors.

    Raises
    ------
    InputError
        On a null row, a null element, a length other than `dim`, or a float64 that overflows.
    """
    if isinstance(lists, pa.ExtensionArray):
        lists = lists.storage
    if lists.null_count:
        row = rows[_first_null(lists)]
        raise InputError(
            f"{name}: row {row}: null vector; expected {dim} components; remove the row or fill it"
        )
    if pa.types.is_fixed_size_list(lists.type):
        lengths = np.full(len(lists), lists.type.list_size) if lists.type.list_size != dim else None
    else:
        lengths = np.diff(lists.offsets.to_numpy())
    if lengths is not None and (lengths != dim).any():
        i = int(np.flatnonzero(lengths != dim)[0])
        raise InputError(
            f"{name}: row {rows[i]}: {lengths[i]} components; expected {dim} as in row 0; "
            "all vectors must have one dimension, remove or fix the row"
        )
    values = lists.flatten()
    if values.null_count:
        row, component = divmod(_first_null(values), dim)
        raise InputError(
            f"{name}: row {rows[row]}: component {component} is null; expected a number; remove the row or "
            "fill it"
        )
    return narrow(values.to_numpy(zero_copy_only=True).reshape(len(lists), dim), dtype, name, rows)


def first_dim(columns: Columns, first: pa.RecordBatch | None, name: str) -> int:
    """Return the dimension of a table: by its type, else by the length of row 0; 0 if there is no row.

    Raises
    ------
    InputError
        If row 0 is null or empty.
    """
    dim = columns.list_size
    if dim is None:
        if first is None or not first.num_rows:
            return 0
        lists = first.column(columns.vectors)
        lists = lists.storage if isinstance(lists, pa.ExtensionArray) else lists
        if not lists.is_valid()[0].as_py():
            raise InputError(
                f"{name}: row 0: null vector; expected a list of numbers; remove the row or fill it"
            )
        dim = int(np.diff(lists.offsets[:2].to_numpy())[0])
    if dim < 1:
        raise InputError(f"{name}: row 0: 0 components; expected at least one; fix the column")
    return dim


def _only_vector_column(schema: pa.Schema, name: str) -> str:
    found = _vector_columns(schema)
    if len(found) == 1:
        return found[0]
    if not found:
        columns = ", ".join(f"{field.name}: {field.type}" for field in schema)
        raise InputError(
            f"{name}: no column holds lists of {SUPPORTED_DTYPES}; got {columns or 'no columns'}"
        )
    raise InputError(
        f"{name}: {len(found)} columns could be the vectors: {', '.join(found)}; expected one; name it with "
        "column"
    )


def _vector_columns(schema: pa.Schema) -> list[str]:
    kinds = ((field.name, _storage(field.type)) for field in schema)
    return [name for name, kind in kinds if _is_list(kind) and kind.value_type in _ELEMENT_DTYPES]


def _field(schema: pa.Schema, wanted: str, name: str, parameter: str) -> pa.Field:
    found = schema.get_all_field_indices(wanted)
    if len(found) == 1:
        return schema.field(found[0])
    if found:
        raise InputError(
            f"{name}: {parameter}: {len(found)} columns are called {wanted!r}; expected one; rename them"
        )
    near = difflib.get_close_matches(wanted, schema.names, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"columns are {', '.join(schema.names) or 'none'}"
    raise InputError(f"{name}: {parameter}: no column {wanted!r}; {advice}")


def _hint(candidates: list[str]) -> str:
    return f"; try {', '.join(candidates)}" if candidates else "; convert it"


def _storage(arrow_type: pa.DataType) -> pa.DataType:
    return arrow_type.storage_type if isinstance(arrow_type, pa.BaseExtensionType) else arrow_type


def _is_list(arrow_type: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_list(arrow_type) or kinds.is_large_list(arrow_type) or kinds.is_fixed_size_list(arrow_type)
    )


def _check_no_null(values: pa.Array, name: str, first_row: int, found: str, expected: str) -> None:
    if values.null_count:
        row = first_row + _first_null(values)
        raise InputError(f"{name}: row {row}: {found}; expected {expected}; remove the row or fill it")


def _first_null(values: pa.Array) -> int:
    return int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
