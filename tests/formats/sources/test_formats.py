"""Every file type gives back the vectors that were written, in order and at random."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.sources import (
    ARROW,
    Array,
    check_source,
    lists,
    make,
    write_bin,
    write_hdf5,
    write_ipc,
    write_parquet,
    write_vecs,
)

from indexmill.formats.sources.arrow_columns import Wanted
from indexmill.formats.sources.file import RowBlock, rechunk, take_by_runs
from indexmill.formats.sources.parquet import ParquetVectors, RowGroupCache
from indexmill.formats.sources.source import array_source, open_source, read_queries

WRITERS: dict[str, tuple[str, list[str], Callable[[Path, Array], None]]] = {
    "fvecs": ("a.fvecs", ["float32"], write_vecs),
    "bvecs": ("a.bvecs", ["uint8"], write_vecs),
    "fbin": ("a.fbin", ["float32"], write_bin),
    "f16bin": ("a.f16bin", ["float16"], write_bin),
    "u8bin": ("a.u8bin", ["uint8"], write_bin),
    "i8bin": ("a.i8bin", ["int8"], write_bin),
    "npy": ("a.npy", list(ARROW), np.save),
    "hdf5": ("a.hdf5", list(ARROW), write_hdf5),
}
for _kind in ("fixed", "list", "large"):
    WRITERS[f"parquet-{_kind}"] = (
        "a.parquet",
        list(ARROW),
        lambda path, vectors, kind=_kind: write_parquet(path, vectors, kind),  # type: ignore[misc]
    )
    WRITERS[f"ipc-{_kind}"] = (
        "a.arrow",
        list(ARROW),
        lambda path, vectors, kind=_kind: write_ipc(path, vectors, kind),  # type: ignore[misc]
    )
CASES = [(name, dtype) for name, (_, dtypes, _) in WRITERS.items() for dtype in dtypes]


def given_out(vectors: Array) -> Array:
    return vectors.astype(np.float32) if vectors.dtype == np.float64 else vectors


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_file_gives_back_what_was_written(tmp_path: Path, name: str, dtype: str) -> None:
    file, _, write = WRITERS[name]
    vectors = make(dtype)
    write(tmp_path / file, vectors)
    source = open_source(tmp_path / file)
    assert source.paths == [str(tmp_path / file)]
    assert source.id_type == "none"
    assert source.metadata_schema is None
    check_source(source, given_out(vectors), 8, [56, 0, 3, 3, 19, 20, 56])
    assert [len(batch.vectors) for batch in source.batches(8)] == [8] * 7 + [1]
    check_source(pickle.loads(pickle.dumps(source)), given_out(vectors), 100, [])


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(list(WRITERS)),
    n=st.integers(1, 40),
    dim=st.integers(1, 9),
    batch_rows=st.integers(1, 50),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_any_shape_survives_any_file(
    name: str, n: int, dim: int, batch_rows: int, seed: int, data: st.DataObject
) -> None:
    file, dtypes, write = WRITERS[name]
    vectors = make(data.draw(st.sampled_from(dtypes)), n, dim, seed)
    rows = data.draw(st.lists(st.integers(0, n - 1), max_size=60))
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / file, vectors)
        check_source(open_source(Path(folder) / file), given_out(vectors), batch_rows, rows)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["fixed", "list", "large"]),
    cuts=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=5),
    batch_rows=st.integers(1, 20),
    data=st.data(),
)
def test_slices_of_tables_with_offsets_give_their_own_rows(
    kind: str, cuts: list[tuple[int, int]], batch_rows: int, data: st.DataObject
) -> None:
    vectors = make("float32", 45, 3)
    whole = lists(vectors, kind)
    chunks = [whole.slice(first, length) for first, length in cuts]
    expected = np.concatenate([vectors[first : first + length] for first, length in cuts])
    if not len(expected):
        return
    rows = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=20))
    table = pa.table({"v": pa.chunked_array(chunks)})
    check_source(array_source(table), expected, batch_rows, rows)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [*ARROW, ">f4", ">f8"])
def test_arrays_in_memory_are_sources(order: Any, dtype: str) -> None:
    vectors = np.asarray(make("float32", 20, 4).astype(dtype), order=order)
    native = vectors.astype(vectors.dtype.newbyteorder("="))
    source = array_source(vectors)
    assert source.paths == ["<array>"]
    check_source(source, given_out(native), 6, [19, 0, 0, 7])


def test_array_carries_ids_and_metadata() -> None:
    metadata = pa.table({"word": ["a", "b", "c"], "n": [1, None, 3]})
    source = array_source(make("float32", 3, 2), ids=["x", "y", "z"], metadata=metadata)
    assert source.id_type == "string"
    first, second = source.batches(2)
    assert first.ids.to_pylist() == ["x", "y"]
    assert second.metadata.to_pylist() == [{"word": "c", "n": 3}]
    assert second.metadata.schema == source.metadata_schema


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("ids", "id_type"),
    [
        (pa.array(range(25), pa.int32()), "int64"),
        (pa.array(range(25), pa.uint16()), "uint64"),
        (pa.array([str(i) for i in range(25)], pa.large_string()), "string"),
        (pa.array([str(i) for i in range(25)]).dictionary_encode(), "string"),
        (pa.array([bytes([i, 0]) for i in range(25)], pa.binary(2)), "binary"),
        (pa.array([bytes([i]) for i in range(25)], pa.large_binary()), "binary"),
    ],
)
def test_ids_and_metadata_travel_with_their_vectors(
    tmp_path: Path, suffix: str, ids: pa.Array, id_type: str
) -> None:
    vectors = make("float32", 25, 3)
    table = pa.table({"w": [f"w{i}" for i in range(25)], "v": lists(vectors, "list"), "k": ids})
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, path, row_group_size=7)
    else:
        with pa.OSFile(str(path), "w") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
    source = open_source(path, id_column="k", metadata_columns=["w"])
    assert source.id_type == id_type
    expected_type = {"int64": pa.int64(), "uint64": pa.uint64(), "string": pa.string(), "binary": pa.binary()}
    plain = ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids
    for batch in source.batches(9):
        rows = slice(batch.start, batch.start + len(batch.vectors))
        assert np.array_equal(batch.vectors, vectors[rows])
        assert batch.ids.type == expected_type[id_type]
        assert batch.ids.to_pylist() == plain[rows].to_pylist()
        assert batch.metadata.schema == source.metadata_schema
        assert batch.metadata.column("w").to_pylist() == table["w"][rows].to_pylist()


def test_vector_column_is_found_beside_other_lists(tmp_path: Path) -> None:
    vectors = make("float16", 4, 3)
    table = pa.table({"tags": [["a"], [], ["b", "c"], None], "v": lists(vectors, "list"), "n": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "a.parquet")
    check_source(open_source(tmp_path / "a.parquet"), vectors, 3, [2])


def test_tensor_extension_columns_are_vectors(tmp_path: Path) -> None:
    vectors = make("float32", 12, 4)
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(vectors)
    check_source(array_source(pa.table({"v": column})), vectors, 5, [11, 2])
    pq.write_table(pa.table({"v": column}), tmp_path / "a.parquet", row_group_size=5)
    check_source(open_source(tmp_path / "a.parquet"), vectors, 5, [11, 2])


def test_compressed_feather_is_read(tmp_path: Path) -> None:
    vectors = make("float32", 30, 4)
    table = pa.table({"v": lists(vectors, "list"), "n": range(30)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    path = tmp_path / "a.feather"
    with pa.OSFile(str(path), "w") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=8)
    check_source(open_source(path), vectors, 7, [29, 1, 1])


def test_float64_infinity_is_kept_for_the_check_to_find() -> None:
    vectors = np.array([[1.0, np.inf], [np.nan, -np.inf]])
    found = array_source(vectors).read(np.array([0, 1]))
    assert np.array_equal(found, vectors.astype(np.float32), equal_nan=True)


def test_row_group_larger_than_the_cache_is_streamed(tmp_path: Path) -> None:
    vectors = make("float32", 50, 6)
    write_parquet(tmp_path / "a.parquet", vectors, group=25)
    from indexmill.formats.sources.filesystem import locate

    file = locate(str(tmp_path / "a.parquet"))
    tiny = ParquetVectors(file, Wanted(), RowGroupCache(limit_bytes=10))
    rows = np.array([0, 0, 24, 25, 49])
    out = np.empty((5, 6), np.float32)
    tiny.take(rows, out, np.arange(5)[::-1])
    assert np.array_equal(out[::-1], vectors[rows])


def test_row_group_cache_stays_within_its_bytes_and_keeps_the_last_used() -> None:
    cache = RowGroupCache(limit_bytes=100)
    loads: list[int] = []

    def get(i: int) -> Array:
        def load() -> Array:
            loads.append(i)
            return np.full(40, i, np.uint8)

        return cache.get(("f", i), load)

    for i in (0, 1, 0, 2, 0, 1):  # 2 pushes out 1, because 0 was used since
        assert (get(i) == i).all()
        assert cache.held_bytes <= 100
    assert loads == [0, 1, 2, 1]


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.integers(0, 5000), max_size=80).map(sorted),
    row_bytes=st.sampled_from([1, 100, 40_000, 1 << 20, 64 << 20]),
)
def test_take_by_runs_reads_bounded_ranges(rows: list[int], row_bytes: int) -> None:
    reads = []

    def read_range(first: int, last: int) -> Array:
        reads.append((first, last))
        return np.arange(first, last).reshape(-1, 1)

    out = np.full((len(rows), 1), -1)
    wanted = np.array(rows, np.int64)
    take_by_runs(wanted, out, np.arange(len(rows)), row_bytes, read_range)
    assert np.array_equal(out[:, 0], wanted)
    assert all((last - first) * row_bytes <= max(8 << 20, row_bytes) for first, last in reads)


@given(sizes=st.lists(st.integers(0, 9), max_size=12), batch_rows=st.integers(1, 12))
def test_rechunk_keeps_rows_and_evens_sizes(sizes: list[int], batch_rows: int) -> None:
    starts = np.cumsum([0, *sizes]).tolist()
    blocks = []
    for first, n in zip(starts, sizes, strict=False):
        values = np.arange(first, first + n, dtype=np.float32).reshape(n, 1)
        ids = pa.array(range(first, first + n), pa.int64())
        blocks.append(RowBlock(first, values, ids, pa.record_batch({"m": ids})))
    out = list(rechunk(iter(blocks), batch_rows))
    total = sum(sizes)
    assert [len(block.vectors) for block in out] == [
        min(batch_rows, total - first) for first in range(0, total, batch_rows)
    ]
    for block in out:
        expected = list(range(block.first_row, block.first_row + len(block.vectors)))
        assert block.vectors[:, 0].tolist() == block.ids.to_pylist() == expected
        assert block.metadata.column("m").to_pylist() == expected


def test_queries_come_whole_and_from_the_test_set(tmp_path: Path) -> None:
    vectors = make("float32")
    write_hdf5(tmp_path / "a.h5", vectors)
    assert np.array_equal(read_queries(tmp_path / "a.h5"), vectors[:3])
    assert np.array_equal(read_queries(tmp_path / "a.h5", column="train"), vectors)
    write_bin(tmp_path / "q.fbin", vectors)
    assert np.array_equal(read_queries(tmp_path / "q.fbin"), vectors)


def test_hdf5_takes_the_only_two_dimensional_set_or_the_named_one(tmp_path: Path) -> None:
    vectors = make("uint8")
    with h5py.File(tmp_path / "a.h5", "w") as root:
        root.create_dataset("deep/er/emb", data=vectors)
        root.create_dataset("labels", data=np.arange(3))
    check_source(open_source(tmp_path / "a.h5"), vectors, 10, [5])
    check_source(open_source(tmp_path / "a.h5", column="/deep/er/emb"), vectors, 10, [5])
