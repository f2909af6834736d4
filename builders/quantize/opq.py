"""OPQ (Ge, He, Ke and Sun, 2013): a rotation of the vectors that reduces the error of a product quantizer.

Two steps alternate (section 3.1): with a fixed rotation, one step of k-means in each chunk; with fixed codes, the
rotation nearest to the decoded vectors (orthogonal Procrustes). This ends in a local minimum near its start. There are
two starts: the components as they are, since neighbours often belong together, as in SIFT's histograms; and the
principal directions, distributed over the chunks so that the products of variances are nearly equal (section 3.2). One
round on a few rows shows the better start, which continues.

Deviations from the paper: there are few rounds, each with a part of the rows. Centres are trained before the first
round and, from where the rounds left them, after the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.quantize.pq import (
    N_CENTRES,
    Schedule,
    add_up,
    chunk_offsets,
    chunk_pivots,
    label_rows,
    training_rows,
)
from indexmill.formats.graph.codes import Codebook
from indexmill.reader.threads import map_blocks, run_blocks

#: Rounds from the better start, after the one that each start is tried with. With more, the error hardly falls: two
#: rounds for each start and then five take 1.4 times as long, and err 0.04% less with 768 components, 0.2% with 256.
ROUNDS = 3
#: Decompositions of matrices of dim x dim: of the covariance, of the trial of each start, and of each round.
DECOMPOSITIONS = 3 + ROUNDS
#: Rows that a start is tried with, and rows used by further rounds: 32 and 128 a centre.
_TRIAL_ROWS, ROWS = 32 * N_CENTRES, 128 * N_CENTRES
#: K-means before the first round, and after the last one.
_FIRST: Schedule = ((1, 6, 1.7),)
_LAST: Schedule = ((2, 4, 1.7), (1, 3, 1.7), (1, 1, 1.0))
#: Rows multiplied at a time; it affects results.
BLOCK = 4096
#: Lower bound of a variance, as a share of the largest: a direction may have none.
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True)
class _State:
    """A rotation R, the latest centres, float32 (K, dim), and the error before they moved, summed over the rows."""

    rotation: NDArray[np.float32]
    pivots: NDArray[np.float32]
    error: float


def train_opq(sample: NDArray[Any], n_chunks: int, *, seed: int, threads: int = 1) -> Codebook:
    """Train a rotation and a codebook.

    Memory: the training rows twice as float32, and a few dim x dim matrices. Time: training, and in each of three
    rounds with `ROWS` rows and two with `_TRIAL_ROWS` an encoding of them, two products of these with a dim x dim
    matrix, and a singular value decomposition.

    Parameters
    ----------
    sample : array, shape (n_sample, dim)
        See `builders.quantize.pq.train_pq`.
    n_chunks : int
        Bytes of a code; at most dim.
    seed : int

    Returns
    -------
    Codebook
        With a rotation.
    """
    rows = training_rows(sample)
    origin = rows.mean(axis=0, dtype=np.float64)
    rows -= origin.astype(np.float32)  # a copy of the sample
    # Sums of squares must fit float32; scaling by a power of two rounds nothing.
    exponent = int(np.frexp(max(rows.max(), -rows.min()))[1])
    np.ldexp(rows, -exponent, out=rows)
    offsets = chunk_offsets(rows.shape[1], n_chunks)
    state = _state(rows, offsets, seed, threads)
    rotation = state.rotation
    turned = _turned(rows, rotation, threads)
    pivots = chunk_pivots(turned, offsets, seed=seed, threads=threads, schedule=_LAST, pivots=state.pivots)
    shifted = np.ldexp(pivots.astype(np.float64), exponent) + origin @ rotation
    return Codebook(shifted.astype(np.float32), offsets, rotation)


def _state(rows: NDArray[np.float32], offsets: NDArray[np.uint32], seed: int, threads: int) -> _State:
    """Return the rotation of centred `rows` that the better of both starts leads to, and its centres."""
    sample = _spread(rows, ROWS)

    def begin(rotation: NDArray[np.float32]) -> _State:
        trial = _spread(sample, _TRIAL_ROWS)
        turned = _turned(trial, rotation, threads)
        pivots = chunk_pivots(turned, offsets, seed=seed, threads=threads, schedule=_FIRST)
        del turned
        return _alternate(trial, _State(rotation, pivots, np.inf), offsets, threads)

    starts = np.eye(rows.shape[1], dtype=np.float32), principal_rotation(sample, offsets, threads)
    state = min((begin(rotation) for rotation in starts), key=lambda state: state.error)
    for _ in range(ROUNDS):
        state = _alternate(sample, state, offsets, threads)
    return state


def _spread(rows: NDArray[np.float32], n: int) -> NDArray[np.float32]:
    """Return `n` of the rows, evenly spread, or all if there are no more."""
    return rows if len(rows) <= n else rows[np.linspace(0, len(rows) - 1, n).astype(np.int64)]


def _turned(rows: NDArray[np.float32], rotation: NDArray[np.float32], threads: int) -> NDArray[np.float32]:
    """Return ``rows @ rotation``."""
    turned = np.empty_like(rows)

    def block(first: int, last: int) -> None:
        np.matmul(rows[first:last], rotation, out=turned[first:last])

    run_blocks(block, len(rows), BLOCK, threads)
    return turned


def principal_rotation(
    rows: NDArray[np.float32], offsets: NDArray[np.uint32], threads: int
) -> NDArray[np.float32]:
    """Return the principal directions of centred `rows` as columns, distributed over the chunks.

    From the largest variance down, each direction goes to the chunk with room that has the least product of variances
    so far. Variances are divided by the least one: with factors below 1, a product would fall as a chunk fills.
    """

    def block(first: int, last: int) -> NDArray[np.float64]:
        return (rows[first:last].T @ rows[first:last]).astype(np.float64)

    covariance = sum(map_blocks(block, len(rows), BLOCK, threads), np.zeros((rows.shape[1],) * 2))
    variances, directions = np.linalg.eigh(covariance)
    floor = max(variances[-1] * _LEAST_VARIANCE, np.finfo(np.float64).tiny)
    weights = np.log(np.maximum(variances, floor) / max(variances[0], floor))
    room = np.diff(offsets.astype(np.int64))
    products, dealt = np.zeros(len(room)), [list[int]() for _ in room]
    for direction in range(len(weights) - 1, -1, -1):
        chunk = int(np.where(room > 0, products, np.inf).argmin())
        dealt[chunk].append(direction)
        products[chunk] += weights[direction]
        room[chunk] -= 1
    return np.ascontiguousarray(directions[:, np.concatenate(dealt)], dtype=np.float32)


def _alternate(rows: NDArray[np.float32], state: _State, offsets: NDArray[np.uint32], threads: int) -> _State:
    """Return the state after a step of k-means and the rotation nearest to the decoded rows.

    Its error is that of the codes after the centres moved to the means of their rows. A centre that loses all its rows
    does not move.
    """
    bounds = offsets.astype(np.int64)
    turned = _turned(rows, state.rotation, threads)
    codes = np.empty((len(rows), len(bounds) - 1), np.uint8)

    def encode(first: int, last: int) -> None:
        label_rows(turned[first:last], state.pivots, bounds, codes[first:last])

    run_blocks(encode, len(rows), BLOCK, threads)

    def moved(first: int, last: int) -> tuple[NDArray[np.float32], float]:
        columns = slice(bounds[first], bounds[last])
        before = state.pivots[:, columns]
        sums, counts = np.zeros(before.shape), np.zeros(len(before), np.int64)
        add_up(np.ascontiguousarray(turned[:, columns]), np.ascontiguousarray(codes[:, first]), sums, counts)
        means = sums / np.maximum(counts, 1)[:, None]
        pivots = np.where(counts[:, None] > 0, means, before).astype(np.float32)
        return pivots, float((sums * means).sum())  # the squares that the means explain

    chunks = list(map_blocks(moved, len(bounds) - 1, 1, threads))
    book = Codebook(np.hstack([pivots for pivots, _ in chunks]), offsets)
    error = float(np.einsum("ij,ij->", rows, rows, dtype=np.float64)) - sum(part for _, part in chunks)

    def multiply(first: int, last: int) -> NDArray[np.float64]:
        return (rows[first:last].T @ book.decoded(codes[first:last])).astype(np.float64)

    products = sum(map_blocks(multiply, len(rows), BLOCK, threads), np.zeros((rows.shape[1],) * 2))
    u, _, v = np.linalg.svd(products)
    return _State((u @ v).astype(np.float32), book.pivots, error)
