"""OPQ: a rotation that makes codes more accurate."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.append import build, points

import indexmill
from indexmill.builders.quantize import opq
from indexmill.builders.quantize.opq import train_opq
from indexmill.builders.quantize.pq import encode_pq, train_pq
from indexmill.formats.errors import ConfigError
from indexmill.formats.graph.codes import Codebook, is_rotation
from indexmill.formats.graph.index import IndexFiles
from indexmill.pipeline.kinds.graph import memory
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.spec import Parameters
from indexmill.reader.threads import small_blocks


def correlated(n: int, dim: int, seed: int = 0) -> np.ndarray:
    """Vectors whose components all depend on few others, far from the origin."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((n, dim)) * np.linspace(3, 0.05, dim) ** 2
    mixing = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    return (factors @ mixing + 20).astype(np.float32)


def error(book: Codebook, vectors: np.ndarray) -> float:
    """Return the mean squared distance between vectors and what their codes stand for, in the vectors' own space."""
    restored = book.decoded(encode_pq(vectors, book)).astype(np.float64)
    if book.rotation is not None:
        restored = restored @ np.linalg.inv(book.rotation.astype(np.float64))
    return float(((vectors - restored) ** 2).sum(axis=1).mean())


def test_rotated_codes_err_less_where_components_depend_on_each_other() -> None:
    vectors = correlated(3000, 24)
    plain, rotated = train_pq(vectors, 6, seed=1), train_opq(vectors, 6, seed=1)
    assert rotated.rotation is not None
    assert is_rotation(rotated.rotation)
    assert error(rotated, vectors) < 0.6 * error(plain, vectors)


def test_as_many_matrices_are_decomposed_as_plans_count(monkeypatch: pytest.MonkeyPatch) -> None:
    decomposed: list[tuple[int, ...]] = []

    def counted(decompose: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
        def call(matrix: np.ndarray) -> Any:
            decomposed.append(matrix.shape)
            return decompose(matrix)

        return call

    for name in ("eigh", "svd"):
        monkeypatch.setattr(np.linalg, name, counted(getattr(np.linalg, name)))
    train_opq(correlated(300, 24), 6, seed=1)
    assert decomposed == [(24, 24)] * opq.DECOMPOSITIONS


def test_alternation_finds_directions_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = correlated(3000, 24)
    monkeypatch.setattr(
        opq, "principal_rotation", lambda rows, offsets, threads: np.eye(24, dtype=np.float32)
    )
    errors = []
    for rounds in (1, 15):
        monkeypatch.setattr(opq, "ROUNDS", rounds)
        errors.append(error(train_opq(vectors, 6, seed=1), vectors))
    assert errors[1] < 0.9 * errors[0] < 0.81 * error(train_pq(vectors, 6, seed=1), vectors)


def test_components_that_belong_together_stay_together() -> None:
    """Each chunk has few values; principal directions would mix the chunks and raise the error of codes to a tenth."""
    rng = np.random.default_rng(1)
    values = rng.exponential(size=(8, 200, 4)) * 3
    vectors = np.hstack([some[rng.integers(0, 200, 4000)] for some in values]).astype(np.float32)
    assert error(train_opq(vectors, 8, seed=1), vectors) < 0.02 * vectors.var(axis=0).sum()


def test_codes_of_rotated_vectors_are_the_nearest_centres() -> None:
    vectors = correlated(700, 10)
    book = train_opq(vectors, 4, seed=1)
    assert book.rotation is not None
    turned = vectors.astype(np.float64) @ book.rotation.astype(np.float64)
    codes = encode_pq(vectors, book, threads=2)
    for j in range(4):
        columns = slice(int(book.offsets[j]), int(book.offsets[j + 1]))
        apart = ((turned[:, None, columns] - book.pivots[None, :, columns]) ** 2).sum(axis=2)
        chosen = np.take_along_axis(apart, codes[:, j : j + 1].astype(np.int64), 1)[:, 0]
        np.testing.assert_allclose(chosen, apart.min(axis=1), rtol=1e-3, atol=1e-3)


def test_opq_is_the_same_for_any_number_of_threads() -> None:
    with small_blocks(64):
        one, two = (train_opq(correlated(500, 12), 5, seed=3, threads=t) for t in (1, 3))
    np.testing.assert_array_equal(one.pivots, two.pivots)
    np.testing.assert_array_equal(one.rotation, two.rotation)


@pytest.mark.parametrize(
    "vectors",
    [
        np.full((400, 6), 7, np.uint8),
        np.zeros((1, 1), np.float32),
        correlated(5, 12),
        np.hstack([correlated(300, 5), np.zeros((300, 4), np.float32)]),
        np.repeat(np.eye(8, dtype=np.float32), 100, axis=0) * 1e-20,
    ],
    ids=["constant", "one", "few", "dimensions-without-variance", "tiny"],
)
def test_what_has_no_principal_directions_is_coded_all_the_same(vectors: np.ndarray) -> None:
    book = train_opq(vectors, 3, seed=1)
    assert book.rotation is not None
    assert is_rotation(book.rotation)
    assert np.isfinite(book.pivots).all()
    assert error(book, vectors) <= error(train_pq(vectors, 3, seed=1), vectors) + 1e-6 * (
        vectors.max() ** 2 + 1e-30
    )


@pytest.mark.parametrize("exponent", [58, -60])
def test_vectors_as_large_or_small_as_can_be_are_coded_as_others_are(exponent: int) -> None:
    vectors = np.random.default_rng(0).standard_normal((4096, 8)).astype(np.float32)
    usual, scaled = (train_opq(np.ldexp(vectors, e), 4, seed=1) for e in (0, exponent))
    np.testing.assert_array_equal(scaled.rotation, usual.rotation)
    np.testing.assert_array_equal(scaled.pivots, np.ldexp(usual.pivots, exponent))


@pytest.mark.memory
@pytest.mark.parametrize("looked_at", [8000, 4000], ids=["by-all-rows", "by-half-of-them"])
def test_training_takes_no_more_memory_than_is_counted(
    monkeypatch: pytest.MonkeyPatch, looked_at: int
) -> None:
    for module, name, value in (
        (opq, "ROWS", looked_at), (opq, "ROUNDS", 1), (opq, "BLOCK", 256), (memory, "OPQ_BLOCK", 256),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    vectors = correlated(8000, 24)
    train_opq(vectors[:300], 8, seed=1)  # compiles the kernels
    shape = GraphShape(
        *vectors.shape, vectors.dtype, 0.0, Parameters(builder="vamana", pq_bytes=8, pq_rotation="opq")
    )
    tracemalloc.start()
    try:
        train_opq(vectors, 8, seed=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert vectors.nbytes < peak <= memory.stage_bytes(shape, 1 << 30, 1)["encode"]


def test_a_build_with_a_rotation_is_searched_grown_and_laid_out(tmp_path: Path) -> None:
    vectors = points(400, 3)
    x = build(tmp_path / "x", vectors[:300], pq_rotation="opq")
    with IndexFiles(x) as files:
        book = files.codebook
        assert book.rotation is not None
        rows = np.empty(300, np.int64)
        rows[files.vector_ids] = np.arange(300)
        np.testing.assert_array_equal(files.codes[rows], encode_pq(vectors[:300], book))
    indexmill.append(x, vectors[300:])
    indexmill.lay_out(x, "breadth-first", out=tmp_path / "y")
    with IndexFiles(tmp_path / "y") as files:
        np.testing.assert_array_equal(files.codebook.rotation, book.rotation)
    found = indexmill.open(tmp_path / "y").search(vectors[::10], 1, L=50)
    assert (found.vector_ids[:, 0] == np.arange(0, 400, 10)).mean() > 0.9


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"kind": "lsh"}, "pq_rotation: "),
        (
            {"kind": "ivf"},
            "pq_rotation: flat lists have no PQ codes to rotate; leave it out, or choose codec pq",
        ),
        ({"kind": "ivf", "codec": "rabitq"}, "pq_rotation: rabitq lists have no PQ codes to rotate"),
    ],
)
def test_what_has_no_pq_codes_has_no_rotated_ones(tmp_path: Path, how: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        indexmill.build(points(300, 3), tmp_path / "x", pq_rotation="opq", **how)
