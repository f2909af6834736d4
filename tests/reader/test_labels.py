"""Columns of labels as filters: with nulls, of one label, of a label for each vector; and searches within a label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.oracles.files.small_index import Aids, SmallIndex, write_small_index
from tests.oracles.graph.on_page import LabelOracle

import indexmill
from indexmill.reader.choices import POLICIES
from indexmill.reader.index import Index
from indexmill.reader.trace import times_expanded

N, K = 600, 5
#: Vectors of indexes that are searched within a label.
FEW, DIM = 350, 20
COUNTERS = ("pages_read", "hops", "expansions")


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


@pytest.fixture(params=["shared", "two pages"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> SmallIndex:
    if request.param == "shared":
        return write_small_index(tmp_path / "ix", n=FEW, dim=DIM, R=24, aids=Aids(on_page=True))
    return write_small_index(tmp_path / "ix", n=FEW, dim=250, R=48, aids=Aids(on_page=True, n_chunks=64))


def label_filter(index: Index, mask: np.ndarray) -> Any:
    return index.native.filter(np.packbits(mask, bitorder="little"), True)


def drawn(small: SmallIndex, share: float, seed: int = 0) -> tuple[set[int], np.ndarray]:
    """Slots of a label, and its mask over vector ids."""
    is_there = np.random.default_rng(seed).random(FEW) < share
    mask = np.zeros(FEW, np.bool_)
    mask[small.vector_ids[is_there]] = True
    return set(np.flatnonzero(is_there).tolist()), mask


def queries_of(small: SmallIndex, n: int = 8) -> np.ndarray:
    return np.roll(small.vectors[:n], 1, axis=1)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_searches_within_a_label_do_what_the_oracle_does(
    tmp_path: Path, small: SmallIndex, policy: Any, share: float
) -> None:
    index, queries = Index(tmp_path / "ix"), queries_of(small)
    slots, mask = drawn(small, share)
    oracle = LabelOracle(tmp_path / "ix", slots)
    found = index.search(queries, 5, L=25, beam_width=3, policy=policy, allow=label_filter(index, mask))
    for i, query in enumerate(queries):
        want = oracle.search(query, 5, 25, 3, policy, "centroids")
        assert found.slots[i][: len(want.slots)].tolist() == want.slots.tolist()
        counts = (want.pages_read, want.hops, len(want.expanded))
        assert tuple(int(found.counters[name][i]) for name in COUNTERS) == counts


def test_a_label_of_no_more_vectors_than_candidates_is_read_whole(tmp_path: Path, small: SmallIndex) -> None:
    index, queries = Index(tmp_path / "ix"), queries_of(small)
    slots, mask = drawn(small, 0.05)
    found = index.search(queries, len(slots), L=FEW, allow=label_filter(index, mask))
    assert all(set(row) == slots for row in found.slots.tolist())
    nothing = index.search(queries, 3, allow=label_filter(index, np.zeros(FEW, np.bool_)))
    assert (nothing.slots == -1).all()


def test_a_label_without_an_entry_vertex_is_entered_at_its_first_slot(
    tmp_path: Path, small: SmallIndex
) -> None:
    index, queries = Index(tmp_path / "ix"), queries_of(small)
    slots, _ = drawn(small, 0.8)
    oracle = LabelOracle(tmp_path / "ix", slots)
    slots -= set(oracle.entries.vertices.tolist())
    mask = np.zeros(FEW, np.bool_)
    mask[small.vector_ids[sorted(slots)]] = True
    found = index.search(queries, 5, L=20, beam_width=1, allow=label_filter(index, mask))
    oracle = LabelOracle(tmp_path / "ix", slots)
    for i, query in enumerate(queries):
        assert found.slots[i].tolist() == oracle.search(query, 5, 20, 1, "pipeline").slots.tolist()


def test_only_vectors_of_the_label_are_returned_by_searches_of_a_radius(
    tmp_path: Path, small: SmallIndex
) -> None:
    index, queries = Index(tmp_path / "ix"), queries_of(small)
    slots, mask = drawn(small, 0.5)
    found = index.range_search(queries, float("inf"), L=10, allow=label_filter(index, mask))
    assert set(found.slots.tolist()) <= slots
    assert len(found.slots) > len(queries) * 10


def test_threads_and_queries_in_flight_change_no_search_within_a_label(
    tmp_path: Path, small: SmallIndex
) -> None:
    index, queries = Index(tmp_path / "ix"), queries_of(small, 40)
    _, mask = drawn(small, 0.5)
    first, second = (
        index.search(queries, 5, L=20, threads=threads, inflight=inflight, allow=label_filter(index, mask))
        for threads, inflight in ((1, 1), (3, 7))
    )
    np.testing.assert_array_equal(first.slots, second.slots)
    for name in COUNTERS:
        np.testing.assert_array_equal(first.counters[name], second.counters[name])


@pytest.mark.parametrize("on_page", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_no_other_vertex_is_followed(tmp_path: Path, on_page: bool, policy: Any) -> None:
    n = 6400  # codes in memory of half of so many vectors are not scanned
    written = write_small_index(tmp_path / "ix", n=n, dim=8, R=16, aids=Aids(on_page=on_page, n_navigation=0))
    index, is_there = Index(tmp_path / "ix"), np.arange(n) % 2 == 1
    mask = np.zeros(n, np.bool_)
    mask[written.vector_ids[is_there]] = True
    queries = written.vectors[:6]
    found = index.search(queries, 1, L=1, policy=policy, allow=label_filter(index, mask), trace=True)
    assert is_there[found.slots].all()
    assert (found.counters["code_distances"] < n // 2).all()
    assert found.trace is not None
    followed = times_expanded(found.trace, n) > 0
    assert followed.any()
    assert not (followed & ~is_there).any()
