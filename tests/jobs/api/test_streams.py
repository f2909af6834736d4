"""Indexes of data frames and data sets equal those of the same rows in a table; results go back as frames."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.indexes.builds import clustered, data_files
from tests.support.processes.forks import run_forked

import indexmill
from indexmill.formats.errors import BudgetError, InputError
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.mill.store import COPY_NAME

VECTORS = clustered(300, 8)
SMALL: dict[str, Any] = {"R": 8, "L": 20, "pq_bytes": 4, "workers": 1}
COLUMNS: dict[str, Any] = {"id_column": "name", "metadata_columns": ["price"]}


def rows(vectors: np.ndarray = VECTORS) -> pa.Table:
    n, dim = vectors.shape
    return pa.table(
        {
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), dim),
            "name": [f"item {i}" for i in range(n)],
            "price": np.arange(n) / 4,
        }
    )


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("table") / "ix"
    indexmill.build(rows(), out, **SMALL, **COLUMNS)
    return data_files(out)


FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "reader": lambda table: pa.RecordBatchReader.from_batches(
        table.schema, table.to_batches(max_chunksize=41)
    ),
    "polars": pl.from_arrow,
    "polars lists": lambda table: pl.from_arrow(table).with_columns(pl.col("vector").arr.to_list()),
    "duckdb": lambda table: duckdb.connect().from_arrow(table),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_gives_the_bytes_of_its_table(kind: str, expected: dict[str, bytes], tmp_path: Path) -> None:
    index = indexmill.build(FRAMES[kind](rows()), tmp_path / "ix", **SMALL, **COLUMNS)
    assert index.search(VECTORS[5], k=1).ids.tolist() == [["item 5"]]
    assert data_files(tmp_path / "ix") == expected
    assert [path.name for path in tmp_path.iterdir()] == ["ix"]


def test_a_stream_with_nested_metadata_gives_the_bytes_of_its_table(tmp_path: Path) -> None:
    tags = [["a", f"b{i}"][: i % 3] for i in range(300)]
    table = (
        rows()
        .append_column("tags", pa.array(tags))
        .append_column("at", pa.array([{"tags": t} for t in tags]))
    )
    columns: dict[str, Any] = {"column": "vector", "metadata_columns": ["tags", "at"]}
    for name, given in (("table", table), ("stream", FRAMES["reader"](table))):
        indexmill.build(given, tmp_path / name, **SMALL, **columns)
    assert data_files(tmp_path / "stream") == data_files(tmp_path / "table")


def test_a_frame_of_numbers_is_an_array(tmp_path: Path) -> None:
    built = [
        json.loads((indexmill.build(given, tmp_path / f"{i}", **SMALL).path / "manifest.json").read_text())
        for i, given in enumerate((VECTORS, pl.DataFrame(VECTORS)))
    ]
    assert len({manifest["build_id"] for manifest in built}) == 1


class CountedFrame:
    """A frame of numbers that counts how often its stream is asked for."""

    def __init__(self) -> None:
        self.n_streams = 0
        self._frame = pl.DataFrame(VECTORS)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        self.n_streams += 1
        return self._frame.__arrow_c_stream__(requested_schema)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return VECTORS


def test_a_frame_of_numbers_is_asked_once_what_it_holds(tmp_path: Path) -> None:
    frame = CountedFrame()
    indexmill.build(frame, tmp_path / "ix", **SMALL)
    assert frame.n_streams == 1
    frame = CountedFrame()
    assert len(indexmill.append(tmp_path / "ix", frame)) == 600
    assert frame.n_streams == 1
    frame = CountedFrame()
    array_source(frame)
    assert frame.n_streams == 1


def test_a_series_that_gives_no_stream_is_an_array() -> None:
    source = array_source(pl.Series(VECTORS, dtype=pl.Array(pl.Float32, 8)))
    assert np.array_equal(next(iter(source.batches())).vectors, VECTORS)


def test_a_query_that_fails_is_an_error_of_the_input(tmp_path: Path) -> None:
    query = "select [1.0::float, 2] as vector, cast('word ' || i as int) as price from range(9) rows(i)"
    with pytest.raises(InputError, match=r"^<stream>: .*Could not convert string 'word 0'"):
        indexmill.build(duckdb.connect().sql(query), tmp_path / "ix", column="vector")


def test_a_categorical_of_polars_is_metadata(tmp_path: Path) -> None:
    kinds = pl.Series("kind", ["even", "odd"] * 150, dtype=pl.Enum(["odd", "even"]))
    frame = pl.from_arrow(rows()).with_columns(kinds, pl.col("name").cast(pl.Categorical))
    columns = {"id_column": "name", "metadata_columns": ["kind"]}
    index = indexmill.build(frame, tmp_path / "ix", column="vector", **SMALL, **columns)
    assert index.search(VECTORS[5], k=1).ids.tolist() == [["item 5"]]
    assert index.metadata([7, 4])["kind"].to_pylist() == ["odd", "even"]


def test_lists_and_structs_of_polars_are_metadata(tmp_path: Path) -> None:
    tags = [["a", f"b{i}"] if i % 3 else [] for i in range(300)]
    places = [{"town": f"town {i}", "at": {"name": "x" * (i % 20)}} for i in range(300)]
    frame = pl.from_arrow(rows()).with_columns(
        pl.Series("tags", tags, dtype=pl.List(pl.String)),
        pl.Series("place", places),
        pl.Series("kinds", tags, dtype=pl.List(pl.Categorical)),
        pl.Series("pair", [["left", "right"]] * 300, dtype=pl.Array(pl.String, 2)),
    )
    names = ["tags", "place", "kinds", "pair"]
    index = indexmill.build(frame, tmp_path / "ix", column="vector", metadata_columns=names, **SMALL)
    expected = [
        {"tags": tags[i], "place": places[i], "kinds": tags[i], "pair": ["left", "right"]}
        for i in (7, 6, 299)
    ]
    assert index.metadata([7, 6, 299]).to_pylist() == expected
    metadata = frame.select(names).to_arrow(compat_level=pl.CompatLevel.newest())
    index = indexmill.build(VECTORS, tmp_path / "array", metadata=metadata, **SMALL)
    assert index.metadata([7, 6, 299]).to_pylist() == expected


def test_a_column_that_is_named_twice_is_refused_before_the_copy(tmp_path: Path) -> None:
    for given in (rows(), pl.from_arrow(rows())):
        with pytest.raises(
            InputError, match=r"^<(stream|array)>: metadata_columns: column 'price' is named more than once"
        ):
            indexmill.build(
                given, tmp_path / "ix", column="vector", metadata_columns=["price", "name", "price"]
            )
    assert not (tmp_path / "ix").exists()


def test_a_build_of_a_stream_resumes_and_one_of_other_rows_does_not(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    work, out = tmp_path / "work", tmp_path / "ix"

    def build(given: Any) -> None:
        indexmill.build(given, out, work=str(work), **SMALL, **COLUMNS)

    with pytest.raises(BudgetError):
        indexmill.build(pl.from_arrow(rows()), out, work=str(work), scratch="60KB", **SMALL, **COLUMNS)
    assert not (work / COPY_NAME).exists()
    build(FRAMES["reader"](rows()))
    assert data_files(out) == expected
    ingested = set(work.glob("ingest-*"))
    assert len(ingested) == 1
    assert not (work / COPY_NAME).exists()
    out.rename(tmp_path / "first")
    (work / f".{COPY_NAME}.1234.tmp").write_bytes(b"what a killed run left")
    began = next(iter(ingested)).stat().st_mtime_ns
    build(FRAMES["polars"](rows()))
    assert data_files(out) == expected
    assert {path: path.stat().st_mtime_ns for path in work.glob("ingest-*")} == dict.fromkeys(ingested, began)
    assert list(work.glob(".stream*")) == []
    out.rename(tmp_path / "second")
    build(FRAMES["polars"](rows(VECTORS + 1)))
    assert len(list(work.glob("ingest-*"))) == 2


#: A build of a Parquet file as a stream, in batches of another size than the test's own.
STREAMED = """
import sys, indexmill, pyarrow as pa, pyarrow.parquet as pq
table = pq.read_table(sys.argv[1])
stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=29))
indexmill.build(
    stream, sys.argv[2], R=8, L=20, pq_bytes=4, workers=1, id_column="name", metadata_columns=["price"]
)
"""


@pytest.mark.kill
def test_a_killed_build_of_a_stream_does_not_ingest_equal_rows_again(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    file, other, out = tmp_path / "rows.parquet", tmp_path / "other.parquet", tmp_path / "ix"
    pq.write_table(rows(), file)
    pq.write_table(rows(VECTORS + 1), other)
    assert run_forked(STREAMED, file, out, failpoint="order-begun").returncode == -signal.SIGKILL
    assert (tmp_path / "ix.work" / COPY_NAME).exists()
    killed = run_forked(STREAMED, other, out, failpoint="ingest-begun")
    assert killed.returncode == -signal.SIGKILL
    done = run_forked(STREAMED, file, out, failpoint="ingest-begun")
    assert (done.returncode, done.stderr) == (0, "")
    assert data_files(out) == expected
    assert not (tmp_path / "ix.work").exists()


def test_a_bad_row_of_a_frame_is_named(tmp_path: Path) -> None:
    frame = pl.DataFrame({"vector": [[1.0, 2.0]] * 40 + [None] + [[2.0, 1.0]] * 40})
    with pytest.raises(InputError, match=r"^<stream>: row 40: null vector"):
        indexmill.build(frame, tmp_path / "ix")
    frame = pl.DataFrame({"vector": [[1.0, 2.0]] * 40 + [[float("nan"), 0.0]] + [[2.0, 1.0]] * 40})
    with pytest.raises(InputError, match=r"^<stream>: row 40: component 0 is nan"):
        indexmill.build(frame, tmp_path / "ix")


RAGGED: dict[str, Callable[[list[list[float]]], Any]] = {
    "polars": lambda vectors: pl.DataFrame({"vector": vectors}),
    "duckdb": lambda vectors: duckdb.connect().from_arrow(pa.table({"vector": vectors})),
    "reader": lambda vectors: pa.table({"vector": vectors}).to_reader(max_chunksize=7),
}


@pytest.mark.parametrize("kind", RAGGED)
@pytest.mark.parametrize("row", [[], [1.0], [1.0, 2.0, 3.0]])
def test_a_row_of_another_length_is_named_with_both_lengths(
    kind: str, row: list[float], tmp_path: Path
) -> None:
    frame = RAGGED[kind]([[1.0, 2.0]] * 40 + [row] + [[2.0, 1.0]] * 40)
    with pytest.raises(
        InputError, match=rf"^<stream>: row 40: {len(row)} components; expected 2 as in row 0"
    ):
        indexmill.build(frame, tmp_path / "ix", column="vector")
    assert list(tmp_path.glob("ix/*")) == []


@pytest.mark.parametrize("kind", RAGGED)
@pytest.mark.parametrize(
    ("row", "said"),
    [(None, "null vector"), ([1.0, None], "component 1 is null"), ([1.0], "1 components; expected 2")],
)
def test_a_bad_row_that_is_appended_is_named_and_the_index_stays_as_it_was(
    kind: str, row: Any, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "ix"
    indexmill.build(VECTORS[:, :2], path, **SMALL | {"pq_bytes": 2, "node_dtype": "same"})
    before = data_files(path)
    frame = RAGGED[kind]([[1.0, 2.0]] * 40 + [row] + [[2.0, 1.0]] * 40)
    with pytest.raises(InputError, match=rf"^<array>: row 40: {said}"):
        indexmill.append(path, frame, column="vector")
    assert data_files(path) == before


def test_ids_beside_a_frame_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^<stream>: ids and metadata go with an array; expected id_column"):
        indexmill.build(pl.from_arrow(rows()), tmp_path / "ix", ids=np.arange(300))


def test_a_frame_is_appended(tmp_path: Path) -> None:
    indexmill.build(rows(), tmp_path / "ix", **SMALL, **COLUMNS)
    more = pl.from_arrow(rows(VECTORS[:20] + 0.01)).with_columns(
        (pl.lit("more ") + pl.col("name")).alias("name")
    )
    index = indexmill.append(tmp_path / "ix", more, id_column="name")
    assert len(index) == 320
    assert index.search(VECTORS[3] + 0.01, k=1).ids.tolist() == [["more item 3"]]


def test_results_are_tables_and_streams(tmp_path: Path) -> None:
    index = indexmill.build(rows(), tmp_path / "ix", **SMALL, **COLUMNS)
    found = index.search(VECTORS[:4], k=3)
    table = found.to_arrow()
    assert table.schema == pa.schema(
        {
            "query": pa.int64(),
            "rank": pa.int32(),
            "id": pa.string(),
            "vector_id": pa.int64(),
            "score": pa.float32(),
        }
    )
    assert table["query"].to_pylist() == np.repeat(range(4), 3).tolist()
    assert table["rank"].to_pylist() == [0, 1, 2] * 4
    assert table["id"].to_pylist() == found.ids.ravel().tolist()
    assert table["score"].to_pylist() == found.scores.ravel().tolist()
    assert pl.DataFrame(found).equals(pl.from_arrow(table))
    near = index.range_search(VECTORS[:4], float(found.scores[0, 1]))
    assert near.to_arrow()["query"].to_pylist() == np.repeat(range(4), np.diff(near.starts)).tolist()


def test_neighbours_that_are_missing_have_no_row(tmp_path: Path) -> None:
    index = indexmill.build(rows(), tmp_path / "ix", **SMALL, **COLUMNS)
    one = index.search(VECTORS[:2], k=3, allow=np.array([7]))
    assert one.to_arrow()["id"].to_pylist() == ["item 7", "item 7"]
    none = index.range_search(VECTORS[:2] + 1000, 0.5).to_arrow()
    assert (none.num_rows, none.schema.field("id").type) == (0, pa.string())
