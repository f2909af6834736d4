"""Arrow columns for exports: in one chunk, or made from the bytes of records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    joined = column.combine_chunks()
    return joined if isinstance(joined, pa.Array) else joined.chunk(0)


def records(rows: NDArray[Any]) -> pa.Array:
    """Return records of any structured dtype as a column of their bytes, large_binary."""
    kind = pa.binary(rows.itemsize)
    return pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(rows)]).cast(pa.large_binary())


def byte_lengths(texts: pa.Array) -> tuple[int, int]:
    """Return the bytes of the shortest and of the longest string or byte string."""
    found = pc.min_max(pc.binary_length(texts))
    return found["min"].as_py(), found["max"].as_py()
