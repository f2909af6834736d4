"""Inverted lists of product codes with a learnt rotation: the reader and the join measure as a slow decoding does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles import products as oracle
from tests.oracles.brute_force import exact_neighbours
from tests.oracles.files.verify import verify_index
from tests.support.cli import run, run_json
from tests.support.indexes.builds import data_files
from tests.support.indexes.export import assert_same_answers
from tests.support.indexes.ivf import build_lists, join, make_vectors, result

from indexmill.formats.errors import CorruptFile, InputError
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.pagefile.reader import PageFile
from indexmill.reader import _native
from indexmill.reader.ivf import IvfIndex

K, LISTS = 5, 6


def build(path: Path, vectors: Any, **how: Any) -> Path:
    wanted = {"codec": "pq", "pq_bytes": 4, "pq_rotation": "opq", "lists": LISTS, "batch_vectors": 150, **how}
    index = build_lists(path, vectors, **wanted)
    assert verify_index(index) == [] == _native.verify(str(index))
    return index


def points(dim: int, n: int = 300, seed: int = 1) -> np.ndarray:
    """Vectors whose components depend on each other."""
    mixed = np.random.default_rng(0).normal(size=(max(2, dim // 4), dim))
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, len(mixed))) @ mixed + 0.1 * rng.normal(size=(n, dim))).astype(np.float32)


def assert_measured(index: Path, queries: np.ndarray, folder: Path, nprobe: int = 3) -> None:
    """The reader and the join find what the slow oracle finds."""
    nprobe = min(nprobe, IvfFiles(index).centroids.n_lists)
    wanted = oracle.search(index, queries, nprobe, K)
    for engine in ("auto", "memory"):
        found = IvfIndex(index, engine).search(queries, K, nprobe=nprobe, rerank=0)
        assert_same_answers((found.vector_ids, found.scores), wanted, 1e-5)
    join(index, queries, folder / "r.parquet", k=K, nprobe=nprobe)
    assert_same_answers(result(folder / "r.parquet", len(queries), K), wanted, 1e-5)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize(("dim", "pq_bytes"), [(1, 1), (7, 3), (16, 4), (17, 5), (24, 24), (9, 32)])
def test_distances_are_those_of_the_rows(tmp_path: Path, metric: str, dim: int, pq_bytes: int) -> None:
    index = build(tmp_path / "ix", points(dim), metric=metric, pq_bytes=pq_bytes)
    shared = IvfFiles(index).centroids
    assert shared.codec == "opq"
    assert shared.row_bytes == min(pq_bytes, shared.dim)
    assert_measured(index, points(dim, 40, seed=2), tmp_path)


def test_distances_of_queries_far_from_all_vectors_are_those_of_the_rows(tmp_path: Path) -> None:
    index, queries = build(tmp_path / "ix", points(24)), points(24, 30, seed=2)
    queries[:10] += 100
    queries[10:20, 3] -= 1e4
    queries[20:] *= 1e6
    found = IvfIndex(index).search(queries, K, nprobe=LISTS, rerank=0)
    _, wanted = oracle.search(index, queries, LISTS, K)
    np.testing.assert_allclose(found.scores, wanted, rtol=1e-5)


def test_a_rotation_is_orthogonal_and_turns_centroids(tmp_path: Path) -> None:
    vectors = points(20, 600)
    shared = IvfFiles(build(tmp_path / "ix", vectors)).centroids
    plain = IvfFiles(build(tmp_path / "plain", vectors, pq_rotation="none")).centroids
    assert shared.rotation is not None
    np.testing.assert_allclose(shared.rotation.T @ shared.rotation, np.eye(20), atol=1e-5)
    np.testing.assert_allclose(shared.centroids, plain.centroids @ shared.rotation, atol=1e-4)
    np.testing.assert_allclose(shared.restored(shared.centroids), plain.centroids, atol=1e-4)


@pytest.mark.parametrize("pq_bytes", [2, 4, 8])
def test_codes_err_less_where_components_depend_on_each_other(tmp_path: Path, pq_bytes: int) -> None:
    vectors, queries = points(32, 3000), points(32, 60, seed=2)
    nearest = exact_neighbours(vectors, queries, 10)[0]
    errors, recalls = [], []
    for rotation in ("none", "opq"):
        how = {"pq_bytes": pq_bytes, "pq_rotation": rotation, "batch_vectors": None}
        index = build(tmp_path / rotation, vectors, **how)
        errors.append(float(((oracle.rows_of(index) - vectors) ** 2).sum(axis=1).mean()))
        found = IvfIndex(index).search(queries, 10, nprobe=LISTS).vector_ids
        recalls.append(np.mean([np.isin(a, b).mean() for a, b in zip(found, nearest, strict=True)]))
    assert errors[1] < 0.9 * errors[0]
    assert recalls[1] > recalls[0]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16"])
def test_vectors_of_every_type_are_coded(tmp_path: Path, dtype: str) -> None:
    index = build(tmp_path / "ix", make_vectors(dtype, 300))
    assert IvfIndex(index).native.query_dtype == "float32"
    assert_measured(index, make_vectors("float32", 20, seed=9), tmp_path)


def test_exact_vectors_rerank_rotated_codes(tmp_path: Path) -> None:
    vectors, queries = points(40, 600), points(40, 30, seed=2)
    index = build(tmp_path / "ix", vectors, keep_vectors=True, copies=2)
    wanted = exact_neighbours(vectors, queries, K)
    for engine in ("auto", "memory"):
        found = IvfIndex(index, engine).search(queries, K, nprobe=LISTS, rerank=600)
        assert_same_answers((found.vector_ids, found.scores), wanted, 1e-5)


def test_memory_is_told_and_the_index_is_described(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", points(10))
    shown = run_json("inspect", index)
    opened = IvfIndex(index)
    assert shown["memory_bytes"] == {name: opened.memory[name] for name in shown["memory_bytes"]}
    # centroids, the rotation, 256 centres, and five ends of chunks
    assert opened.memory["centroids"] == 4 * LISTS * 10 + 4 * 100 + 4 * 256 * 10 + 8 * 5
    manifest = IvfFiles(index).manifest
    assert [manifest.parameters[name] for name in ("codec", "pq_bytes", "pq_rotation")] == ["pq", 4, "opq"]
    assert (manifest.ivf["codec"], manifest.ivf["row_bytes"]) == ("opq", 4)
    assert f"{LISTS} lists, opq" in repr(opened)
    assert "opq, 4 bytes a vector" in run("inspect", index).stdout


def test_plain_codes_stay_the_default_and_their_files_have_no_rotation(tmp_path: Path) -> None:
    index = build_lists(tmp_path / "ix", points(10), codec="pq", pq_bytes=4, lists=LISTS)
    assert IvfFiles(index).manifest.parameters["pq_rotation"] == "none"
    assert IvfIndex(index).native.codec == "pq"
    with PageFile(index / "centroids.imx", "CENT") as file:
        assert not file.has_section("rotation")
        assert file.field("codec") == 2


def test_workers_and_memory_do_not_change_the_bytes(tmp_path: Path) -> None:
    vectors = points(12, 20_000)
    how = {"copies": 2, "batch_vectors": 11_000, "sample_vectors": 3000}
    first = data_files(build(tmp_path / "a", vectors, **how))
    assert data_files(build(tmp_path / "b", vectors, workers=3, **how)) == first
    assert data_files(build(tmp_path / "c", vectors, **how)) == first


def test_vectors_on_their_centroid_have_no_residual(tmp_path: Path) -> None:
    few = points(5, 4)
    index = build(tmp_path / "ix", np.repeat(few, 80, axis=0), lists=10)
    assert IvfFiles(index).centroids.n_lists == 4
    queries = points(5, 10, seed=2)
    found = IvfIndex(index).search(queries, 1, nprobe=4)
    distances = ((queries[:, None] - few[None]) ** 2).sum(axis=2)
    assert np.array_equal(found.vector_ids[:, 0] // 80, np.argmin(distances, axis=1))
    np.testing.assert_allclose(found.scores[:, 0], distances.min(axis=1), rtol=1e-4)


def test_fewer_vectors_than_lists_and_one_alone_are_coded(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", points(6, 3), lists=10)
    assert IvfIndex(index).search(points(6, 3), 1, nprobe=3).vector_ids[:, 0].tolist() == [0, 1, 2]
    one = build(tmp_path / "one", points(6, 1))
    assert IvfIndex(one).search(points(6, 2), 1, nprobe=1).vector_ids.tolist() == [[0], [0]]


def test_zero_variance_leaves_the_other_components(tmp_path: Path) -> None:
    vectors, queries = points(8), points(8, 20, seed=2)
    vectors[:, 1:] = queries[:, 1:] = 4.0
    found = IvfIndex(build(tmp_path / "ix", vectors)).search(queries, 1, nprobe=LISTS)
    distances = ((queries[:, None] - vectors[None]) ** 2).sum(axis=2)
    own = np.take_along_axis(distances, found.vector_ids, 1)[:, 0]
    np.testing.assert_allclose(own, distances.min(axis=1), atol=1e-3)


def test_damage_of_the_rotation_is_found(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", points(10))
    path = index / "centroids.imx"
    whole = path.read_bytes()
    with PageFile(path, "CENT") as file:
        section = next(one for one in file.header.sections if one.name == "rotation")
    for at in (0, 4 * 99 + 3):
        data = bytearray(whole)
        data[4096 * section.first_page + at] ^= 64
        path.write_bytes(data)
        assert any("centroids.imx" in problem for problem in _native.verify(str(index)))
        assert run("verify", index).exit_code != 0
        for open_it in (IvfFiles, IvfIndex):
            with pytest.raises(CorruptFile, match=r"centroids\.imx"):
                open_it(index)


def test_what_is_no_number_is_refused(tmp_path: Path) -> None:
    vectors = points(6)
    vectors[7, 2] = np.nan
    with pytest.raises(InputError, match="row 7: component 2 is nan"):
        build_lists(tmp_path / "ix", vectors, codec="pq", pq_rotation="opq", lists=4)
