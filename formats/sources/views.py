"""Arrow's views of strings and bytes, which Polars gives, as plain values: some functions of pyarrow take no views."""

from __future__ import annotations

import pyarrow as pa

_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def without_views_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type of `without_views` of an array of `arrow_type`."""
    values = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    return _PLAIN.get(values, arrow_type)


def without_views(array: pa.Array) -> pa.Array:
    """Return views, and a dictionary of them, such as a Categorical of Polars, as plain strings or bytes.

    Other arrays are returned as they are.
    """
    plain = without_views_type(array.type)
    if plain == array.type:
        return array
    if not pa.types.is_dictionary(array.type):
        return array.cast(plain)
    dictionary = array.dictionary.cast(plain)
    return pa.DictionaryArray.from_arrays(array.indices, dictionary).dictionary_decode()
