"""Graphs whose nodes hold the codes of their neighbours: built, searched, changed, damaged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.builds import assert_sound, build, clustered

import indexmill
from indexmill.formats.errors import ConfigError, CorruptFile
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.reader import _native
from indexmill.reader.index import Index

N, DIM, K = 3000, 24, 10
ON_PAGE: dict[str, Any] = {"codes_on_page": True, "node_dtype": "sq8", "R": 16}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same graph with codes in memory and with codes in its nodes."""
    folder, vectors = tmp_path_factory.mktemp("pair"), clustered(N, DIM)
    plain = build(folder / "plain", vectors, **{**ON_PAGE, "codes_on_page": False, "navigation": 0.0})
    return plain, build(folder / "page", vectors, **ON_PAGE)


def near(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    return np.argsort(((vectors.astype(np.float64) - query) ** 2).sum(axis=1), kind="stable")[:K]


def recall(index: Index, **how: Any) -> float:
    vectors, queries = clustered(N, DIM), clustered(100, DIM, seed=5)
    found = index.search(queries, K, **how).vector_ids
    return float(
        np.mean([len(set(row) & set(near(vectors, q))) / K for row, q in zip(found, queries, strict=True)])
    )


def test_nodes_hold_the_codes_of_their_neighbours(pair: tuple[Path, Path]) -> None:
    plain, page = pair
    assert_sound(page)
    with IndexFiles(plain) as without, IndexFiles(page) as files:
        nodes, node = files.graph.read_all(), files.graph.node_format
        assert node.code_bytes == files.codes.shape[1] == 8
        assert node.node_bytes == DIM + 4 + 16 * (4 + 8)
        assert node.nodes_per_page == (PAGE_BYTES - 4) // node.node_bytes
        assert nodes.codes is not None
        listed = np.arange(16) < nodes.degrees[:, None]
        assert np.array_equal(nodes.codes[listed], files.codes[nodes.neighbours[listed]])
        assert not nodes.codes[~listed].any()
        assert files.navigation is None
        old = without.graph.read_all()
        by_id = np.argsort(files.vector_ids), np.argsort(without.vector_ids)
        assert np.array_equal(nodes.vectors[by_id[0]], old.vectors[by_id[1]])
        assert np.array_equal(nodes.degrees[by_id[0]], old.degrees[by_id[1]])


@pytest.mark.parametrize("policy", ["pipeline", "page", "completion", "beam"])
def test_searches_find_as_much_as_with_codes_in_memory(pair: tuple[Path, Path], policy: str) -> None:
    plain, page = (Index(path) for path in pair)
    for size in (20, 60):
        assert (
            recall(page, L=size, policy=policy)
            >= recall(plain, L=size, policy=policy, entry="centroids") - 0.02
        )
    assert recall(page, L=300, policy=policy) >= recall(plain, L=300, policy=policy) - 0.005
    assert recall(page, L=K, policy=policy) > 0.1


def test_answers_do_not_depend_on_engine_or_threads(pair: tuple[Path, Path]) -> None:
    queries = clustered(50, DIM, seed=7)
    first = Index(pair[1], "pread").search(queries, K, L=40)
    for engine, threads, inflight in (("auto", 2, 5), ("mmap", 1, 3)):
        other = Index(pair[1], engine).search(queries, K, L=40, threads=threads, inflight=inflight)
        assert np.array_equal(first.slots, other.slots)
        assert np.array_equal(first.counters["pages_read"], other.counters["pages_read"])


def test_memory_does_not_grow_with_the_vectors(tmp_path: Path) -> None:
    small = build(tmp_path / "small", clustered(500, DIM), entries=16, **ON_PAGE)
    large = build(tmp_path / "large", clustered(4000, DIM), entries=16, **ON_PAGE)
    plain = build(tmp_path / "plain", clustered(4000, DIM), entries=16, **{**ON_PAGE, "codes_on_page": False})
    sizes = [Index(path).native.memory_bytes for path in (small, large, plain)]
    assert sizes[1] == sizes[0]
    assert sizes[2] - sizes[1] > 4000 * 8


def test_filters_ranges_and_views_work(pair: tuple[Path, Path]) -> None:
    index, vectors, queries = Index(pair[1]), clustered(N, DIM), clustered(20, DIM, seed=8)
    for share in (0.01, 0.5):
        allowed = np.random.default_rng(2).random(N) < share
        found = index.search(queries, 5, L=200, allow=allowed)
        assert allowed[found.vector_ids].all()
        ids = np.flatnonzero(allowed)
        hits = [
            len(set(row) & set(ids[np.argsort(((vectors[ids] - q) ** 2).sum(axis=1))[:5]]))
            for row, q in zip(found.vector_ids, queries, strict=True)
        ]
        assert np.mean(hits) > 4.5
    radius = float(np.sort(((vectors - queries[0]) ** 2).sum(axis=1))[40])
    assert 30 <= len(index.range_search(queries[0], radius, L=300).ids) <= 50
    order = np.random.default_rng(3).permutation(N)
    view = index.remapped(order).search(queries, K, L=60)
    assert np.mean(view.vector_ids == index.search(queries, K, L=60).vector_ids) > 0.9


def test_what_needs_codes_in_memory_is_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"entry: .* has its codes in the nodes, not in memory"):
        Index(pair[1]).search(clustered(2, DIM), K, entry="previous", inflight=1)
    with pytest.raises(ConfigError, match=r"entry: .* has its codes in the nodes, not in memory"):
        Index(pair[1]).search(clustered(2, DIM), K, entry="navigation")
    with pytest.raises(ConfigError, match=r"navigation: a navigation graph is searched by codes in memory"):
        indexmill.build(clustered(300, DIM), tmp_path / "ix", navigation=0.02, **ON_PAGE)
    with pytest.raises(ConfigError, match=r"keep_vectors: checksums of exact vectors are held in memory"):
        indexmill.build(clustered(300, DIM), tmp_path / "ix", keep_vectors=True, **ON_PAGE)
    with pytest.raises(ConfigError, match=r"prune_edges: nodes of .* hold the codes of their neighbours"):
        indexmill.lay_out(pair[1], out=tmp_path / "out", prune_edges=True)


def test_layouts_appends_and_merges_keep_codes_beside_neighbours(tmp_path: Path) -> None:
    vectors = clustered(1800, DIM)
    vectors[1000:] = np.clip(vectors[1000:], vectors[:1000].min(axis=0), vectors[:1000].max(axis=0))
    one = build(tmp_path / "one", vectors[:1000], order="identity", **ON_PAGE)
    indexmill.lay_out(one, order="star", out=tmp_path / "star")
    assert_sound(tmp_path / "star")
    indexmill.append(one, vectors[1000:1400])
    assert_sound(one)
    two = build(tmp_path / "two", vectors[1400:], **ON_PAGE)
    indexmill.merge(one, two, out=tmp_path / "both")
    assert_sound(tmp_path / "both")
    found = Index(tmp_path / "both").search(vectors[::50], 1, L=100)
    assert np.mean(found.vector_ids[:, 0] == np.arange(0, 1800, 50)) > 0.9


def test_a_damaged_block_is_named(pair: tuple[Path, Path], tmp_path: Path) -> None:
    index = build(tmp_path / "ix", clustered(400, DIM), **ON_PAGE)
    path = index / "graph.imx"
    damaged = bytearray(path.read_bytes())
    damaged[PAGE_BYTES + 700] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptFile, match=r"graph\.imx: block at page 1: expected CRC32C"):
        Index(index).search(clustered(300, DIM, seed=2), K, L=400)
    assert any(re.search(r"graph\.imx: page 1: ", line) for line in _native.verify(str(index)))
