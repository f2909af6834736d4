"""RaBitQ: rows say what they stand for, codes are near the best ones, and estimates have the error of the paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.oracles.rabitq import best_cosine, read_row

from indexmill.builders.quantize.rabitq import encode_rabitq, random_rotation
from indexmill.formats.graph.codes import is_rotation
from indexmill.formats.ivf.rabitq import heads_of, levels_of, pack_rows, row_bytes_of
from indexmill.formats.ivf.rotation import rotated_rows

#: Components with ties, zeros and unlike sizes.
residuals = st.integers(1, 40).flatmap(
    lambda dim: arrays(np.int16, st.tuples(st.integers(1, 6), st.just(dim)), elements=st.integers(-999, 999))
)


@settings(max_examples=150, deadline=None)
@given(residuals, st.integers(1, 8))
def test_a_row_has_the_signs_the_length_and_the_product_of_its_residual(whole: np.ndarray, bits: int) -> None:
    rows = encode_rabitq((whole / 16).astype(np.float32), bits)
    dim = whole.shape[1]
    assert rows.shape == (len(whole), row_bytes_of(dim, bits))
    for residual, row in zip(whole / 16, rows, strict=True):
        length, factor, values = read_row(row, dim, bits)
        if not residual.any():
            assert not row.any()
            continue
        assert length == pytest.approx((residual**2).sum(), rel=1e-6)
        assert factor * (values @ residual) == pytest.approx((residual**2).sum(), rel=1e-6)
        assert np.array_equal(values > 0, residual > 0)
        order = np.argsort(np.abs(residual))
        assert (np.diff(np.abs(values)[order]) >= 0)[np.diff(np.abs(residual)[order]) > 0].all()
        assert (np.diff(np.abs(values)[order]) == 0)[np.diff(np.abs(residual)[order]) == 0].all()


@settings(max_examples=50, deadline=None)
@given(residuals, st.integers(1, 8))
def test_a_row_depends_on_its_residual_alone(whole: np.ndarray, bits: int) -> None:
    vectors = whole.astype(np.float32)
    alone = np.concatenate([encode_rabitq(vectors[i : i + 1], bits) for i in range(len(vectors))])
    assert np.array_equal(encode_rabitq(vectors, bits), alone)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 2**31))
def test_levels_and_floats_come_back(dim: int, bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, 2**bits, (5, dim)).astype(np.uint8)
    heads = rng.random((5, 2)).astype(np.float32)
    rows = pack_rows(heads, levels, bits)
    assert np.array_equal(levels_of(rows, dim, bits), levels)
    assert np.array_equal(heads_of(rows), heads)
    for row, wanted in zip(rows, levels, strict=True):
        assert np.array_equal(read_row(row, dim, bits)[2], 2 * wanted.astype(int) + 1 - 2**bits)


@pytest.mark.parametrize(
    ("dim", "n", "bits", "most"),
    [
        (48, 20, 1, 1.0001), (48, 20, 2, 1.0001), (48, 20, 3, 1.001), (48, 20, 5, 1.02), (48, 20, 8, 1.1),
        (768, 5, 2, 1.001), (768, 5, 5, 1.01), (768, 2, 8, 1.03),
    ],
)  # fmt: skip
def test_codes_are_nearly_the_best_of_their_kind(dim: int, n: int, bits: int, most: float) -> None:
    vectors = np.random.default_rng(4).normal(size=(n, dim)).astype(np.float32)
    sines = []
    for vector, row in zip(vectors.astype(np.float64), encode_rabitq(vectors, bits), strict=True):
        values = read_row(row, dim, bits)[2]
        cosine = values @ vector / np.linalg.norm(values) / np.linalg.norm(vector)
        best = best_cosine(vector, bits)
        assert cosine <= best + 1e-12
        sines.append(np.sqrt([max(1 - cosine**2, 0), 1 - best**2]))
    ours, least = np.mean(sines, axis=0)
    assert ours <= most * least


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_estimates_have_no_bias_and_the_error_of_the_paper(bits: int) -> None:
    """Section 3.2.2 of the paper: an error beyond 1.9 deviations is rare, whatever the vectors are."""
    dim, rng = 64, np.random.default_rng(8)
    residual, query = rng.exponential(size=dim), rng.exponential(size=dim)  # all but parallel, and not normal
    errors, bounds = [], []
    for i in range(400):
        rotation = random_rotation(dim, np.random.default_rng(i)).astype(np.float64)
        row = encode_rabitq((residual @ rotation)[None].astype(np.float32), bits)[0]
        length, factor, values = read_row(row, dim, bits)
        errors.append(factor * (values @ (query @ rotation)) - residual @ query)
        tangent = max(factor**2 * (values @ values) / length - 1, 0)
        bounds.append(1.9 * np.sqrt(length * (query @ query) * tangent / (dim - 1)))
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(len(errors))
    assert 0.9 < np.mean(np.abs(errors) < bounds) < 1


@pytest.mark.parametrize("dim", [1, 2, 33])
def test_a_rotation_is_orthogonal_and_that_of_its_seed(dim: int) -> None:
    rotation = random_rotation(dim, np.random.default_rng(3))
    assert is_rotation(rotation)
    assert np.array_equal(rotation, random_rotation(dim, np.random.default_rng(3)))


def test_a_vector_is_rotated_alike_wherever_it_stands() -> None:
    vectors = np.random.default_rng(1).normal(size=(700, 37)).astype(np.float32)
    rotation = random_rotation(37, np.random.default_rng(2))
    whole = rotated_rows(vectors, rotation)
    np.testing.assert_allclose(whole, vectors.astype(np.float64) @ rotation, atol=1e-5)
    read = np.ascontiguousarray(rotation.T).T  # as of a file
    read.flags.writeable = False
    assert np.array_equal(rotated_rows(vectors, read), whole)
    for first, last in ((0, 1), (255, 258), (699, 700), (3, 690)):
        assert np.array_equal(rotated_rows(vectors[first:last], rotation), whole[first:last])
