"""Every bad input is refused with an InputError that says where, what was expected and what was found."""

from __future__ import annotations

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
from tests.support.sources import lists, make, write_bin, write_hdf5, write_ipc, write_parquet, write_vecs

from indexmill.formats.errors import InputError
from indexmill.formats.sources.source import array_source, open_source


def consume(path: Path, **columns: Any) -> None:
    for _ in open_source(path, **columns).batches(4):
        pass


def outcome(path: Path) -> str:
    """Return the path if all of it can be read, else the message of the error."""
    try:
        consume(path)
    except InputError as error:
        return str(error)
    return str(path)


def write(path: Path, table: pa.Table) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=3)
    else:
        with pa.OSFile(str(path), "w") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    return path


GOOD = [[1.0, 2.0]] * 10
BAD_ROWS: list[tuple[Any, str]] = [
    (None, r"row 7: null vector; expected 2 components; remove"),
    ([1.0, None], r"row 7: component 1 is null; expected a number"),
]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(("row", "message"), BAD_ROWS)
def test_null_names_file_and_row(tmp_path: Path, suffix: str, fixed: bool, row: Any, message: str) -> None:
    column = pa.array([*GOOD[:7], row, *GOOD[8:]], pa.list_(pa.float32(), 2 if fixed else -1))
    path = write(tmp_path / f"a.{suffix}", pa.table({"v": column}))
    with pytest.raises(InputError, match=rf"a\.{suffix}: {message}"):
        consume(path)
    source = open_source(path)
    with pytest.raises(InputError, match=rf"a\.{suffix}: {message}"):
        source.read(np.array([9, 7]))
    assert source.read(np.array([2])).tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("row", [[], [1.0], [1.0, 2.0, 3.0]])
def test_ragged_row_names_both_lengths(tmp_path: Path, suffix: str, row: list[float]) -> None:
    column = pa.array([*GOOD[:7], row, *GOOD[8:]], pa.list_(pa.float32()))
    path = write(tmp_path / f"a.{suffix}", pa.table({"v": column}))
    message = rf"a\.{suffix}: row 7: {len(row)} components; expected 2 as in row 0"
    with pytest.raises(InputError, match=message):
        consume(path)
    with pytest.raises(InputError, match=message):
        open_source(path).read(np.array([8, 7, 0]))


@pytest.mark.parametrize(
    ("row", "message"), [(None, r"row 0: null vector"), ([], r"row 0: 0 components; expected at least one")]
)
def test_unusable_first_row_is_refused(tmp_path: Path, row: Any, message: str) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"v": pa.array([row, [1.0]], pa.list_(pa.float32()))}))
    with pytest.raises(InputError, match=rf"a\.parquet: {message}"):
        open_source(path)


def test_overflowing_float64_names_row_and_component(tmp_path: Path) -> None:
    vectors = make("float64", 10, 3)
    vectors[6, 2] = -1e39
    message = r"row 6: component 2 is -1e\+39, which overflows float32; expected at most 3\.4e\+38"
    np.save(tmp_path / "a.npy", vectors)
    write_parquet(tmp_path / "a.parquet", vectors)
    for path in (tmp_path / "a.npy", tmp_path / "a.parquet"):
        with pytest.raises(InputError, match=message):
            consume(path)
    with pytest.raises(InputError, match=rf"<array>: {message}"):
        array_source(vectors).read(np.array([9, 6]))


def test_null_id_names_its_row(tmp_path: Path) -> None:
    table = pa.table({"v": lists(make("float32", 8, 2), "list"), "k": [1, 2, 3, 4, 5, None, 7, 8]})
    with pytest.raises(InputError, match=r"a\.parquet: row 5: null id; expected an id in every row"):
        consume(write(tmp_path / "a.parquet", table), id_column="k")


def test_invalid_utf8_is_refused(tmp_path: Path) -> None:
    bad = pa.array([b"a", b"\xff\xfe"]).view(pa.string())
    table = pa.table({"v": lists(make("float32", 2, 2), "list"), "k": bad})
    for suffix in ("parquet", "arrow"):
        with pytest.raises(InputError, match=rf"a\.{suffix}: cannot be read as .*UTF8"):
            consume(write(tmp_path / f"a.{suffix}", table), id_column="k")


def test_wrong_columns_are_named_with_their_alternative(tmp_path: Path) -> None:
    vectors = lists(make("float32", 3, 2), "list")
    table = pa.table(
        {"embedding": vectors, "other": vectors, "word": ["a", "b", "c"], "score": [1.0, 2.0, 3.0]}
    )
    path = write(tmp_path / "a.parquet", table)
    for columns, message in (
        ({}, r"2 columns could be the vectors: embedding, other; expected one; name it with column"),
        ({"column": "embeding"}, r"column: no column 'embeding'; did you mean 'embedding'\?"),
        ({"column": "zzz"}, r"column: no column 'zzz'; columns are embedding, other, word, score"),
        ({"column": "word"}, r"column 'word' has type string; expected a list of .*; try embedding, other"),
        ({"column": "other", "id_column": "words"}, r"id_column: no column 'words'; did you mean 'word'\?"),
        (
            {"column": "other", "id_column": "score"},
            r"ids of type double; expected integers, strings or binary",
        ),
        (
            {"column": "other", "metadata_columns": ["wor"]},
            r"metadata_columns: no column 'wor'; did you mean 'word'",
        ),
    ):
        with pytest.raises(InputError, match=r"a\.parquet: " + message):
            open_source(path, **columns)  # type: ignore[arg-type]
    write(tmp_path / "b.arrow", table.select(["word"]))
    with pytest.raises(InputError, match=r"b\.arrow: no column holds lists of .*; got word: string"):
        open_source(tmp_path / "b.arrow")
    twice = pa.Table.from_arrays([vectors, vectors], names=["v", "v"])
    with pytest.raises(InputError, match=r"<array>: column: 2 columns are called 'v'; expected one"):
        array_source(twice, column="v")


@pytest.mark.parametrize("element", [pa.int32(), pa.int64(), pa.string(), pa.uint16()])
def test_lists_of_other_elements_are_refused(element: pa.DataType) -> None:
    table = pa.table({"v": pa.array([], pa.list_(element))})
    with pytest.raises(
        InputError, match=r"<array>: column 'v' has type list<.*>; expected a list of .*; convert it"
    ):
        array_source(table, column="v")


def test_files_that_disagree_name_each_other(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", make("float32", 4, 3))
    np.save(tmp_path / "b.npy", make("float32", 4, 2))
    np.save(tmp_path / "c.npy", make("uint8", 4, 3))
    with pytest.raises(InputError, match=r"b\.npy: dimension 2; expected 3 as in .*a\.npy; convert"):
        open_source([tmp_path / "a.npy", tmp_path / "b.npy"])
    with pytest.raises(InputError, match=r"c\.npy: dtype uint8; expected float32 as in .*a\.npy"):
        open_source([tmp_path / "a.npy", tmp_path / "c.npy"])
    vectors = lists(make("float32", 4, 3), "list")
    write(tmp_path / "d.parquet", pa.table({"v": vectors, "k": [1, 2, 3, 4]}))
    write(tmp_path / "e.parquet", pa.table({"v": vectors, "k": ["1", "2", "3", "4"]}))
    pair = [tmp_path / "d.parquet", tmp_path / "e.parquet"]
    with pytest.raises(InputError, match=r"e\.parquet: id type string; expected int64 as in .*d\.parquet"):
        open_source(pair, id_column="k")
    with pytest.raises(
        InputError, match=r"e\.parquet: metadata k: string; expected k: int64 as in .*d\.parquet"
    ):
        open_source(pair, metadata_columns=["k"])


def test_no_vectors_at_all_is_refused(tmp_path: Path) -> None:
    write_bin(tmp_path / "a.fbin", make("float32", 0, 3))
    (tmp_path / "b.fvecs").touch()
    np.save(tmp_path / "c.npy", make("float32", 0, 3))
    write_parquet(tmp_path / "d.parquet", make("float32", 0, 3), "list")
    write_ipc(tmp_path / "e.arrow", make("float32", 0, 3), "list")
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(InputError, match=rf"{path.name}: no vectors; expected at least 1"):
            open_source(path)
    with pytest.raises(InputError, match=r"<array>: no vectors"):
        array_source(np.empty((0, 3), np.float32))


def test_dimension_beyond_any_embedding_is_refused() -> None:
    with pytest.raises(InputError, match=r"<array>: dimension 65,537; expected at most 65,536; .*damaged"):
        array_source(np.zeros((1, 65_537), np.uint8))
    assert array_source(np.zeros((1, 65_536), np.uint8)).dim == 65_536


def test_bin_size_and_header_show_the_arithmetic(tmp_path: Path) -> None:
    path = tmp_path / "a.fbin"
    write_bin(path, make("float32", 4, 3))
    whole = path.read_bytes()
    for data, message in (
        (whole[:-1], r"4 rows x 3 dimensions, so expected 8 \+ 4 x 3 x 4 = 56 bytes; got 55; .*truncated"),
        (whole + b"x", r"= 56 bytes; got 57"),
        (whole[:5], r"5 bytes; expected at least 8 for a header of u32 rows, u32 dim"),
        (np.array([3, 0], "<u4").tobytes(), r"header says dimension 0; expected at least 1"),
        (b"\xff" * 20, r"4,294,967,295 rows x 4,294,967,295 dimensions"),
    ):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"a\.fbin: .*" + message):
            open_source(path)


def test_vecs_size_and_dimension_show_the_arithmetic(tmp_path: Path) -> None:
    path = tmp_path / "a.fvecs"
    write_vecs(path, make("float32", 4, 3))
    whole = path.read_bytes()
    for data, message in (
        (
            whole[:-2],
            r"62 bytes; row 0 has dimension 3, so a row takes 4 \+ 3 x 4 = 16 bytes; .*got 3 rows and 14",
        ),
        (b"\x00" * 8, r"row 0: dimension 0; expected at least 1; is this a \.fvecs file"),
        (b"\xff" * 8, r"row 0: dimension -1; expected at least 1"),
        (b"\x01\x00", r"2 bytes; expected at least 4"),
    ):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"a\.fvecs: " + message):
            open_source(path)
    bent = bytearray(whole)
    bent[2 * 16] = 9
    path.write_bytes(bytes(bent))
    with pytest.raises(InputError, match=r"a\.fvecs: row 2: dimension 9; expected 3 as in row 0"):
        consume(path)
    with pytest.raises(InputError, match=r"a\.fvecs: row 2: dimension 9"):
        open_source(path).read(np.array([3, 2]))


def test_file_that_shrinks_while_open_names_the_row(tmp_path: Path) -> None:
    path = tmp_path / "a.u8bin"
    write_bin(path, make("uint8", 10, 4))
    source = open_source(path)
    path.write_bytes(path.read_bytes()[: 8 + 6 * 4 + 2])
    with pytest.raises(
        InputError, match=r"a\.u8bin: row 6: the file ends inside it: .*it changed while it was read"
    ):
        source.read(np.arange(10))


def test_npy_problems_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    for array, message in (
        (
            np.zeros(5, np.float32),
            r"array of shape \(5,\); expected two dimensions \(n_vectors, dim\); reshape",
        ),
        (np.zeros((2, 0), np.float32), r"expected at least one component"),
        (np.zeros((2, 3), np.int64), r"vectors of type int64; expected float64 .*; convert"),
        (np.asfortranarray(np.zeros((2, 3))), r"Fortran order.*ascontiguousarray"),
        (np.array([[{}, {}]]), r"vectors of type object"),
    ):
        np.save(path, array)
        with pytest.raises(InputError, match=r"a\.npy: .*" + message):
            open_source(path)
    np.save(path, np.zeros((2, 3), np.float32))
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(InputError, match=r"expected 128 \+ 2 x 3 x 4 = 152 bytes; got 148"):
        open_source(path)
    path.write_bytes(b"PK\x03\x04 not npy at all")
    with pytest.raises(InputError, match=r"a\.npy: no usable \.npy header .*numpy\.save"):
        open_source(path)


def test_array_problems_are_named() -> None:
    good = np.zeros((3, 2), np.float32)
    metadata = pa.table({"m": [1]})
    for call, message in (
        (lambda: array_source(np.zeros((2, 2, 2))), r"array of shape \(2, 2, 2\); expected two dimensions"),
        (lambda: array_source(good.astype(int)), r"vectors of type int64"),
        (lambda: array_source(good, ids=[1, 2]), r"2 rows of ids for 3 vectors; expected one for each"),
        (lambda: array_source(good, metadata=metadata), r"1 rows of metadata for 3 vectors"),
        (
            lambda: array_source(good, ids=[1, "a", 2]),
            r"ids: .*expected integers, strings or bytes of one type",
        ),
        (lambda: array_source(good, ids=[1.5, 2.5, 3.0]), r"ids of type double"),
        (lambda: array_source(good, ids=[1, None, 2]), r"row 1: null id"),
        (lambda: array_source(good, column="v"), r"column names go with an Arrow table"),
        (lambda: array_source(metadata, ids=[1]), r"ids and metadata go with an array; expected id_column"),
    ):
        with pytest.raises(InputError, match=r"<array>: " + message):
            call()


def test_columns_of_files_without_columns_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", make("float32"))
    write_hdf5(tmp_path / "a.h5", make("float32"))
    with pytest.raises(
        InputError, match=r"a\.npy: a \.npy file has no columns, got column 'v'; leave it out"
    ):
        open_source(tmp_path / "a.npy", column="v")
    for name in ("a.npy", "a.h5"):
        with pytest.raises(
            InputError, match=rf"{name}: a .* file has no columns for ids and metadata, got k, m;"
        ):
            open_source(tmp_path / name, id_column="k", metadata_columns=["m"])


def test_hdf5_problems_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as root:
        root.create_dataset("first", data=make("float32"))
        root.create_dataset("second", data=make("float32"))
        root.create_dataset("labels", data=np.arange(3))
        root.create_dataset("counts", data=np.zeros((3, 3), np.int32))
        root.create_dataset("empty", data=np.zeros((3, 0), np.float32))
    for column, message in (
        (
            None,
            r"no data set 'train'; two-dimensional data sets are .*first \(57, 5\), second \(57, 5\); name one",
        ),
        ("frist", r"column: no data set 'frist'; did you mean 'first'\?"),
        ("labels", r"data set 'labels' has shape \(3,\); expected \(n_vectors, dim\); choose one of: counts"),
        ("counts", r"data set 'counts': vectors of type int32"),
        ("empty", r"data set 'empty' has shape \(3, 0\); expected dim at least 1"),
    ):
        with pytest.raises(InputError, match=r"a\.h5: " + message):
            open_source(path, column=column)


def test_ipc_stream_is_told_from_a_file(tmp_path: Path) -> None:
    table = pa.table({"v": lists(make("float32"), "list")})
    with pa.OSFile(str(tmp_path / "a.arrow"), "w") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(
        InputError, match=r"a\.arrow: does not start with ARROW1; .*not a stream; write it with"
    ):
        open_source(tmp_path / "a.arrow")


@pytest.mark.parametrize(
    ("name", "writer"),
    [
        ("a.parquet", write_parquet),
        ("a.arrow", write_ipc),
        ("a.h5", write_hdf5),
        ("a.npy", np.save),
        ("a.fbin", write_bin),
        ("a.fvecs", write_vecs),
    ],
)
def test_truncated_file_is_an_input_error_at_every_length(
    tmp_path: Path, name: str, writer: Callable[[Path, Any], None]
) -> None:
    path = tmp_path / name
    writer(path, make("float32", 20, 3))
    whole = path.read_bytes()
    row_bytes = 16  # an fvecs file cut between two rows is whole
    for length in range(0, len(whole), max(1, len(whole) // 97)):
        path.write_bytes(whole[:length])
        if name == "a.fvecs" and length and length % row_bytes == 0:
            continue
        with pytest.raises(InputError, match=rf"{name}"):
            consume(path)


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 127), value=st.integers(0, 255))
def test_damaged_npy_header_never_raises_anything_else(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.npy"
    np.save(path, np.ones((4, 3), np.float32))
    data = bytearray(path.read_bytes())
    data[at] = value
    path.write_bytes(bytes(data))
    assert "damaged.npy" in outcome(path)


@settings(max_examples=300, deadline=None)
@given(
    kind=st.sampled_from(["parquet", "arrow", "h5"]),
    damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damaged_file_never_raises_anything_else(
    tmp_path_factory: pytest.TempPathFactory, kind: str, damage: list[tuple[int, int]]
) -> None:
    path = tmp_path_factory.getbasetemp() / f"damaged.{kind}"
    {"parquet": write_parquet, "arrow": write_ipc, "h5": write_hdf5}[kind](path, make("float32", 20, 3))
    data = bytearray(path.read_bytes())
    for at, value in damage:
        data[at % len(data)] = value
    path.write_bytes(bytes(data))
    assert f"damaged.{kind}" in outcome(path)


def test_vector_ids_outside_the_source_are_an_index_error() -> None:
    source = array_source(make("float32", 5, 2))
    for rows in ([5], [-1], [0, 7]):
        with pytest.raises(IndexError, match=r"expected 0 \.\. 4"):
            source.read(np.array(rows))
    assert source.read(np.array([], np.int64)).shape == (0, 2)
