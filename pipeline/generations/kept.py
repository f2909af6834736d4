"""Vectors, ids and metadata of the vectors that stay of one or several indexes, one index after the other.

For indexes whose slots are the vector ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.index.vectors import VectorsFile


class Kept(Protocol):
    """An index with ids and metadata by slot."""

    @property
    def metadata(self) -> pq.ParquetFile | None:
        """Rows in the order of slots."""

    @property
    def user_ids(self) -> pa.Array | None:
        """User id of each slot, or None."""


def kept_rows(vectors: VectorsFile, left: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
    """Yield the vectors of slots `left`, which ascend, approximately 4 MiB at a time."""
    for first, rows in vectors.blocks():
        begin, end = np.searchsorted(left, [first, first + len(rows)])
        if end > begin:
            yield rows if end - begin == len(rows) else rows[left[begin:end] - first]


def copy_kept(
    vectors: VectorsFile, left: NDArray[np.int64], into: NDArray[Any],
    stored: Callable[[NDArray[Any]], NDArray[Any]] = lambda rows: rows,
) -> None:  # fmt: skip
    """Write the vectors of slots `left`, which ascend, to `into`, shape (len(left), dim), in the form of `stored`."""
    at = 0
    for rows in kept_rows(vectors, left):
        into[at : at + len(rows)] = stored(rows)
        at += len(rows)


def kept_user_ids(
    indexes: Sequence[Kept], left: Sequence[NDArray[np.int64]], added: pa.Array | None = None
) -> pa.Array | None:
    """Return the user ids of slots `left` of each index, and then the `added` ones; None if they have none.

    Their type is that of the first index.
    """
    kept = indexes[0].user_ids
    if kept is None:
        return None
    users = [
        index.user_ids.take(pa.array(slots)).cast(kept.type)
        for index, slots in zip(indexes, left, strict=True)
        if index.user_ids is not None
    ]
    return pa.concat_arrays([*users, *([] if added is None else [added.cast(kept.type)])])


def write_kept_metadata(
    path: Path,
    indexes: Sequence[Kept],
    left: Sequence[NDArray[np.int64]],
    added: pq.ParquetFile | None = None,
) -> None:
    """Write the metadata of slots `left` of each index, and then what is `added`, a batch at a time.

    The types are those of the first index; without metadata there is no file.
    """
    kept = indexes[0].metadata
    if kept is None:
        return
    schema = pa.schema([pa.field(f.name, f.type) for f in kept.schema_arrow])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for index, slots in zip(indexes, left, strict=True):
            at = 0
            for batch in [] if index.metadata is None else index.metadata.iter_batches():
                begin, end = np.searchsorted(slots, [at, at + len(batch)])
                rows = batch.take(pa.array(slots[begin:end] - at))
                writer.write_table(pa.Table.from_batches([rows]).cast(schema))
                at += len(batch)
        for batch in [] if added is None else added.iter_batches():
            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
