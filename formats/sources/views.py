"""Arrow's views of strings and bytes, which Polars gives, as plain values: some functions of pyarrow take no views."""

from __future__ import annotations

import pyarrow as pa

_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def without_views_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type of `without_views` of an array of `arrow_type`."""
    return _plain_type(arrow_type, decoded=True)


def without_views(array: pa.Array) -> pa.Array:
    """Return views, and dictionaries of them, such as a Categorical of Polars, as plain strings or bytes.

    Also those inside lists, structs and maps. Other arrays are returned as they are.
    """
    plain = without_views_type(array.type)
    if plain == array.type:
        return array
    # pyarrow decodes dictionaries of plain values only
    return array.cast(_plain_type(array.type, decoded=False)).cast(plain)


def _plain_type(arrow_type: pa.DataType, *, decoded: bool) -> pa.DataType:
    """Return `arrow_type` with plain values for views; `decoded`: and without dictionaries that held views."""
    kinds = pa.types
    if kinds.is_list(arrow_type):
        return pa.list_(_plain_field(arrow_type.value_field, decoded))
    if kinds.is_large_list(arrow_type):
        return pa.large_list(_plain_field(arrow_type.value_field, decoded))
    if kinds.is_fixed_size_list(arrow_type):
        return pa.list_(_plain_field(arrow_type.value_field, decoded), arrow_type.list_size)
    if kinds.is_struct(arrow_type):
        return pa.struct([_plain_field(field, decoded) for field in arrow_type])
    if kinds.is_map(arrow_type):
        key, item = (_plain_field(field, decoded) for field in (arrow_type.key_field, arrow_type.item_field))
        return pa.map_(key, item, arrow_type.keys_sorted)
    if kinds.is_dictionary(arrow_type):
        values = _plain_type(arrow_type.value_type, decoded=decoded)
        if values == arrow_type.value_type:
            return arrow_type
        return values if decoded else pa.dictionary(arrow_type.index_type, values, arrow_type.ordered)
    return _PLAIN.get(arrow_type, arrow_type)


def _plain_field(field: pa.Field, decoded: bool) -> pa.Field:
    """Return a field of a nested type; what a library says of the views in its metadata is left out with them."""
    plain = _plain_type(field.type, decoded=decoded)
    return field if plain == field.type else field.remove_metadata().with_type(plain)
