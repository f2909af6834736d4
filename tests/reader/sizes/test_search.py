"""Searches of indexes that lie beyond 2^32 bytes, 2^24 pages and 2^24 blocks of their files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.sizes.far import N_FAR, Far, far_graph, far_lists, far_tables
from tests.support.sizes.sparse import BYTES_32, PAGES_24, damage, need_holes

import indexmill
from indexmill.formats.errors import CorruptFile
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.reader.index import SearchResult

ENGINES = ("auto", "pread", "mmap")
PAGES_32 = BYTES_32 // PAGE_BYTES
K = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("far")
    need_holes(folder)
    return folder


def queries_of(index: Far) -> NDArray[np.float32]:
    """Vectors, of which one component is another."""
    queries = index.vectors[::9].copy()
    queries[:, 5] = 0.5
    return queries


def assert_nearest(index: Far, found: SearchResult) -> None:
    """Ties are any of the equal vectors: their distances are compared, and whether these are those of the ids."""
    queries = queries_of(index)
    _, wanted = index.nearest(queries, K)
    assert np.array_equal(found.scores, wanted)
    vectors = index.vectors[found.vector_ids - (index.n - N_FAR)]
    assert np.array_equal(((vectors - queries[:, None]) ** 2).sum(axis=2), wanted)


@pytest.fixture(
    scope="module", params=[(900, PAGES_32, 0), (65000, PAGES_24, 0), (65000, PAGES_24, 4)],
    ids=["pages-32", "pages-24", "codes-on-page"],
)  # fmt: skip
def graph(request: pytest.FixtureRequest, folder: Path) -> Far:
    dim, pages, code_bytes = request.param
    return far_graph(folder / f"graph-{dim}-{code_bytes}", dim, pages, code_bytes)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", ["pipeline", "page", "completion", "beam"])
def test_graphs_are_searched_where_their_nodes_lie_far(graph: Far, engine: str, policy: str) -> None:
    index = indexmill.open(graph.path, engine=engine)
    assert_nearest(graph, index.search(queries_of(graph), K, L=N_FAR, policy=policy))
    traced = index.search(queries_of(graph)[:1], K, L=N_FAR, policy=policy, trace=True).trace
    assert min(traced["vertex"].drop_null().to_pylist()) >= graph.n - N_FAR


def test_damage_of_a_node_far_behind_is_named(folder: Path) -> None:
    index = far_graph(folder / "damaged", 900, PAGES_32)
    page = 1 + index.n - 1  # of the medoid: one node a page
    damage(index.path / "graph.imx", page * PAGE_BYTES + 100)
    with pytest.raises(CorruptFile, match=f"page {page}: "):
        indexmill.open(index.path).search(queries_of(index), K, L=N_FAR)


@pytest.fixture(scope="module", params=[PAGES_32, PAGES_24], ids=["pages-32", "pages-24"])
def lists(request: pytest.FixtureRequest, folder: Path) -> Far:
    return far_lists(folder / f"lists-{request.param}", 1 << 16, request.param)


@pytest.mark.parametrize("engine", ENGINES)
def test_lists_are_scanned_that_lie_far(lists: Far, engine: str) -> None:
    assert_nearest(lists, indexmill.open(lists.path, engine=engine).search(queries_of(lists), K, nprobe=1))


@pytest.fixture(scope="module", params=[128, 4096])
def tables(request: pytest.FixtureRequest, folder: Path) -> Far:
    return far_tables(folder / f"tables-{request.param}", request.param, PAGES_24 + 1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("in_memory", [True, False])
def test_chains_are_followed_that_lie_far(tables: Far, engine: str, in_memory: bool) -> None:
    place = "memory" if in_memory else "storage"
    index = indexmill.open(tables.path, engine=engine, vectors="storage", tables=place)
    found = index.search(tables.vectors, K, candidates=N_FAR)
    assert np.array_equal(found.scores[:, 0], np.zeros(N_FAR))
    there = found.vector_ids >= 0
    assert there[:, 0].all()
    assert found.vector_ids[there].min() >= tables.n - N_FAR
    vectors = tables.vectors[np.where(there, found.vector_ids - (tables.n - N_FAR), 0)]
    distances = ((vectors - tables.vectors[:, None]) ** 2).sum(axis=2)
    assert np.array_equal(found.scores[there], distances[there])
