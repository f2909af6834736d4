"""Columns of labels as filters: with nulls, of one label, and of a label for each vector."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import indexmill
from indexmill.reader.index import Index

N, K = 600, 5


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, np.ndarray]:
    """An index with three columns, and its vectors."""
    vectors = np.random.default_rng(4).standard_normal((N, 16)).astype(np.float32)
    rows = np.arange(N)
    table = pa.table(
        {
            "vector": pa.FixedSizeListArray.from_arrays(vectors.ravel(), 16),
            "sparse": pa.array([f"s{i % 3}" if i % 4 else None for i in rows]),
            "same": pa.array(["all"] * N),
            "own": pa.array([f"label {i}" for i in rows]),
        }
    )
    path = tmp_path_factory.mktemp("labelled") / "index"
    indexmill.build(table, path, column="vector", metadata_columns=["sparse", "same", "own"], R=16, L=32)
    return Index(path), vectors


def nearest(vectors: np.ndarray, query: np.ndarray, allowed: np.ndarray) -> list[int]:
    distances = np.where(allowed, ((vectors - query) ** 2).sum(axis=1), np.inf)
    return np.argsort(distances, kind="stable")[: min(K, int(allowed.sum()))].tolist()


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("sparse = 's1'", lambda i: bool(i % 4) and i % 3 == 1),
        ("not sparse = 's1'", lambda i: bool(i % 4) and i % 3 != 1),
        ("sparse is null", lambda i: i % 4 == 0),
        ("same = 'all'", lambda i: True),
        ("same != 'all'", lambda i: False),
        ("own = 'label 77'", lambda i: i == 77),
        ("own = 'label 600'", lambda i: False),
        ("own is null", lambda i: False),
    ],
)
def test_searches_return_the_nearest_vectors_of_a_label(
    labelled: tuple[Index, np.ndarray], condition: str, expected: object
) -> None:
    index, vectors = labelled
    assert callable(expected)
    allowed = np.array([expected(i) for i in range(N)])
    mask = index.where(condition)
    np.testing.assert_array_equal(mask, allowed)
    found = index.search(vectors[:7] + 0.1, K, L=N, allow=mask)
    for i, ids in enumerate(found.vector_ids.tolist()):
        want = nearest(vectors, vectors[i] + np.float32(0.1), allowed)
        assert ids == want + [-1] * (K - len(want))


def test_a_column_of_a_label_for_each_vector_makes_as_many_filters(
    labelled: tuple[Index, np.ndarray],
) -> None:
    index, vectors = labelled
    for row in range(0, N, 101):
        found = index.search(vectors[0], K, allow=index.where(f"own = 'label {row}'"))
        assert found.vector_ids[0].tolist() == [row] + [-1] * (K - 1)
