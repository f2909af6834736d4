"""Inverted lists of RaBitQ codes: the reader and the join estimate as a slow reading of the rows does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles import rabitq as oracle
from tests.oracles.brute_force import exact_neighbours
from tests.oracles.files.verify import verify_index
from tests.support.cli import run, run_json
from tests.support.indexes.builds import data_files
from tests.support.indexes.export import assert_same_answers
from tests.support.indexes.ivf import build_lists, join, make_vectors, result

from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.ivf.index import IvfFiles
from indexmill.jobs.jobfile import make_spec
from indexmill.reader import _native
from indexmill.reader.ivf import IvfIndex

K, LISTS = 5, 6


def build(path: Path, vectors: Any, **how: Any) -> Path:
    wanted = {"codec": "rabitq", "lists": LISTS, "batch_vectors": 150, **how}
    index = build_lists(path, vectors, **wanted)
    assert verify_index(index) == [] == _native.verify(str(index))
    return index


def points(dim: int, n: int = 300, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(8, dim)) * 3
    return (centres[rng.integers(8, size=n)] + rng.normal(size=(n, dim))).astype(np.float32)


def assert_estimates(index: Path, queries: np.ndarray, folder: Path, nprobe: int = 3) -> None:
    """The reader and the join find what the slow oracle finds."""
    nprobe = min(nprobe, IvfFiles(index).centroids.n_lists)
    wanted = oracle.search(index, queries, nprobe, K)
    found = IvfIndex(index).search(queries, K, nprobe=nprobe, rerank=0)
    assert_same_answers((found.vector_ids, found.scores), wanted, 1e-5)
    join(index, queries, folder / "r.parquet", k=K, nprobe=nprobe)
    assert_same_answers(result(folder / "r.parquet", len(queries), K), wanted, 1e-5)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize(("dim", "bits"), [(1, 1), (1, 8), (7, 3), (16, 1), (17, 2), (24, 4), (9, 7)])
def test_estimates_are_those_of_the_rows(tmp_path: Path, metric: str, dim: int, bits: int) -> None:
    index = build(tmp_path / "ix", points(dim), metric=metric, code_bits=bits)
    shared = IvfFiles(index).centroids
    assert shared.rabitq is not None
    assert shared.rabitq.bits == bits
    assert_estimates(index, points(dim, 40, seed=2), tmp_path)


@pytest.mark.parametrize("bits", [1, 4])
def test_estimates_of_queries_far_from_all_vectors_are_those_of_the_rows(tmp_path: Path, bits: int) -> None:
    index, queries = build(tmp_path / "ix", points(24), code_bits=bits), points(24, 30, seed=2)
    queries[:10] += 100
    queries[10:20, 3] -= 1e4
    queries[20:] *= 1e6
    found = IvfIndex(index).search(queries, K, nprobe=LISTS, rerank=0)
    _, wanted = oracle.search(index, queries, LISTS, K)
    np.testing.assert_allclose(found.scores, wanted, rtol=1e-5)
    exact = exact_neighbours(points(24), queries, K)[1]
    np.testing.assert_allclose(found.scores, exact, rtol=0.1)


def test_exact_vectors_are_ranked_exactly_for_queries_far_from_all(tmp_path: Path) -> None:
    vectors, queries = points(24), points(24, 30, seed=2) + np.float32(50)
    index = build(tmp_path / "ix", vectors, code_bits=1, keep_vectors=True)
    found = IvfIndex(index).search(queries, K, nprobe=LISTS, rerank=len(vectors))
    assert_same_answers((found.vector_ids, found.scores), exact_neighbours(vectors, queries, K), 1e-5)


def test_lists_are_no_part_of_a_comparison_of_graphs(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", points(24), code_bits=1)
    np.save(tmp_path / "q.npy", points(24, 5))
    done = run("compare", index, index, "--queries", tmp_path / "q.npy", "--base", tmp_path / "ix.npy")
    assert done.exit_code != 0
    assert "kind ivf" in done.stderr


def test_products_have_no_error_along_the_centroid(tmp_path: Path) -> None:
    """Of vectors far from zero nearly all of a product lies there."""
    vectors, queries = points(24, 600) + 10, points(24, 30, seed=2) + 10
    index = build(tmp_path / "ix", vectors, metric="ip", code_bits=1)
    found = IvfIndex(index).search(queries, 10, nprobe=LISTS, rerank=0)
    own = np.take_along_axis(queries @ vectors.T, found.vector_ids, 1)
    assert np.sqrt(np.mean((found.scores - own) ** 2)) < 0.012 * own.mean()  # estimated whole: 0.041


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16"])
def test_vectors_of_every_type_are_coded(tmp_path: Path, dtype: str) -> None:
    index = build(tmp_path / "ix", make_vectors(dtype, 300))
    assert IvfIndex(index).native.query_dtype == "float32"
    assert_estimates(index, make_vectors("float32", 20, seed=9), tmp_path)


def test_more_bits_lose_fewer_neighbours(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    vectors, queries = (rng.normal(size=(n, 96)).astype(np.float32) for n in (2000, 50))
    distances = ((queries[:, None] - vectors[None]) ** 2).sum(axis=2)
    nearest = np.argsort(distances, axis=1)[:, :10]
    recalls = []
    for bits in (1, 2, 4, 8):
        index = build(tmp_path / f"{bits}", vectors, code_bits=bits, batch_vectors=None)
        found = IvfIndex(index).search(queries, 10, nprobe=LISTS).vector_ids
        recalls.append(np.mean([np.isin(a, b).mean() for a, b in zip(found, nearest, strict=True)]))
    assert recalls == sorted(recalls)
    assert recalls[0] > 0.2
    assert recalls[2] > 0.8
    assert recalls[3] > 0.95


def test_exact_vectors_rerank_codes_of_one_bit(tmp_path: Path) -> None:
    vectors, queries = points(40, 600), points(40, 30, seed=2)
    index = build(tmp_path / "ix", vectors, code_bits=1, keep_vectors=True)
    distances = ((queries[:, None].astype(np.float64) - vectors[None]) ** 2).sum(axis=2)
    for engine in ("auto", "memory"):
        found = IvfIndex(index, engine).search(queries, K, nprobe=LISTS, rerank=300)
        assert np.array_equal(found.vector_ids, np.argsort(distances, axis=1)[:, :K])
        np.testing.assert_allclose(found.scores, np.sort(distances, axis=1)[:, :K], rtol=1e-5)


def test_memory_is_told_and_the_index_is_described(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", points(10), code_bits=2)
    shown = run_json("inspect", index)
    opened = IvfIndex(index)
    assert shown["memory_bytes"] == {name: opened.memory[name] for name in shown["memory_bytes"]}
    assert opened.memory["centroids"] == 4 * LISTS * 10 + 4 * 100
    assert IvfFiles(index).manifest.ivf["row_bytes"] == 8 + 2 * 2
    assert "rabitq" in repr(opened)


@pytest.mark.parametrize("codec", ["pq", "rabitq"])
def test_workers_do_not_change_the_bytes(tmp_path: Path, codec: str) -> None:
    vectors = points(12, 900)
    how = {"codec": codec, "pq_bytes": 4, "copies": 2}
    first = data_files(build(tmp_path / "a", vectors, **how))
    assert data_files(build(tmp_path / "b", vectors, workers=3, **how)) == first


@pytest.mark.parametrize("bits", [1, 4])
def test_vectors_on_their_centroid_have_no_residual(tmp_path: Path, bits: int) -> None:
    few = points(5, 4)
    index = build(tmp_path / "ix", np.repeat(few, 80, axis=0), code_bits=bits, lists=10)
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
    vectors = points(8)
    vectors[:, 1:] = 4.0
    index = build(tmp_path / "ix", vectors, code_bits=8)
    queries = points(8, 20, seed=2)
    queries[:, 1:] = 4.0
    found = IvfIndex(index).search(queries, 1, nprobe=LISTS)
    distances = ((queries[:, None] - vectors[None]) ** 2).sum(axis=2)
    own = np.take_along_axis(distances, found.vector_ids, 1)[:, 0]
    np.testing.assert_allclose(own, distances.min(axis=1))
    np.testing.assert_allclose(found.scores[:, 0], own, atol=1e-5)


def test_what_is_no_number_is_refused(tmp_path: Path) -> None:
    vectors = points(6)
    vectors[7, 2] = np.nan
    with pytest.raises(InputError, match="row 7: component 2 is nan"):
        build_lists(tmp_path / "ix", vectors, codec="rabitq", lists=4)
    for bits in (0, 9):
        with pytest.raises(ConfigError, match=r"parameters\.code_bits: input should be"):
            make_spec({"input": ["a.npy"], "out": "b", "parameters": {"kind": "ivf", "code_bits": bits}})
