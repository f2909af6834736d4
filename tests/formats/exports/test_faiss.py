"""Exports to faiss, searched by faiss: its answers are those of our own search over the same graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from tests.oracles.files.small_index import write_small_index
from tests.oracles.graph.nsg import nsg_search
from tests.support.indexes.append import build, points
from tests.support.indexes.export import (
    K,
    assert_same_except_ties,
    id_map,
    our_search,
    our_search_counted,
    paste,
    permuted_lists,
    stored_graph,
    whole_points,
)
from tests.support.indexes.imports import read_all

import indexmill
from indexmill.formats.errors import ConfigError
from indexmill.formats.imports.faiss import open_faiss

N = 3000
QUERIES = whole_points(60, seed=8)
KINDS = {"hnsw": "faiss", "nsg": "faiss-nsg"}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = whole_points(N)
    return build(
        tmp_path_factory.mktemp("faiss") / "ix", rows, R=16, pq_bytes=8, ids=np.arange(N) * 3 + 10**12
    )


def faiss_search(path: Path, queries: np.ndarray, list_size: int) -> np.ndarray:
    found: Any = faiss.read_index(str(path))
    inner = faiss.downcast_index(found.index) if isinstance(found, faiss.IndexIDMap) else found
    if isinstance(inner, faiss.IndexHNSW):
        inner.hnsw.efSearch = list_size
    else:
        inner.nsg.search_L = list_size
    return found.search(queries, K)[1]


def expected(index: Path, kind: str, list_size: int) -> np.ndarray:
    if kind == "hnsw":
        return our_search(index, QUERIES, list_size)
    vectors, neighbours, degrees, medoid = stored_graph(index)
    return nsg_search(vectors, neighbours, degrees, medoid, QUERIES, list_size, K)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("list_size", [10, 16, 64])
def test_faiss_answers_as_our_own_search_does(index: Path, tmp_path: Path, kind: str, list_size: int) -> None:
    indexmill.export(index, KINDS[kind], tmp_path / "out", ids="slot")
    theirs = faiss_search(tmp_path / "out" / "index.faiss", QUERIES, list_size)
    assert_same_except_ties(index, QUERIES, theirs, expected(index, kind, list_size))


def test_faiss_computes_as_many_distances_as_we_do(index: Path, tmp_path: Path) -> None:
    indexmill.export(index, "faiss", tmp_path / "out", ids="slot")
    faiss.cvar.hnsw_stats.reset()
    faiss_search(tmp_path / "out" / "index.faiss", QUERIES, 32)
    _, ours = our_search_counted(index, QUERIES, 32)
    assert faiss.cvar.hnsw_stats.ndis == pytest.approx(ours, rel=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_with_permuted_lists_does_not_pass(index: Path, tmp_path: Path, kind: str) -> None:
    wrong = permuted_lists(index, tmp_path / "wrong")
    indexmill.export(wrong, KINDS[kind], tmp_path / "out", ids="slot")
    theirs = faiss_search(tmp_path / "out" / "index.faiss", QUERIES, 16)
    with pytest.raises(AssertionError):
        assert_same_except_ties(index, QUERIES, theirs, expected(index, kind, 16))


@pytest.mark.parametrize("kind", KINDS)
def test_faiss_answers_with_user_ids(index: Path, tmp_path: Path, kind: str) -> None:
    for ids in ("user", "slot"):
        indexmill.export(index, KINDS[kind], tmp_path / ids, ids=ids)
    table = id_map(tmp_path / "user")
    slots, names = (faiss_search(tmp_path / ids / "index.faiss", QUERIES, 32) for ids in ("slot", "user"))
    assert (table["id"].to_numpy()[slots] == names).all()


def test_vectors_without_ids_are_called_by_their_numbers_in_the_input(tmp_path: Path) -> None:
    rows = whole_points(400)
    indexmill.export(build(tmp_path / "x", rows), "faiss", tmp_path / "out")
    found: Any = faiss.read_index(str(tmp_path / "out" / "index.faiss"))
    faiss.downcast_index(found.index).hnsw.efSearch = 100
    assert found.search(rows[:50], 1)[1].ravel().tolist() == list(range(50))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dtype", "metric"),
    [
        ("float32", "ip"),
        ("float32", "cosine"),
        ("uint8", "l2"),
        ("int8", "l2"),
        ("float16", "l2"),
        ("sq8", "l2"),
        ("sq16", "ip"),
    ],
)
def test_every_type_and_metric_scores_as_we_do(tmp_path: Path, kind: str, dtype: str, metric: str) -> None:
    small = write_small_index(tmp_path / "ix", n=300, dtype=dtype, metric=metric, id_type="none", R=12)
    indexmill.export(small.path, KINDS[kind], tmp_path / "out")
    queries = small.vectors[:20].astype(np.float32)
    asked = queries / np.linalg.norm(queries, axis=1, keepdims=True) if metric == "cosine" else queries
    found: Any = faiss.read_index(str(tmp_path / "out" / "index.faiss"))
    inner = faiss.downcast_index(found.index)
    (inner.hnsw if kind == "hnsw" else inner.nsg).__setattr__(
        "efSearch" if kind == "hnsw" else "search_L", 300
    )
    scores, _ = found.search(np.ascontiguousarray(asked), 5)
    exact = indexmill.open(small.path).search(small.vectors[:20], 5, L=300).scores
    np.testing.assert_allclose(scores, exact, rtol=1e-4, atol=1e-3)


def test_the_nsg_comes_back_as_it_was(index: Path, tmp_path: Path) -> None:
    indexmill.export(index, "faiss-nsg", tmp_path / "out")
    found = open_faiss(tmp_path / "out" / "index.faiss")
    vectors, neighbours, degrees, medoid = stored_graph(index)
    rows, lists = read_all(found)
    assert lists == [row[:d].tolist() for row, d in zip(neighbours, degrees, strict=True)]
    assert (rows == vectors).all()
    assert found.entry == medoid
    imported = indexmill.import_index(tmp_path / "out" / "index.faiss", tmp_path / "back", program="faiss")
    assert (
        imported.search(QUERIES, 5, L=60).ids.tolist()
        == indexmill.open(index).search(QUERIES, 5, L=60).ids.tolist()
    )


@pytest.mark.parametrize("name", KINDS.values())
@pytest.mark.parametrize("ids", ["user", "slot"])
def test_the_snippet_runs(tmp_path: Path, name: str, ids: str) -> None:
    x = build(tmp_path / "x", points(200, 1), metric="cosine")
    found = indexmill.export(x, name, tmp_path / "it's here", ids=ids)  # a name that needs quoting
    assert paste(found["open"]).startswith("[[")


def test_ids_that_are_no_i64_are_refused(tmp_path: Path) -> None:
    rows = points(50, 1)
    for ids, message in (
        (
            np.arange(50, dtype=np.uint64) + np.uint64(2**63 - 3),
            "but faiss holds ids from 0 to 9,223,372,036",
        ),
        ([f"{i}" for i in range(50)], "string ids, but faiss"),
    ):
        indexmill.build(rows, tmp_path / "x", ids=ids, pq_bytes=2, force=True)
        with pytest.raises(ConfigError, match=message):
            indexmill.export(tmp_path / "x", "faiss", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_an_nsg_cannot_begin_where_no_edge_does(tmp_path: Path) -> None:
    indexmill.build(np.ones((1, 8), np.float32), tmp_path / "x", pq_bytes=2)
    with pytest.raises(ConfigError, match="an entry vertex with no neighbours"):
        indexmill.export(tmp_path / "x", "faiss-nsg", tmp_path / "out")
    indexmill.export(tmp_path / "x", "faiss", tmp_path / "out")
    assert faiss_search(tmp_path / "out" / "index.faiss", np.ones((1, 8), np.float32), 10)[0, 0] == 0
