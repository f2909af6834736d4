"""Values of the header fields ``dtype`` and ``metric``, which files of several kinds have (docs/formats/graph.md)."""

from __future__ import annotations

from collections.abc import Mapping

#: Values of field ``dtype``; the last two are codes of a scale, which graph nodes alone hold.
DTYPE_CODES = {"float32": 1, "float16": 2, "uint8": 3, "int8": 4, "sq16": 5, "sq8": 6}
#: Types of components that are stored as they are, without a scale.
PLAIN_DTYPES = ("float32", "float16", "uint8", "int8")
#: Values of field ``metric``.
METRIC_CODES = {"l2": 1, "ip": 2, "cosine": 3}


def name_of(codes: Mapping[str, int], code: int) -> str:
    """Return the name that has this code; the caller has checked that one does."""
    return next(name for name, value in codes.items() if value == code)
