"""Arrays that `Index.search` accepts as queries."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.oracles.files.small_index import write_small_index
from tests.support.indexes.built import Built
from tests.support.indexes.ivf import build_lists
from tests.support.indexes.lsh import fixed as build_tables

from indexmill.formats.errors import InputError
from indexmill.reader import _native
from indexmill.reader.index import Index
from indexmill.reader.ivf import IvfIndex
from indexmill.reader.lsh import LshIndex

DIM = 16

OPTIONS: _native.Options = {
    "k": 3,
    "search_list_size": 40,
    "beam_width": 4,
    "policy": "page",
    "entry": "medoid",
    "threads": 1,
    "inflight": 1,
    "deterministic": True,
    "allow": None,
}


def fixed(vectors: np.ndarray) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])


class Tensor:
    """Knows no more of numpy than torch does."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return self.values if dtype is None else self.values.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8", "float16"])
def test_every_form_of_the_same_queries_finds_the_same(tmp_path: Path, dtype: str) -> None:
    written = write_small_index(tmp_path, n=120, dim=DIM, dtype=dtype)
    index, queries = Index(tmp_path), written.vectors[:9]
    want = index.search(queries, 4, L=60)
    arrow = fixed(queries)
    lists = pa.array([row.tolist() for row in queries], pa.list_(arrow.type.value_type))
    forms = {
        "double": queries.astype(np.float64),
        "lists": queries.tolist(),
        "wide integers": queries.astype(np.int64) if dtype in ("uint8", "int8") else queries,
        "strided": np.repeat(queries, 2, axis=1)[:, ::2],
        "column order": np.asfortranarray(queries),
        "tensor": Tensor(queries),
        "fixed size lists": arrow,
        "a slice": fixed(written.vectors[:20]).slice(0, 9),
        "lists of any size": lists,
        "large lists": lists.cast(pa.large_list(arrow.type.value_type)),
        "chunks": pa.chunked_array([arrow.slice(0, 4), arrow.slice(4, 0), arrow.slice(4)]),
        "a column": pa.table({"id": range(9), "vector": arrow})["vector"],
        "a column of doubles": pa.array(queries.astype(np.float64).tolist(), pa.list_(pa.float64(), DIM)),
        "a tensor type": pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(arrow.type.value_type, [DIM]), arrow
        ),
    }
    for name, form in forms.items():
        found = index.search(form, 4, L=60)
        np.testing.assert_array_equal(found.slots, want.slots, err_msg=name)
        np.testing.assert_array_equal(found.scores, want.scores, err_msg=name)
        ranged = index.range_search(form, want.scores[0, 3], L=120)
        assert ranged.slots[: ranged.starts[1]].tolist()[:4] == want.slots[0].tolist(), name
    for one in (queries[2], Tensor(queries[2]), pa.array(queries[2]), queries[2].tolist()):
        np.testing.assert_array_equal(index.search(one, 4, L=60).slots, want.slots[2:3])


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8"])
def test_the_native_module_refuses_rows_that_are_not_one_after_the_other(
    built: Built, tmp_path: Path, dtype: str
) -> None:
    written = write_small_index(tmp_path, n=120, dim=DIM, dtype=dtype)
    index, rows = Index(tmp_path), np.ascontiguousarray(written.vectors[:DIM])
    lists = IvfIndex(built(build_lists, written.vectors, lists=4)).native
    tables = LshIndex(built(build_tables, written.vectors)).native
    of_lists: _native.IvfOptions = {
        "k": 3, "nprobe": 1, "prune": None, "rerank": 0, "threads": 1, "inflight": 1,
    }  # fmt: skip
    of_tables: _native.LshOptions = {"k": 3, "candidates": None, "probes": None, "threads": 1, "inflight": 1}
    box = _native.Mailbox()
    shifted = np.frombuffer(b"-" + rows.tobytes(), rows.dtype, offset=1)
    refused = {"columns": np.asfortranarray(rows), "strides": np.repeat(rows, 2, axis=1)[:, ::2]}
    if dtype == "float32":
        refused["addresses"] = shifted.reshape(rows.shape)
    for name, array in refused.items():
        np.testing.assert_array_equal(array, rows)
        for ask in (
            lambda queries: index.native.search(queries, OPTIONS),
            lambda queries: index.native.range_search(queries, 1.0, OPTIONS),
            lambda queries: index.native.cache_from_queries(queries, OPTIONS, 1 << 20),
            lambda queries: index.native.search_later(box, 1, queries, OPTIONS),
            lambda queries: index.native.range_search_later(box, 1, queries, 1.0, OPTIONS),
            lambda queries: lists.search(queries, of_lists),
            lambda queries: lists.search_later(box, 1, queries, of_lists),
            lambda queries: tables.search(queries, of_tables),
            lambda queries: tables.search_later(box, 1, queries, of_tables),
        ):
            with pytest.raises(InputError, match="queries: expected a C-contiguous array"):
                ask(array)
            ask(rows)
        found = index.search(array, 3, L=40)
        np.testing.assert_array_equal(found.slots, index.search(rows, 3, L=40).slots, err_msg=name)


def overwritten(array: np.ndarray, ask: Callable[[np.ndarray], Any]) -> Any:
    """Return what `ask` returns for an array that another thread overwrites once the call gives up the lock."""
    array, go = array.copy(), threading.Event()

    def write() -> None:
        go.wait()
        array[:] = 0

    writer = threading.Thread(target=write)
    writer.start()
    go.set()
    answer = ask(array)
    writer.join()
    assert not array.any()
    return answer


def test_queries_and_filters_are_read_once(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    vectors = write_small_index(tmp_path, n=2000, dim=DIM).vectors
    index, queries = Index(tmp_path).native, np.tile(vectors, (4, 1))
    bitmap = np.full(len(vectors) // 8, 255, np.uint8)
    want = index.search(queries, OPTIONS)
    before = sys.getswitchinterval()
    request.addfinalizer(lambda: sys.setswitchinterval(before))
    sys.setswitchinterval(60)  # nobody is asked for the lock before
    for _ in range(20):
        assert overwritten(bitmap, index.filter).n_allowed == len(vectors)
    found = overwritten(queries, lambda array: index.search(array, OPTIONS))
    np.testing.assert_array_equal(found["slots"], want["slots"])
    np.testing.assert_array_equal(found["scores"], want["scores"])


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_queries_whose_distances_overflow_are_refused(tmp_path: Path, metric: str) -> None:
    write_small_index(tmp_path, n=50, dim=DIM, metric=metric)
    index = Index(tmp_path)
    queries = np.zeros((2, DIM), np.float32)
    queries[1, 3] = 1e19
    with pytest.raises(InputError, match=r"queries: row 1: expected a squared length of at most 8\.5\d+e37"):
        index.search(queries, 3)
    queries[1, 3] = 9e18
    assert np.isfinite(index.search(queries, 3).scores).all()


def test_no_queries_have_no_results(tmp_path: Path) -> None:
    write_small_index(tmp_path, n=120, dim=DIM)
    index = Index(tmp_path)
    for none in (np.empty((0, DIM), np.float32), pa.chunked_array([], pa.list_(pa.float32(), DIM))):
        found = index.search(none, 4)
        assert found.slots.shape == found.ids.shape == found.scores.shape == (0, 4)
        assert index.range_search(none, 1.0).starts.tolist() == [0]
        assert found.counters["pages_read"].shape == (0,)


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        (fixed(np.zeros((2, 15), np.float32)), "expected 16 dimensions, got 15"),
        (pa.array([[0.0] * 16, [0.0] * 15]), "queries: row 1: 15 components; expected 16"),
        (pa.array([[0.0] * 16, None]), "queries: row 1: null vector"),
        (pa.chunked_array([[[0.0] * 16], [[0.0] * 15 + [None]]]), "queries: row 1: component 15 is null"),
        (pa.array([["a"] * 16]), r"list<.*string> is not numeric"),
        (pa.table({"id": [1], "vector": [[0.0] * 16]}), r"a table of \['id', 'vector'\]; pass one of its"),
        (np.array([[None] * 16]), "dtype object is not numeric"),
        (np.zeros((1, 2, 16), np.float32), "2-D"),
        (np.full((2, 16), 1e300), "row 0: expected finite numbers"),
        (np.full((2, 16), -np.inf), "row 0: expected finite numbers"),
        (np.zeros((2, 16), np.complex64), "not numeric"),
        ([], "expected 16 dimensions, got 0"),
    ],
)
def test_what_are_no_queries_is_refused(tmp_path: Path, queries: object, said: str) -> None:
    write_small_index(tmp_path, n=50, dim=DIM)
    index = Index(tmp_path)
    for ask in (index.search, lambda queries: index.range_search(queries, 1.0)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InputError, match=said):
                ask(queries)


@pytest.mark.parametrize("value", [np.nan, 0.5, 256.0, -1.0, np.inf])
def test_integer_indexes_take_whole_numbers_in_range_only(tmp_path: Path, value: float) -> None:
    write_small_index(tmp_path, n=50, dim=DIM, dtype="uint8")
    index = Index(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for form in (np.full((1, DIM), value), pa.array([[value] * DIM])):
            with pytest.raises(InputError, match=r"round them to 0\.\.255"):
                index.search(form)


def test_ragged_lists_are_refused_by_name(tmp_path: Path) -> None:
    write_small_index(tmp_path, n=60, dim=8)
    index = Index(tmp_path)
    with pytest.raises(InputError, match=r"queries: .*pass rows of 8 numbers"):
        index.search([[1.0, 2.0], [3.0]], 1)
    with pytest.raises(InputError, match=r"allow: .*pass 60 booleans"):
        index.filter([[1, 2], [3]])


def test_a_cache_can_be_trained_for_searches_from_the_previous_results(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, n=300, dim=8)
    index = Index(tmp_path)
    assert index.cache(1 << 20, written.vectors[:20], entry="previous").n_pages > 0
