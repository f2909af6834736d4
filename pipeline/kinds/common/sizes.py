"""Sizes as people write them: bytes with a unit, and the memory of searches."""

from __future__ import annotations

import re
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
#: End of a limit that is meant for the code of each vector.
_PER_VECTOR = "/vector"


def parse_size(value: Any) -> Any:
    """Turn a human size such as ``"8GiB"`` or ``"500 MB"`` into bytes; integers pass through.

    Raises
    ------
    ValueError
        If `value` is a string that is not a number with an optional unit.
    """
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", value.lower())
    if match is None:
        raise ValueError(f"{value!r} is not a size; write a number with a unit, such as 8GiB or 500MB")
    return int(float(match.group(1)) * _UNITS[match.group(2) or ""])


class SearchLimit(NamedTuple):
    """A limit of the memory of searches: of each code, or of all that an open index holds."""

    bytes: int
    per_vector: bool


def parse_search_memory(text: str) -> SearchLimit:
    """Read ``"64/vector"`` or a size such as ``"2GB"``.

    Raises
    ------
    ValueError
        If `text` is neither, or no byte is left.
    """
    size = text.removesuffix(_PER_VECTOR)
    try:
        limit = SearchLimit(int(size) if size != text else parse_size(size), size != text)
    except ValueError:
        wanted = "write the bytes of each code, such as 64/vector, or all that searches hold, such as 2GB"
        raise ValueError(f"{text!r} is not a memory of searches; {wanted}") from None
    if limit.bytes < 1:
        raise ValueError(f"{text!r}: at least 1 byte")
    return limit


def _checked(text: str) -> str:
    parse_search_memory(text)
    return text


Bytes = Annotated[int, BeforeValidator(parse_size), Field(gt=0)]
SearchMemory = Annotated[str, BeforeValidator(str), AfterValidator(_checked)]
