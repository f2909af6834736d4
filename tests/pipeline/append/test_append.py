"""`append`: recall afterwards, parts of the index that stay, and costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.indexes.append import (
    DIM,
    SMALL,
    append,
    assert_sound,
    build,
    manifest,
    points,
    recall,
    run_record,
)
from tests.support.indexes.builds import data_files
from tests.support.indexes.built import Built

import indexmill
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.graph.nodes import NodeBlock

OLD, NEW = points(900, 1), points(200, 2)
BOTH = np.concatenate([OLD, NEW])


@pytest.fixture(scope="module")
def old(built: Built) -> Path:
    return built(build, OLD)


@pytest.fixture(scope="module")
def appended(built: Built, old: Path) -> Path:
    return built(append, old, NEW)


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int8"])
def test_every_input_type_is_appended_and_found(tmp_path: Path, dtype: str) -> None:
    both = points(1000, 3, dtype)
    index = build(tmp_path / "ix", both[:800])
    indexmill.append(index, both[800:])
    assert_sound(index)
    assert recall(index, both, both[::20]) > 0.95
    assert (
        indexmill.open(index).search(both[800:], 1).vector_ids[:, 0] == np.arange(800, 1000)
    ).mean() > 0.97


@pytest.mark.parametrize("metric", ["cosine", "ip"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_cosine_and_inner_product_rank_old_and_new_alike(tmp_path: Path, metric: str, dtype: str) -> None:
    both = points(1000, 4)
    both *= np.random.default_rng(0).uniform(0.3, 1, (1000, 1)).astype(np.float32)
    both[17] *= 10  # no appended vector is longer
    both = both.astype(dtype)
    index = build(tmp_path / "ix", both[:800], metric=metric)
    indexmill.append(index, both[800:])
    assert_sound(index)
    assert recall(index, both, both[::20], metric) > 0.9
    got = indexmill.open(index).search(both[900:901].astype(np.float32), 1000, L=1000)
    v = both.astype(np.float64)
    products = v @ v[900]
    if metric == "cosine":
        products /= np.linalg.norm(v, axis=1) * np.linalg.norm(v[900])
    np.testing.assert_allclose(got.scores[0], products[got.vector_ids[0]], rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("node_dtype", ["float16", "sq16", "sq8"])
def test_compressed_nodes_keep_their_bytes_and_take_new_ones(tmp_path: Path, node_dtype: str) -> None:
    index = build(tmp_path / "ix", OLD, node_dtype=node_dtype)
    with IndexFiles(index) as files:
        before = files.graph.read_all().vectors
    indexmill.append(index, NEW)
    assert_sound(index)
    with IndexFiles(index) as files:
        np.testing.assert_array_equal(files.graph.read_all().vectors[: len(OLD)], before)
    assert recall(index, BOTH, BOTH[::20]) > (0.8 if node_dtype == "sq8" else 0.95)


def test_an_append_finds_as_much_as_a_build_of_everything(appended: Path, tmp_path: Path) -> None:
    queries = points(100, 7)
    rebuilt = build(tmp_path / "rebuilt", BOTH)
    assert recall(appended, BOTH, queries) > recall(rebuilt, BOTH, queries) - 0.01


def test_old_vectors_keep_slots_codes_and_vector_ids(old: Path, appended: Path) -> None:
    n = len(OLD)
    with IndexFiles(old) as a, IndexFiles(appended) as b:
        np.testing.assert_array_equal(b.vector_ids[:n], a.vector_ids)
        np.testing.assert_array_equal(b.codes[:n], a.codes)
        np.testing.assert_array_equal(b.graph.read_nodes(0, n).vectors, a.graph.read_all().vectors)
        assert sorted(b.vector_ids[n:]) == list(range(n, n + len(NEW)))
        assert b.entries.medoid == a.entries.medoid
        np.testing.assert_array_equal(b.entries.centroids, a.entries.centroids)


def test_an_entry_vertex_is_never_farther_from_its_centroid_than_before(old: Path, appended: Path) -> None:
    distances = []
    for index in (old, appended):
        with IndexFiles(index) as files:
            chosen = files.graph.read_all().vectors[files.entries.vertices]
            distances.append(((chosen - files.entries.centroids) ** 2).sum(axis=1))
    assert (distances[1] <= distances[0]).all()
    assert (distances[1] < distances[0]).any()


def test_the_navigation_graph_grows_as_a_build_would_make_it(tmp_path: Path) -> None:
    vectors = points(2400, 5)
    index = build(tmp_path / "ix", vectors[:1200], navigation=0.1)
    indexmill.append(index, vectors[1200:])
    with IndexFiles(index) as files:
        assert files.navigation is not None
        assert len(files.navigation.slots) == 1024  # the least sample
        assert files.navigation.slots.max() < 1200
    index = build(tmp_path / "some", vectors[:600])
    indexmill.append(index, vectors[600:])
    with IndexFiles(index) as files:
        assert files.navigation is not None
        assert len(files.navigation.slots) == 1024
        assert (files.navigation.slots >= 600).sum() == 424
    assert recall(index, vectors, vectors[::40]) > 0.95
    none = build(tmp_path / "none", vectors[:600], navigation=0)
    indexmill.append(none, vectors[600:800])
    assert not (none / "navigation.imx").exists()


@pytest.mark.parametrize("order", ["star", "identity", "random", "margo"])
def test_new_vertices_fill_the_last_page_and_then_new_ones(tmp_path: Path, order: str) -> None:
    index = build(tmp_path / "ix", OLD[:407], order=order)
    indexmill.append(index, NEW)
    assert_sound(index)
    assert manifest(index)["layout"]["order"] == order
    with IndexFiles(index) as files:
        new = files.vector_ids[407:]
        assert (list(new) == list(range(407, 607))) == (order == "identity")


def test_user_ids_and_metadata_follow(tmp_path: Path) -> None:
    def table(vectors: np.ndarray, first: int) -> pa.Table:
        n = range(first, first + len(vectors))
        rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)
        return pa.table({"sku": [f"s{i}" for i in n], "price": [float(i) for i in n], "v": rows})

    pq.write_table(table(OLD, 0), tmp_path / "old.parquet")
    pq.write_table(table(NEW[:120], 900), tmp_path / "more-1.parquet")
    pq.write_table(table(NEW[120:], 1020), tmp_path / "more-2.parquet")
    index = tmp_path / "ix"
    indexmill.build(tmp_path / "old.parquet", index, id_column="sku", metadata_columns=["price"], **SMALL)
    opened = indexmill.append(index, str(tmp_path / "more-*.parquet"), id_column="sku")
    assert_sound(index)
    found = opened.search(BOTH, 1)
    assert found.ids[:, 0].tolist() == [f"s{i}" for i in found.vector_ids[:, 0]]
    assert (found.vector_ids[:, 0] == np.arange(1100)).mean() > 0.97
    assert pq.read_table(index / "metadata.parquet")["price"].to_pylist() == [float(i) for i in range(1100)]
    more = table(points(5, 9), 2000)
    assert (
        indexmill.append(index, more, id_column="sku").search(points(5, 9), 1).ids[:, 0].tolist()
        == more["sku"].to_pylist()
    )


@pytest.mark.parametrize(("n", "added"), [(1, 1), (1, 40), (3, 500), (500, 1)])
def test_the_smallest_and_the_largest_shares_can_be_added(tmp_path: Path, n: int, added: int) -> None:
    index = build(tmp_path / "ix", OLD[:n])
    indexmill.append(index, BOTH[n : n + added])
    assert_sound(index)
    assert recall(index, BOTH[: n + added], BOTH[: n + added : 7], k=min(10, n + added)) > 0.97


def test_equal_vectors_stay_reachable(tmp_path: Path) -> None:
    same = np.ones((600, DIM), np.float32)
    index = build(tmp_path / "ix", same[:400])
    indexmill.append(index, same[400:])
    assert_sound(index)


def test_the_same_input_gives_the_same_bytes_for_any_workers(
    old: Path, appended: Path, tmp_path: Path
) -> None:
    for workers in (1, 3):
        indexmill.append(old, NEW, out=tmp_path / "ix", workers=workers, force=True)
        assert data_files(tmp_path / "ix") == data_files(appended)


@pytest.mark.parametrize("on_page", [False, True])
def test_large_nodes_of_a_tail_are_read_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_page: bool
) -> None:
    vectors = np.random.default_rng(3).normal(size=(570, 2500)).astype(np.float32)
    index = build(tmp_path / "ix", vectors[:100], codes_on_page=on_page)
    indexmill.append(index, vectors[100:560])  # a tail of 4.6 MB
    read, asked = GraphFile.read_nodes, list[tuple[int, int]]()

    def look(self: GraphFile, first: int, count: int) -> NodeBlock:
        asked.append((count, self.node_format.node_bytes))
        return read(self, first, count)

    monkeypatch.setattr(GraphFile, "read_nodes", look)
    indexmill.append(index, vectors[560:])
    assert sum(count for count, _ in asked) >= 560 + 460  # all nodes, and then those of the tail
    assert max(count * node_bytes for count, node_bytes in asked) <= 4 << 20
    monkeypatch.undo()
    assert_sound(index)


def test_searches_are_proportional_to_what_is_added(old: Path, appended: Path, tmp_path: Path) -> None:
    indexmill.append(old, NEW[:20], out=tmp_path / "few")
    few, many = run_record(tmp_path / "few")["distances"], run_record(appended)["distances"]
    assert few < many / 5
    assert many < len(NEW) * len(OLD)  # brute force
