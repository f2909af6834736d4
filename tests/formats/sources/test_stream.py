"""Streams of Arrow batches: copied in bounded pieces, equal however they are cut, refused by the row that is bad."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.sources import check_source, lists, make

from indexmill.formats.errors import InputError
from indexmill.formats.sources.arrow_columns import Wanted
from indexmill.formats.sources.source import array_source
from indexmill.formats.sources.stream import VectorStream, open_stream

ALL = Wanted("v", "key", ("vector", "id"))


class OnlyStream:
    """An object of another library: it gives the Arrow C stream and nothing else, once."""

    def __init__(self, table: pa.Table, rows: int) -> None:
        self._reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=rows))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._reader.__arrow_c_stream__(requested_schema)


def table(vectors: np.ndarray, kind: str = "fixed") -> pa.Table:
    n = len(vectors)
    columns = {
        "v": lists(vectors, kind),
        "key": [f"key {i}" for i in range(n)],
        "vector": [None if i % 3 else i / 2 for i in range(n)],  # names that the copy would take itself
        "id": pa.array([i % 2 == 0 for i in range(n)]),
    }
    return pa.table(columns)


def opened(vectors: Any, wanted: Wanted = Wanted()) -> VectorStream:  # noqa: B008 - a tuple
    stream = open_stream(vectors, wanted)
    assert stream is not None
    return stream


def rows_of(source: Any) -> tuple[list[Any], list[Any]]:
    batches = list(source.batches(16))
    ids = [one for batch in batches for one in batch.ids.to_pylist()]
    return ids, [one for batch in batches for one in batch.metadata.to_pylist()]


@pytest.mark.parametrize("kind", ["fixed", "list", "large"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "uint8", "int8"])
def test_a_stream_reads_as_its_table(tmp_path: Path, kind: str, dtype: str) -> None:
    vectors = make(dtype)
    whole = table(vectors, kind)
    copy = opened(OnlyStream(whole, 7), ALL).copied(tmp_path / "copy.parquet")
    narrow = vectors.astype(np.float32) if dtype == "float64" else vectors
    check_source(copy, narrow, 10, [3, 56, 0, 3])
    columns = {"column": "v", "id_column": "key", "metadata_columns": ["vector", "id"]}
    assert rows_of(copy) == rows_of(array_source(whole, **columns))
    assert copy.metadata_schema == whole.select(["vector", "id"]).schema


def test_equal_rows_have_equal_copies_and_others_do_not(tmp_path: Path) -> None:
    vectors = make("float32")
    whole, path = table(vectors), tmp_path / "copy.parquet"
    digests = {opened(OnlyStream(whole, rows), ALL).copied(path).digest for rows in (1, 7, 57)}
    assert len(digests) == 1
    other = vectors.copy()
    other[-1, -1] += 1
    digests.add(opened(OnlyStream(table(other), 7), ALL).copied(path).digest)
    digests.add(opened(OnlyStream(whole.slice(1), 7), ALL).copied(path).digest)
    digests.add(opened(OnlyStream(whole, 7), Wanted("v", "key")).copied(path).digest)
    assert len(digests) == 4


def test_a_damaged_copy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "copy.parquet"
    vectors = make("float32", n=500)
    copy = opened(OnlyStream(table(vectors), 100)).copied(path)
    data = bytearray(path.read_bytes())
    at = data.index(vectors[7].tobytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="CRC"):
        list(copy.batches())


BAD: list[tuple[Any, str]] = [
    (None, r"^<stream>: row 23: null vector; expected 2 components"),
    ([1.0], r"^<stream>: row 23: 1 components; expected 2 as in row 0"),
    ([1.0, None], r"^<stream>: row 23: component 1 is null"),
]


@pytest.mark.parametrize(("row", "message"), BAD)
def test_a_bad_row_is_named_by_its_number_in_the_stream(tmp_path: Path, row: Any, message: str) -> None:
    column = pa.array([[1.0, 2.0]] * 23 + [row] + [[3.0, 4.0]] * 9, pa.list_(pa.float32()))
    stream = opened(OnlyStream(pa.table({"v": column}), 10))
    with pytest.raises(InputError, match=message):
        stream.copied(tmp_path / "copy.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_null_id_is_named_by_its_number_in_the_stream(tmp_path: Path) -> None:
    keys = pa.array([None if i == 31 else i for i in range(57)])
    stream = opened(
        OnlyStream(pa.table({"v": lists(make("int8"), "list"), "key": keys}), 10), Wanted("v", "key")
    )
    with pytest.raises(InputError, match=r"^<stream>: row 31: null id"):
        stream.copied(tmp_path / "copy.parquet")


def test_a_stream_that_breaks_off_says_after_which_row(tmp_path: Path) -> None:
    part = table(make("float32", n=12)).to_batches()[0]

    def broken() -> Iterator[pa.RecordBatch]:
        yield part
        raise OSError("the network is gone")

    stream = opened(pa.RecordBatchReader.from_batches(part.schema, broken()))
    with pytest.raises(InputError, match=r"^<stream>: breaks off after row 11 .*the network is gone"):
        stream.copied(tmp_path / "copy.parquet")
    assert list(tmp_path.iterdir()) == []


#: What Ray says of a task that failed, and whose failure ended another.
TRACEBACKS = """\x1b[36mray::f()\x1b[39m (pid=1, ip=10.0.0.1)
    ^^^^
  File "a.py", line 1, in f
    g()
    ^^^
  File "a.py", line 7, in g
    raise ValueError(
{}

The above exception was the direct cause of the following exception:

ray::h() (pid=2, ip=10.0.0.1)
  At least one of the input arguments for this task could not be computed:
  File "b.py", line 2, in h
Outer: more"""
#: The same where Ray leaves out the only frame of the error that was raised first.
WITHOUT_FRAMES = """\x1b[36mray::h()\x1b[39m (pid=2, ip=10.0.0.1)
  At least one of the input arguments for this task could not be computed:
ray.exceptions.RayTaskError: \x1b[36mray::f()\x1b[39m (pid=1, ip=10.0.0.1)
FileNotFoundError: no /data/17.png

The above exception was the direct cause of the following exception:

\x1b[36mray::f()\x1b[39m (pid=1, ip=10.0.0.1)
  File "a.py", line 7, in f
    raise Outer("more") from error
Outer: more"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("x"), r"KeyError: 'x'"),
        (RuntimeError(), "RuntimeError"),
        (OSError(), "OSError"),
        (OSError("the network\nis gone"), "the network"),
        (
            ValueError("cannot decode the picture\nfile: /data/17.png"),
            "ValueError: cannot decode the picture",
        ),
        (ValueError("bad shape: got 3\nhint: use 2"), "ValueError: bad shape: got 3"),
        (ValueError("\nno colon here"), "ValueError: no colon here"),
        (RuntimeError(TRACEBACKS.format("ValueError: no picture")), "ValueError: no picture"),
        (
            RuntimeError(TRACEBACKS.format("ValueError: no picture\nfile: /data/17.png")),
            "ValueError: no picture",
        ),
        (RuntimeError(TRACEBACKS.format("ValueError: \nfile: /data/17.png")), "ValueError"),
        (OSError(TRACEBACKS.format("KeyError")), "KeyError"),
        (RuntimeError(WITHOUT_FRAMES), "FileNotFoundError: no /data/17.png"),
    ],
)
def test_an_error_of_what_makes_the_rows_is_told_with_the_row_it_reached(
    tmp_path: Path, error: Exception, said: str
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"v": [[1.0, 2.0]] * 5})
        raise error

    with pytest.raises(InputError, match=rf"^<stream>: breaks off after row 4 \({said}\); expected a stream"):
        VectorStream(batches(), Wanted()).copied(tmp_path / "copy.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [MemoryError(), InputError("of another input")])
def test_want_of_memory_and_errors_that_are_told_already_stay_as_they_are(
    tmp_path: Path, error: Exception
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"v": [[1.0, 2.0]] * 5})
        raise error

    with pytest.raises(type(error)) as raised:
        VectorStream(batches(), Wanted()).copied(tmp_path / "copy.parquet")
    assert raised.value is error


def test_a_stream_that_gives_no_row_breaks_off_before_row_0(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        raise OSError("the network is gone")
        yield

    stream = opened(pa.RecordBatchReader.from_batches(pa.schema({"v": pa.list_(pa.float32())}), broken()))
    with pytest.raises(InputError, match=r"^<stream>: breaks off before row 0 .*the network is gone"):
        stream.copied(tmp_path / "copy.parquet")


VIEWS = pa.array(["b", None, "a", "b"]).cast(pa.string_view())


@pytest.mark.parametrize(
    "column",
    [
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1], pa.uint32()), VIEWS[2:]),
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.float32(), [2]),
            pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float32(), 2)),
        ),
    ],
    ids=["Categorical of Polars", "tensors"],
)
def test_a_column_that_is_not_wanted_does_not_matter(column: pa.Array, tmp_path: Path) -> None:
    vectors = make("float32", n=4)
    given = OnlyStream(pa.table({"v": lists(vectors, "list"), "other": column}), 3)
    copy = opened(given, Wanted("v")).copied(tmp_path / "copy.parquet")
    assert np.array_equal(np.concatenate([batch.vectors for batch in copy.batches()]), vectors)


@pytest.mark.parametrize("coded", [False, True])
def test_views_of_strings_are_read_as_strings(coded: bool, tmp_path: Path) -> None:
    column = VIEWS
    if coded:
        column = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1], pa.uint32()), VIEWS[2:])
    keys = column.slice(2) if coded else VIEWS[2:]
    whole = pa.table({"v": lists(make("int8", n=4), "list"), "name": column}).slice(2)
    whole = whole.append_column("key", pa.chunked_array([keys]))
    wanted = Wanted("v", "key", ("name",))
    copy = opened(OnlyStream(whole, 1), wanted).copied(tmp_path / "copy.parquet")
    table = array_source(whole, column="v", id_column="key", metadata_columns=["name"])
    for source in (copy, table):
        assert rows_of(source) == (["a", "b"], [{"name": "a"}, {"name": "b"}])
        assert source.metadata_schema == pa.schema({"name": pa.string()})


def nested() -> pa.Table:
    """Views inside of every nested type, with nulls, and the same values without views."""
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.uint32()), VIEWS[2:])
    plain = coded.cast(pa.dictionary(pa.uint32(), pa.string())).cast(pa.string())
    texts, view, text = [["a", "b"], None, [], [None, "c"]], pa.string_view(), pa.string()
    pairs = [[("a", b"b")], None, [], [("c", None)]]
    rows = [{"name": "a", "data": b"b"}, None, {"name": None, "data": b""}, {"name": "c", "data": None}]
    both = {
        "list": [pa.array(texts, pa.list_(one)) for one in (view, text)],
        "large": [pa.array(texts, pa.large_list(one)) for one in (view, text)],
        "fixed": [pa.array([["a", "b"], None] * 2, pa.list_(one, 2)) for one in (view, text)],
        "map": [
            pa.array(pairs, pa.map_(*types)) for types in ((view, pa.binary_view()), (text, pa.binary()))
        ],
        "struct": [
            pa.array(rows, pa.struct(list(zip(("name", "data"), types, strict=True))))
            for types in ((view, pa.binary_view()), (text, pa.binary()))
        ],
        "codes": [pa.ListArray.from_arrays([0, 1, 1, 3, 4], one) for one in (coded, plain)],
        "structs of codes": [pa.StructArray.from_arrays([one], ["code"]) for one in (coded, plain)],
    }
    columns = {f"{name}{end}": two[i] for i, end in enumerate(("", " plain")) for name, two in both.items()}
    return pa.table(columns)


def test_views_inside_of_other_types_are_read_as_strings(tmp_path: Path) -> None:
    table = nested()
    half = len(table.column_names) // 2
    views, plain = (table.select(names) for names in (table.column_names[:half], table.column_names[half:]))
    plain = plain.rename_columns(views.column_names)
    whole = views.append_column("v", lists(make("int8", n=4), "list"))
    wanted = Wanted("v", None, tuple(views.column_names))
    copy = opened(OnlyStream(whole, 3), wanted).copied(tmp_path / "copy.parquet")
    for source in (copy, array_source(make("int8", n=4), metadata=views)):
        assert source.metadata_schema.equals(plain.schema)
        found = pa.Table.from_batches([batch.metadata for batch in source.batches(2)])
        assert found.to_pylist() == plain.to_pylist()


def test_metadata_of_a_type_that_parquet_lacks_are_refused(tmp_path: Path) -> None:
    spans = pa.array([(0, 1, 0)] * 4, pa.month_day_nano_interval())
    whole = pa.table({"v": lists(make("int8", n=4), "list"), "span": spans})
    with pytest.raises(
        InputError, match=r"^<stream>: metadata column 'span' has type month_day_nano_interval"
    ):
        opened(OnlyStream(whole, 2), Wanted("v", None, ("span",))).copied(tmp_path / "copy.parquet")
    with pytest.raises(
        InputError, match=r"^<array>: metadata column 'span' has type month_day_nano_interval"
    ):
        array_source(make("int8", n=4), metadata=whole.select(["span"]))
    assert list(tmp_path.iterdir()) == []


def test_data_sets_in_splits_and_without_rows_are_refused() -> None:
    class Splits(dict[str, Any]):
        def with_format(self, kind: str) -> Any:
            return self

    class Empty(Splits):
        def iter(self, batch_size: int) -> Iterator[pa.Table]:
            return iter(())

    Splits.__module__ = Empty.__module__ = "datasets.stand_in"
    with pytest.raises(InputError, match=r"^<stream>: Splits has several splits, train, test; expected one"):
        open_stream(Splits(train=[], test=[]), Wanted())
    with pytest.raises(InputError, match=r"^<stream>: no vectors; expected at least 1"):
        opened(Empty()).table()


def test_batches_of_other_types_are_refused(tmp_path: Path) -> None:
    batches = [pa.record_batch({"v": lists(make(dtype, n=5), "list")}) for dtype in ("float32", "float64")]
    with pytest.raises(InputError, match=r"^<stream>: rows 5 to 9: column 'v' has type list<item: double>"):
        VectorStream(batches, Wanted()).copied(tmp_path / "copy.parquet")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: OnlyStream(table(make("float32")).slice(0, 0), 7), "no vectors; expected at least 1"),
        (lambda: pa.chunked_array([["a", "b"]]), "ChunkedArray gives no stream of tables"),
        (lambda: OnlyStream(pa.table({"a": [1, 2]}), 7), "no column holds lists"),
    ],
)
def test_a_stream_without_vectors_is_refused(tmp_path: Path, given: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError, match=f"^<stream>: {said}"):
        opened(given()).copied(tmp_path / "copy.parquet")


def test_arrays_are_no_streams() -> None:
    assert open_stream(make("float32"), Wanted()) is None
    assert open_stream([[1.0, 2.0]], Wanted()) is None
    assert open_stream(pa.chunked_array([[1.0, 2.0]]), Wanted()) is None
