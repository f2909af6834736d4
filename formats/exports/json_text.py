"""Conversion of whole columns to JSON text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Escapes of control characters, which JSON strings need besides those of backslash and quote.
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_CONTROL = {chr(i): _SHORT.get(chr(i), f"\\u{i:04x}") for i in range(32)}


def is_json_type(kind: pa.DataType) -> bool:
    """Return whether a column type is supported: null, boolean, numbers, strings, and dates and times as strings."""
    if pa.types.is_dictionary(kind):
        return is_json_type(kind.value_type)
    checks = (
        pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_string,
        pa.types.is_large_string, pa.types.is_string_view, pa.types.is_temporal, pa.types.is_decimal,
    )  # fmt: skip
    return any(check(kind) for check in checks)


def json_column(values: pa.Array) -> pa.Array:
    """Return each value as JSON text, large_string without nulls: null, NaN and infinity become ``null``."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return json_column(values.dictionary_decode())
    if pa.types.is_null(kind):
        return pa.array(["null"] * len(values), pa.large_string())
    if pa.types.is_floating(kind):
        values = pc.if_else(pc.is_finite(values), values, pa.scalar(None, kind))
        text = values.cast(pa.float32() if pa.types.is_float16(kind) else kind).cast(pa.large_string())
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        text = values.cast(pa.large_string())
    else:
        text = _quoted(values.cast(pa.large_string()))
    return text.fill_null("null")


def _quoted(text: pa.Array) -> pa.Array:
    """Return strings in quotes, escaped as RFC 8259 requires."""
    text = pc.replace_substring(text, "\\", "\\\\")
    text = pc.replace_substring(text, '"', '\\"')
    if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]")).as_py():
        for character, escape in _CONTROL.items():
            text = pc.replace_substring(text, character, escape)
    return join(['"', text, '"'])


def json_objects(columns: Sequence[tuple[str, pa.Array]], rows: int) -> pa.Array:
    """Return an object for each row, with a key for each column: large_string."""
    parts: list[str | pa.Array] = ["{"]
    for i, (name, values) in enumerate(columns):
        key = _quoted(pa.array([name], pa.large_string()))[0].as_py()
        parts += [f"{',' if i else ''}{key}:", values]
    return join([*parts, "}"], rows)


def json_lists(values: pa.Array, length: int) -> pa.Array:
    """Return consecutive groups of `length` numbers as JSON lists: large_string, at most 2 GiB of text."""
    ends = pa.array(np.arange(0, len(values) + 1, length, dtype=np.int32))
    lists = pa.ListArray.from_arrays(ends, json_column(values).cast(pa.string()))
    return join(["[", pc.binary_join(lists, ",").cast(pa.large_string()), "]"])


def join(parts: Sequence[str | pa.Array], rows: int | None = None) -> pa.Array:
    """Concatenate strings and columns of strings row by row; give `rows` if there may be no column."""
    if rows is not None and not any(isinstance(part, pa.Array) for part in parts):
        return pa.array(["".join(str(part) for part in parts)] * rows, pa.large_string())
    scalars = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*scalars, pa.scalar("", pa.large_string()))
