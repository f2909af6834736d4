"""Files of vectors in every format, and a check of what a source reads from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.sources.source import VectorSource

Array = NDArray[Any]
ARROW = {"float64": pa.float64(), "float32": pa.float32(), "float16": pa.float16(), "uint8": pa.uint8()}
ARROW["int8"] = pa.int8()


def make(dtype: str, n: int = 57, dim: int = 5, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.normal(size=(n, dim)).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, (n, dim), endpoint=True).astype(dtype)


def lists(vectors: Array, kind: str) -> pa.Array:
    values = pa.array(vectors.ravel(), ARROW[str(vectors.dtype)])
    n, dim = vectors.shape
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(values, dim)
    offsets = np.arange(n + 1) * dim
    if kind == "large":
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def write_vecs(path: Path, vectors: Array) -> None:
    head = np.full((len(vectors), 1), vectors.shape[1], "<i4")
    body = np.ascontiguousarray(vectors).view(np.uint8).reshape(len(vectors), -1)
    path.write_bytes(np.hstack([head.view(np.uint8).reshape(len(vectors), 4), body]).tobytes())


def write_bin(path: Path, vectors: Array) -> None:
    path.write_bytes(np.array(vectors.shape, "<u4").tobytes() + vectors.tobytes())


def write_parquet(path: Path, vectors: Array, kind: str = "fixed", group: int = 10) -> None:
    pq.write_table(pa.table({"v": lists(vectors, kind)}), path, row_group_size=group)


def write_ipc(path: Path, vectors: Array, kind: str = "fixed", rows: int = 10) -> None:
    table = pa.table({"v": lists(vectors, kind)})
    with pa.OSFile(str(path), "w") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


def write_hdf5(path: Path, vectors: Array) -> None:
    with h5py.File(path, "w") as root:
        root.create_dataset("train", data=vectors, chunks=(1, vectors.shape[1]), compression="gzip")
        root.create_dataset("test", data=vectors[:3])


def check_source(source: VectorSource, expected: Array, batch_rows: int, rows: list[int]) -> None:
    """Streaming and random access both equal `expected`."""
    assert (source.n_vectors, source.dim, source.dtype) == (*expected.shape, expected.dtype)
    batches = list(source.batches(batch_rows))
    start = 0
    for batch in batches:
        assert batch.start == start
        assert batch.vectors.flags.c_contiguous
        assert batch.vectors.dtype == expected.dtype
        start += len(batch.vectors)
    assert np.array_equal(np.concatenate([batch.vectors for batch in batches]), expected)
    found = source.read(np.array(rows, np.int64))
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected[np.array(rows, np.int64)])
