"""Codes chosen by the directions in which queries lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.quantize.asked import choose_codes, query_spread
from indexmill.builders.quantize.opq import train_opq
from indexmill.builders.quantize.pq import encode_pq, train_pq
from indexmill.formats.graph.codes import Codebook

CHUNKS = 4


def far_queries(dim: int, seed: int) -> tuple[Any, Any, Any]:
    """Vectors, queries far from all of them in one direction, and the nearest vectors of each."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((1500, dim)).astype(np.float32)
    queries = (rng.standard_normal((200, dim)) + 6).astype(np.float32)
    return rows, queries, exact_neighbours(rows, queries, 10)[0]


def weighted_error(rows: Any, book: Codebook, codes: Any, spread: Any) -> float:
    errors = (book.rotated(rows) - book.decoded(codes)).astype(np.float64)
    if book.rotation is not None:
        errors = errors @ book.rotation.T.astype(np.float64)
    return float(np.einsum("ij,jk,ik->", errors, spread, errors)) / len(rows)


def test_the_spread_is_the_mean_outer_product() -> None:
    rows, queries, nearest = far_queries(6, 1)
    apart = (queries[:, None] - rows[nearest]).reshape(-1, 6).astype(np.float64)
    np.testing.assert_allclose(query_spread(queries, rows, nearest), apart.T @ apart / len(apart), rtol=1e-4)


@pytest.mark.parametrize("train", [train_pq, train_opq])
def test_codes_err_less_in_the_directions_of_queries(train: Any) -> None:
    rows, queries, nearest = far_queries(16, 2)
    spread, book = query_spread(queries, rows, nearest), train(rows, CHUNKS, seed=1)
    plain = encode_pq(rows, book)
    chosen = plain.copy()
    choose_codes(rows, book, spread, chosen)
    assert weighted_error(rows, book, chosen, spread) < 0.5 * weighted_error(rows, book, plain, spread)


def test_estimates_of_distances_to_queries_rank_better() -> None:
    rows, queries, nearest = far_queries(16, 3)
    book = train_pq(rows, CHUNKS, seed=1)
    codes = [encode_pq(rows, book) for _ in range(2)]
    choose_codes(rows, book, query_spread(queries[:150], rows, nearest[:150]), codes[1])
    held = []
    for some in codes:
        estimates = ((queries[150:, None] - book.decoded(some)) ** 2).sum(axis=2)
        found = np.argsort(estimates, axis=1)[:, :15]
        held.append(
            np.mean([np.isin(near, ids).mean() for near, ids in zip(nearest[150:], found, strict=True)])
        )
    assert held[1] > held[0] + 0.1


def test_an_even_spread_keeps_the_nearest_centres() -> None:
    rows, _, _ = far_queries(8, 4)
    book = train_pq(rows, CHUNKS, seed=1)
    plain = encode_pq(rows, book)
    chosen = plain.copy()
    choose_codes(rows, book, np.eye(8), chosen)
    assert (chosen == plain).mean() > 0.999  # rounding decides the rest


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 12), st.integers(1, 5), st.integers(0, 2**16))
def test_each_choice_is_best_beside_the_others(dim: int, chunks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((600, dim)).astype(np.float32)
    factor = rng.standard_normal((dim, dim))
    spread, book = factor @ factor.T, train_pq(rows, chunks, seed=1)
    codes = encode_pq(rows, book)
    before = codes.copy()
    choose_codes(rows, book, spread, codes)
    weights = spread + np.trace(spread) / dim * np.eye(dim)
    # Products in float32 tell centres that are this near apart by chance.
    rounding = 1e-5 * np.trace(weights)

    def cost(some: Any) -> Any:
        errors = (rows - book.decoded(some)).astype(np.float64)
        return np.einsum("ij,jk,ik->i", errors, weights, errors)

    assert (cost(codes) <= cost(before) * (1 + 1e-4) + rounding).all()
    last = codes[:, -1].copy()  # chosen last, beside all others
    for centre in range(len(book.pivots)):
        codes[:, -1] = centre
        other = cost(codes)
        codes[:, -1] = last
        assert (cost(codes) <= other * (1 + 1e-4) + rounding).all()


def test_queries_that_are_vectors_keep_the_nearest_centres() -> None:
    rows, _, _ = far_queries(8, 6)
    book = train_pq(rows, CHUNKS, seed=1)
    plain = encode_pq(rows, book)
    chosen = plain.copy()
    choose_codes(rows, book, np.zeros((8, 8)), chosen)
    assert (chosen == plain).mean() > 0.999  # rounding decides the rest


def test_threads_do_not_change_the_codes() -> None:
    rows, queries, nearest = far_queries(16, 5)
    spread, book = query_spread(queries, rows, nearest), train_pq(rows, CHUNKS, seed=1)
    codes = [encode_pq(rows, book) for _ in range(2)]
    choose_codes(rows, book, spread, codes[0])
    choose_codes(rows, book, spread, codes[1], threads=3)
    np.testing.assert_array_equal(codes[0], codes[1])
