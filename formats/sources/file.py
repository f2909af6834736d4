"""The interface of vector files of every kind, and their common rules: types, narrowing, reading by runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.sources.bfloat16 import as_float16, is_bfloat16

#: Component types accepted for an index, in messages.
SUPPORTED_DTYPES = (
    "float64 (narrowed to float32), float32, float16, bfloat16 (read as float16), uint8 or int8"
)
#: Largest gap between rows that are read at once: a seek costs more than the bytes of the gap.
_GAP_BYTES = 64 << 10
#: Most bytes of a read of several rows, so that random access needs little memory.
_RUN_BYTES = 8 << 20

Vectors = NDArray[Any]


@dataclass(frozen=True)
class RowBlock:
    """Consecutive rows of one file.

    Attributes
    ----------
    first_row : int
        Number of the first row in the file.
    vectors : array, shape (n_rows, dim), C-contiguous
    ids : pyarrow.Array or None
        Length n_rows, without nulls.
    metadata : pyarrow.RecordBatch or None
        n_rows rows.
    """

    first_row: int
    vectors: Vectors
    ids: pa.Array | None = None
    metadata: pa.RecordBatch | None = None


class VectorFile(Protocol):
    """One file (or array) of vectors: cheap to open, read in order or at random, picklable.

    An empty file may have ``dim`` 0; a source leaves it out before types are compared.
    """

    name: str
    n_rows: int
    dim: int
    dtype: np.dtype[Any]
    id_type: str
    metadata_schema: pa.Schema | None

    def blocks(self, batch_rows: int) -> Iterator[RowBlock]:
        """Yield all rows in order, `batch_rows` at a time; the last block may be shorter."""
        ...

    def take(self, rows: NDArray[np.int64], out: Vectors, positions: NDArray[np.int64]) -> None:
        """Set ``out[positions[i]]`` to row ``rows[i]``.

        Parameters
        ----------
        rows : int64 array, shape (m,)
            Rows of this file, not decreasing; a row may occur several times.
        out : array, shape (n, dim)
        positions : int64 array, shape (m,)
        """
        ...


def vector_dtype(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """Return the component type for vectors stored as `dtype`, in native byte order.

    It is float32 for float64, and float16 for bfloat16.

    Raises
    ------
    InputError
        If `dtype` is not one of `SUPPORTED_DTYPES`.
    """
    kind = np.dtype(dtype).newbyteorder("=")
    if is_bfloat16(kind):
        return np.dtype(np.float16)
    if kind == np.float64:
        return np.dtype(np.float32)
    if kind in (np.float32, np.float16, np.uint8, np.int8):
        return kind
    raise InputError(f"{name}: vectors of type {dtype}; expected {SUPPORTED_DTYPES}; convert them")


def narrow(
    values: Vectors, dtype: np.dtype[Any], name: str, rows: Sequence[int] | NDArray[np.int64]
) -> Vectors:
    """Convert `values` to `dtype`, a result of `vector_dtype`, as a C-contiguous array.

    Parameters
    ----------
    values : array, shape (m, dim)
    rows : sequence of int, length m
        Row of each vector in the file, for errors.

    Raises
    ------
    InputError
        If a finite float64 does not fit float32, or a bfloat16 float16; the message names file, row and component.
    """
    if is_bfloat16(values.dtype):
        return as_float16(values, name, rows)
    if values.dtype.itemsize <= dtype.itemsize:
        return np.ascontiguousarray(values, dtype=dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        out = np.ascontiguousarray(values, dtype=dtype)
    lost = np.isinf(out)
    if lost.any() and (lost := lost & np.isfinite(values)).any():
        row, component = np.argwhere(lost)[0]
        raise InputError(
            f"{name}: row {rows[row]}: component {component} is {values[row, component]!s}, which overflows float32; "
            f"expected at most {np.finfo(np.float32).max:.3g} in magnitude; scale the vectors"
        )
    return out


def starts_of(sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return the first row of each of consecutive parts of these sizes, and the end: int64 (len(sizes) + 1,)."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def parts_with(rows: NDArray[np.int64], starts: NDArray[np.int64]) -> list[tuple[int, slice]]:
    """Return the parts (see `starts_of`) that hold any of ascending `rows`, each with the slice of its rows."""
    cuts = np.searchsorted(rows, starts).tolist()
    return [(i, slice(*cut)) for i, cut in enumerate(pairwise(cuts)) if cut[0] < cut[1]]


def take_by_runs(
    rows: NDArray[np.int64],
    out: Vectors,
    positions: NDArray[np.int64],
    row_bytes: int,
    read_range: Callable[[int, int], Vectors],
) -> None:
    """Implement `VectorFile.take` by reading ranges of near rows, at most 8 MiB (or one row) at a time.

    Parameters
    ----------
    row_bytes : int
        Bytes of one row in the file.
    read_range : callable
        ``read_range(first, last)`` returns rows [first, last) as an array of shape (last - first, dim).
    """
    gap, longest = max(1, _GAP_BYTES // row_bytes), max(1, _RUN_BYTES // row_bytes)
    begin = 0
    while begin < len(rows):
        end = int(np.searchsorted(rows, rows[begin] + longest, side="left"))
        far = np.flatnonzero(np.diff(rows[begin:end]) > gap)
        if len(far):
            end = begin + int(far[0]) + 1
        first, last = int(rows[begin]), int(rows[end - 1]) + 1
        out[positions[begin:end]] = read_range(first, last)[rows[begin:end] - first]
        begin = end


def rechunk(blocks: Iterable[RowBlock], batch_rows: int) -> Iterator[RowBlock]:
    """Regroup consecutive blocks so that all except the last have exactly `batch_rows` rows."""
    waiting: list[RowBlock] = []
    n_waiting = 0
    for block in blocks:
        waiting.append(block)
        n_waiting += len(block.vectors)
        while n_waiting >= batch_rows:
            joined = _join(waiting)
            yield _slice(joined, 0, batch_rows)
            n_waiting -= batch_rows
            waiting = [_slice(joined, batch_rows, n_waiting)] if n_waiting else []
    if n_waiting:
        yield _join(waiting)


def _slice(block: RowBlock, first: int, n_rows: int) -> RowBlock:
    if first == 0 and n_rows == len(block.vectors):
        return block
    return RowBlock(
        block.first_row + first,
        block.vectors[first : first + n_rows],
        None if block.ids is None else block.ids.slice(first, n_rows),
        None if block.metadata is None else block.metadata.slice(first, n_rows),
    )


def _join(blocks: list[RowBlock]) -> RowBlock:
    if len(blocks) == 1:
        return blocks[0]
    head = blocks[0]
    metadata = None
    if head.metadata is not None:
        table = pa.Table.from_batches([block.metadata for block in blocks]).combine_chunks()
        metadata = table.to_batches()[0]
    return RowBlock(
        head.first_row,
        np.concatenate([block.vectors for block in blocks]),
        None if head.ids is None else pa.concat_arrays([block.ids for block in blocks]),
        metadata,
    )
