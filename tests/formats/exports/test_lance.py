"""Requests to pylance and its answers, without pylance: columns, rows, arguments, descriptions of segments."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.exports.lance import library
from indexmill.formats.exports.lance.dataset import LanceDataset, float_rows, snippet, vector_column
from indexmill.formats.exports.lance.library import arguments_of, pylance
from indexmill.formats.exports.lance.segments import segment_fields, segment_text
from indexmill.formats.graph.codes import Codebook

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "vector": pa.list_(pa.float32(), 4),
        "half": pa.list_(pa.float16(), 4),
        "short": pa.list_(pa.float32(), 3),
    }
)


def test_the_only_column_that_fits_needs_no_name() -> None:
    assert vector_column(SCHEMA, "d", None, 4) == vector_column(SCHEMA, "d", "vector", 4) == "vector"
    assert vector_column(SCHEMA, "d", None, 3) == "short"


@pytest.mark.parametrize(
    ("name", "dim", "message"),
    [
        ("vectors", 4, r"d: no column 'vectors'; expected one of id, vector, half, short"),
        ("id", 4, r"column 'id' is of type int64; expected fixed_size_list<item: float>\[4\]"),
        ("short", 4, r"column 'short' is of type fixed_size_list<item: float>\[3\]; expected .*\[4\]"),
        ("half", 4, r"column 'half' is of type fixed_size_list<item: halffloat>\[4\]"),
        (None, 5, r"expected one column of type fixed_size_list<item: float>\[5\].*, got none; name one"),
    ],
)
def test_a_column_that_does_not_fit_is_refused_by_its_type(name: str | None, dim: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        vector_column(SCHEMA, "d", name, dim)


def test_of_two_columns_that_fit_one_must_be_named() -> None:
    twice = pa.schema({"a": pa.list_(pa.float32(), 4), "b": pa.list_(pa.float32(), 4)})
    with pytest.raises(InputError, match=r"got a, b; name one with --column"):
        vector_column(twice, "d", None, 4)


def test_rows_are_those_of_the_column_also_of_a_slice() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 3)
    ids = np.arange(4, dtype=np.uint64)
    assert np.array_equal(float_rows(column, ids, "d", "v", 0), rows)
    assert np.array_equal(float_rows(column.slice(1, 2), ids[1:3], "d", "v", 0), rows[1:3])
    assert float_rows(column.slice(0, 0), ids[:0], "d", "v", 0).shape == (0, 3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            [[1, 2], None, None],
            r"d: row 101: null in column 'v'; expected a vector in every row; fill it, or delete "
            r'such rows with dataset.delete\("v IS NULL"\), and run again',
        ),
        (
            [[1, 2], [3, 4], [5, None]],
            r"d: row 102: null in component 1 in column 'v'; .*; fill it, or delete "
            r'the row with dataset.delete\("_rowid = 4294967298"\), and run again',
        ),
    ],
)
def test_a_null_is_refused_with_its_row(values: list[object], message: str) -> None:
    ids = np.arange(3, dtype=np.uint64) + np.uint64(1 << 32)
    with pytest.raises(InputError, match=message):
        float_rows(pa.array(values, pa.list_(pa.float32(), 2)), ids, "d", "v", 100)


@pytest.mark.parametrize("error", [OSError, ValueError, RuntimeError, pa.ArrowInvalid, pa.ArrowException])
def test_what_pylance_raises_is_told_in_a_line_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    class Failing:
        def __getattr__(self, name: str) -> Any:
            raise error(
                "LanceError(IO): No space left on device (os error 28), rust/lance-io/src/a.rs:7:3\nmore"
            )

    def opened(uri: str, version: int | None = None) -> Failing:
        return Failing()

    def written(*_: object, **__: object) -> None:
        Failing().write_dataset()

    stub = SimpleNamespace(dataset=opened, write_dataset=written)
    monkeypatch.setattr("indexmill.formats.exports.lance.dataset.pylance", lambda: stub)
    monkeypatch.setattr("indexmill.formats.exports.lance.library.pylance", lambda: stub)
    monkeypatch.setattr("indexmill.formats.exports.lance.dataset.segment_of", lambda text: text)
    dataset = LanceDataset("d.lance")
    assigned = np.zeros(1, np.uint64), np.zeros(1, np.uint32)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: dataset.latest_version, "cannot be read"),
        (lambda: dataset.indexes(), "cannot be read"),
        (lambda: dataset.segments("v_idx"), "cannot be read"),
        (lambda: dataset.fragments(), "cannot be read"),
        (lambda: list(dataset.vectors("v", [0], 0)), "cannot be read"),
        (
            lambda: dataset.write_segment("v", [0], assigned, {}, tmp_path),
            "a segment of its index cannot be written",
        ),
        (lambda: dataset.merged(["a", "b"]), "the segments of its index cannot be merged"),
        (lambda: dataset.commit("v_idx", "v", "a"), "the index cannot be committed"),
    ]
    for call, problem in calls:
        with pytest.raises(InputError) as told:
            call()
        assert str(told.value).startswith(
            f"d.lance: {problem} (LanceError(IO): No space left on device (os error 28)); "
        )
        assert "run again" in str(told.value)


def test_pivots_are_handed_over_chunk_by_chunk_and_filled_up() -> None:
    rng = np.random.default_rng(0)
    centroids, pivots = (rng.normal(size=(n, 6)).astype(np.float32) for n in (5, 7))
    book = Codebook(pivots, np.array([0, 2, 4, 6], np.uint32))
    given = arguments_of(centroids, book, "L2", "x_idx")
    assert (given["index_type"], given["num_partitions"], given["num_sub_vectors"]) == ("IVF_PQ", 5, 3)
    assert given["pq_codebook"].shape == (3, 256, 2)
    for chunk in range(3):
        assert np.array_equal(given["pq_codebook"][chunk, :7], pivots[:, 2 * chunk : 2 * chunk + 2])
        assert (given["pq_codebook"][chunk, 7:] == pivots[0, 2 * chunk : 2 * chunk + 2]).all()
    flat = arguments_of(centroids, None, "cosine", "x_idx")
    assert (flat["index_type"], flat["metric"], "pq_codebook" in flat) == ("IVF_FLAT", "cosine", False)


@pytest.mark.parametrize("full", [True, False])
def test_a_description_of_a_segment_comes_back_as_it_was(full: bool) -> None:
    fields = {
        "uuid": "0f", "name": "v_idx", "fields": [3], "dataset_version": 7, "fragment_ids": {9, 2}, "index_version": 1,
        "created_at": datetime(2026, 11, 27, 12, 30, 1, 5, UTC) if full else None, "base_id": None,
        "files": [SimpleNamespace(path="index.idx", size_bytes=12)] if full else None,
        "index_details": ("/lance.table.VectorIndexDetails", bytes(range(256))) if full else None,
    }  # fmt: skip
    found = segment_fields(segment_text(SimpleNamespace(**fields)))
    files = [{"path": "index.idx", "size_bytes": 12}] if full else None
    assert found == {**fields, "files": files}


def test_code_that_searches_names_column_and_lists() -> None:
    code = snippet("/data/x.lance", "v", 12, 16)
    compile(code, "snippet", "exec")
    assert all(part in code for part in ("'/data/x.lance'", "'column': 'v'", "np.ones(12", "'nprobes': 16"))


def test_without_pylance_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(ConfigError, match=r"pip install 'indexmill\[lance\]'"):
        pylance()


def test_threads_that_import_pylance_leave_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANCE_LOG", raising=False)
    seen: list[str | None] = []

    def imported(name: str) -> str:
        time.sleep(0.01)  # all threads would be here by now
        seen.append(os.environ.get("LANCE_LOG"))
        return name

    monkeypatch.setattr(library, "import_module", imported)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: pylance(), range(4))) == ["lance"] * 4
    assert seen == ["error"] * 4
    assert "LANCE_LOG" not in os.environ
