"""Graphs of faiss: read without faiss, and equal to what faiss itself reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from tests.support.indexes.append import assert_sound, manifest
from tests.support.indexes.imports import clustered_rows, costs, lists_of, read_all
from tests.support.indexes.made_by_faiss import make_hnsw, make_nsg

import indexmill
from indexmill.formats.errors import ConfigError
from indexmill.formats.imports.faiss import open_faiss

N, K = 700, 10
ROWS = clustered_rows(N)
QUERIES = clustered_rows(20, seed=5)


def level_0(index: Any) -> list[list[int]]:
    """The lists that faiss itself has."""
    graph = index.hnsw
    neighbours = faiss.vector_to_array(graph.neighbors)
    offsets = faiss.vector_to_array(graph.offsets).astype(np.int64)
    places = graph.nb_neighbors(0)
    return [[int(u) for u in neighbours[at : at + places] if u >= 0] for at in offsets[:-1]]


@pytest.fixture(scope="module")
def hnsw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faiss") / "hnsw.faiss"
    faiss.write_index(make_hnsw(ROWS), str(path))
    return path


@pytest.fixture(scope="module")
def nsg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faiss") / "nsg.faiss"
    faiss.write_index(make_nsg(ROWS), str(path))
    return path


def test_the_lists_of_level_0_are_those_of_faiss(hnsw: Path) -> None:
    index = open_faiss(hnsw)
    vectors, lists = read_all(index)
    assert lists == level_0(make_hnsw(ROWS))
    assert (vectors == ROWS).all()
    assert (index.kind, index.metric, index.lists.width, index.entry) == ("faiss-hnsw", "l2", 12, None)


def test_the_lists_of_an_nsg_are_those_of_faiss(nsg: Path) -> None:
    index, theirs = open_faiss(nsg), faiss.read_index(str(nsg))
    vectors, lists = read_all(index)
    graph = theirs.nsg.get_final_graph()
    assert lists == [[u for u in (graph.at(v, j) for j in range(graph.K)) if u >= 0] for v in range(N)]
    assert (vectors == ROWS).all()
    assert (index.kind, index.entry, index.lists.width) == ("faiss-nsg", theirs.nsg.enterpoint, 9)


@pytest.mark.parametrize("kind", ["hnsw", "nsg"])
def test_an_imported_graph_is_the_graph_and_answers_like_faiss(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path = request.getfixturevalue(kind)
    index = indexmill.import_index(path, tmp_path / "ix", program="faiss", pq_bytes=4)
    assert_sound(tmp_path / "ix")
    _, lists = read_all(open_faiss(path))
    facts, origin = manifest(tmp_path / "ix")["graph"], manifest(tmp_path / "ix")["input"]["imported"]
    assert origin["from"] == f"faiss-{kind}"
    if origin["unreachable"] == 0:
        ours = lists_of(tmp_path / "ix")  # an NSG may name a neighbour twice
        assert [sorted(list_) for list_ in ours] == [sorted(set(list_)) for list_ in lists]
    else:
        assert facts["edges_added"] > 0
    theirs = faiss.read_index(str(path))
    if kind == "hnsw":
        theirs.hnsw.efSearch = N
    else:
        theirs.nsg.search_L = N
    _, ids = theirs.search(QUERIES, K)
    found = index.search(QUERIES, K, L=N).vector_ids
    np.testing.assert_allclose(*(costs(ROWS, QUERIES, each, "l2") for each in (found, ids)), rtol=1e-5)


def test_inner_products_and_ids_come_along(tmp_path: Path) -> None:
    inner = make_hnsw(ROWS, metric=faiss.METRIC_INNER_PRODUCT)
    wrapped = faiss.IndexIDMap(make_hnsw(ROWS[:0].copy(), metric=faiss.METRIC_INNER_PRODUCT))
    names = np.arange(N, dtype=np.int64) * 3 + 5_000_000_000
    wrapped.add_with_ids(ROWS, names)
    for index, name in ((inner, "plain"), (wrapped, "mapped")):
        faiss.write_index(index, str(tmp_path / name))
    plain = indexmill.import_index(tmp_path / "plain", tmp_path / "a", program="faiss", pq_bytes=4)
    mapped = indexmill.import_index(tmp_path / "mapped", tmp_path / "b", program="faiss", pq_bytes=4)
    assert manifest(tmp_path / "a")["parameters"]["metric"] == "ip"
    truth = np.argsort(-QUERIES @ ROWS.T, axis=1, kind="stable")[:, :K]
    found = plain.search(QUERIES, K, L=N)
    np.testing.assert_allclose(
        *(costs(ROWS, QUERIES, each, "ip") for each in (found.vector_ids, truth)), rtol=1e-5
    )
    there = mapped.search(QUERIES, K, L=N)
    assert (names[there.vector_ids] == np.array(there.ids)).all()


def test_unit_vectors_may_be_searched_by_cosine(tmp_path: Path) -> None:
    unit = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    faiss.write_index(make_hnsw(unit, metric=faiss.METRIC_INNER_PRODUCT), str(tmp_path / "x"))
    index = indexmill.import_index(
        tmp_path / "x", tmp_path / "ix", program="faiss", metric="cosine", pq_bytes=4
    )
    truth = np.argsort(costs_of_all(unit), axis=1, kind="stable")[:, :K]
    found = index.search(QUERIES, K, L=N).vector_ids
    np.testing.assert_allclose(*(costs(unit, QUERIES, each, "cosine") for each in (found, truth)), rtol=1e-4)


def test_vectors_of_any_length_may_not_be_searched_by_cosine(hnsw: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"metric: cosine, but vector 0 of .* has length"):
        indexmill.import_index(hnsw, tmp_path / "ix", program="faiss", metric="cosine")
    assert not (tmp_path / "ix").exists()


def costs_of_all(rows: np.ndarray) -> np.ndarray:
    everyone = np.broadcast_to(np.arange(len(rows)), (len(QUERIES), len(rows)))
    return costs(rows, QUERIES, everyone, "cosine")


def test_one_vector_is_an_index(tmp_path: Path) -> None:
    faiss.write_index(make_hnsw(ROWS[:1]), str(tmp_path / "x"))
    index = indexmill.import_index(tmp_path / "x", tmp_path / "ix", program="faiss")
    assert manifest(tmp_path / "ix")["graph"]["greatest_degree"] == 0
    assert index.search(QUERIES[:1], 1).vector_ids.tolist() == [[0]]
