"""External sort-merge: the one motion behind everything that is larger than memory (eCP's ChunkFiles policy).

    map     compute (key, value, payload) records of one range of input, sort them by (key, value), write one
            chunk file
    merge   for one partition of the keys, read the matching part of every chunk file in turn

A chunk file is an Arrow IPC file, zstd compressed, with exactly one record batch for each partition: its
records sorted by (key, value). A merge task reads one batch of each file and nothing else, so every byte is
written once and read once. Memory: a map task holds its records, a merge task those of its partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def write_chunk(
    path: Path,
    keys: NDArray[np.unsignedinteger],
    values: NDArray[np.unsignedinteger],
    payload: NDArray[np.generic],
    bounds: Sequence[int],
) -> None:
    """Sort records and write them as one chunk file.

    Parameters
    ----------
    keys, values : uint32 arrays, shape (m,)
        Records are sorted by key, then by value.
    payload : array, shape (m, width), C-contiguous
        Carried along.
    bounds : sequence of int, length n_partitions + 1
        Partition p holds keys from ``bounds[p]`` up to, not including, ``bounds[p + 1]``.
    """
    order = np.lexsort((values, keys))
    keys, values, payload = keys[order], values[order], np.ascontiguousarray(payload[order])
    width = payload.dtype.itemsize * payload.shape[1]
    schema = pa.schema([("key", pa.uint32()), ("value", pa.uint32()), ("payload", pa.binary(width))])
    cuts = np.searchsorted(keys, np.asarray(bounds, dtype=np.uint64))
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(path), "w") as file, pa.ipc.new_file(file, schema, options=options) as writer:
        for first, last in pairwise(cuts.tolist()):
            rows = payload[first:last]
            data = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(width), len(rows), [None, pa.py_buffer(rows)]
            )
            columns = [pa.array(keys[first:last]), pa.array(values[first:last]), data]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def merge_partition(
    chunks: Sequence[Path], partition: int, dtype: np.dtype[np.generic]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.generic]]:
    """Read one partition of all chunk files, in (key, value) order.

    Parameters
    ----------
    chunks : sequence of Path
    partition : int
    dtype : numpy dtype
        Of the payload's elements.

    Returns
    -------
    keys, values : uint32 arrays, shape (m,)
    payload : array of `dtype`, shape (m, width)
        Records that agree in key and value keep the order of `chunks`.
    """
    parts = []
    for chunk in chunks:
        with pa.OSFile(str(chunk)) as file:
            parts.append(pa.ipc.open_file(file).get_batch(partition))
    keys = np.concatenate([part.column(0).to_numpy() for part in parts])
    values = np.concatenate([part.column(1).to_numpy() for part in parts])
    payload = np.concatenate([_payload(part.column(2), dtype) for part in parts])
    order = np.lexsort((values, keys))
    return keys[order], values[order], payload[order]


def _payload(column: pa.FixedSizeBinaryArray, dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    width = column.type.byte_width // dtype.itemsize
    data = np.frombuffer(column.buffers()[1] or b"", dtype)
    return data[column.offset * width : (column.offset + len(column)) * width].reshape(-1, width)


def even_bounds(n: int, partitions: int) -> list[int]:
    """Return `partitions` + 1 bounds that cut ``range(n)`` evenly."""
    return [n * p // partitions for p in range(partitions + 1)]
