"""OPQ (Ge, He, Ke and Sun, 2013): a rotation of the vectors under which a product quantizer errs less.

With the rotation fixed, one step of k-means a chunk; with the codes fixed, the rotation nearest to what they stand for
(orthogonal Procrustes); and again (section 3.1). It ends in a minimum near its start, and there are two: the
components as they are, whose neighbours often belong together, as in SIFT's histograms, and the principal directions,
dealt to the chunks so that each has about the same product of variances (section 3.2). A few rounds from each tell
which is the better one, which goes on. In the end centres are trained as those of codes without a rotation are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.quantize.pq import (
    N_CENTRES,
    add_up,
    chunk_offsets,
    chunk_pivots,
    label_rows,
    training_rows,
)
from indexmill.formats.graph.codes import Codebook
from indexmill.reader.threads import map_blocks, run_blocks

#: Rounds from each start, and further ones from the better.
_TRIALS, _ROUNDS = 5, 15
#: Iterations of k-means before the first round.
_FIRST_ITERATIONS = 5
#: Rows that rounds look at: 128 a centre, half of those that centres are trained on in the end.
_ROWS = 128 * N_CENTRES
#: Rows multiplied at a time; part of the result.
BLOCK = 4096
#: Variances are taken for this share of the largest at least: there may be none in a direction.
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True)
class _State:
    """A rotation R, the centres found last, float32 (K, dim), and the error they left, summed over the rows."""

    rotation: NDArray[np.float32]
    pivots: NDArray[np.float32]
    error: float


def train_opq(sample: NDArray[Any], n_chunks: int, *, seed: int, threads: int = 1) -> Codebook:
    """Train a rotation and a codebook.

    Memory: the training rows twice as float32, and a few matrices of dim x dim. Time: beside training twice, for each
    of 25 rounds an encoding of `_ROWS` rows, two products of them and a matrix, and the singular values of one.

    Parameters
    ----------
    sample : array, shape (n_sample, dim)
        As for `train_pq`.
    n_chunks : int
        Bytes of a code; at most dim chunks are made.
    seed : int

    Returns
    -------
    Codebook
        With a rotation.
    """
    rows = training_rows(sample)
    origin = rows.mean(axis=0, dtype=np.float64)
    rows -= origin.astype(np.float32)  # a copy of the sample
    # Sums of squares of all rows are to stay within float32; by a power of two nothing is rounded.
    exponent = int(np.frexp(max(rows.max(), -rows.min()))[1])
    np.ldexp(rows, -exponent, out=rows)
    offsets = chunk_offsets(rows.shape[1], n_chunks)
    rotation = _rotation(rows, offsets, seed, threads)
    pivots = chunk_pivots(_turned(rows, rotation, threads), offsets, seed=seed, threads=threads)
    shifted = np.ldexp(pivots.astype(np.float64), exponent) + origin @ rotation
    return Codebook(shifted.astype(np.float32), offsets, rotation)


def _rotation(
    rows: NDArray[np.float32], offsets: NDArray[np.uint32], seed: int, threads: int
) -> NDArray[np.float32]:
    """Return the rotation of centred `rows`, the better of those that both starts lead to."""
    few = len(rows) <= _ROWS
    some = rows if few else rows[np.linspace(0, len(rows) - 1, _ROWS).astype(np.int64)]

    def begin(rotation: NDArray[np.float32]) -> _State:
        turned = _turned(some, rotation, threads)
        pivots = chunk_pivots(turned, offsets, seed=seed, threads=threads, iterations=_FIRST_ITERATIONS)
        del turned
        return advance(_State(rotation, pivots, np.inf), _TRIALS)

    def advance(state: _State, rounds: int) -> _State:
        for _ in range(rounds):
            state = _alternate(some, state, offsets, threads)
        return state

    starts = np.eye(rows.shape[1], dtype=np.float32), _principal_rotation(some, offsets, threads)
    best = min((begin(rotation) for rotation in starts), key=lambda state: state.error)
    return advance(best, _ROUNDS).rotation


def _turned(rows: NDArray[np.float32], rotation: NDArray[np.float32], threads: int) -> NDArray[np.float32]:
    """Return ``rows @ rotation``."""
    turned = np.empty_like(rows)

    def block(first: int, last: int) -> None:
        np.matmul(rows[first:last], rotation, out=turned[first:last])

    run_blocks(block, len(rows), BLOCK, threads)
    return turned


def _principal_rotation(
    rows: NDArray[np.float32], offsets: NDArray[np.uint32], threads: int
) -> NDArray[np.float32]:
    """Return the principal directions of centred `rows` as columns, dealt to the chunks.

    From the largest variance on, each goes to the chunk whose variances have the least product so far and that has
    room. Variances count in multiples of the least: with factors below 1 a product would fall as a chunk fills.
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
    """Return the state after a step of k-means and the rotation nearest to the centres of the codes.

    Its error is that of the codes before their centres moved. A centre that loses all its rows stays where it is.
    """
    bounds, centres = offsets.astype(np.int64), np.ascontiguousarray(state.pivots.T)
    turned = _turned(rows, state.rotation, threads)
    codes = np.empty((len(rows), len(bounds) - 1), np.uint8)

    def encode(first: int, last: int) -> float:
        errors = np.empty(codes[first:last].shape, np.float32)
        label_rows(turned[first:last], centres, bounds, codes[first:last], errors)
        return float(errors.sum(dtype=np.float64))

    error = sum(map_blocks(encode, len(rows), BLOCK, threads))

    def moved(first: int, last: int) -> NDArray[np.float32]:
        columns = slice(bounds[first], bounds[last])
        before = state.pivots[:, columns]
        sums, counts = np.zeros(before.shape), np.zeros(len(before), np.int64)
        add_up(np.ascontiguousarray(turned[:, columns]), np.ascontiguousarray(codes[:, first]), sums, counts)
        means = sums / np.maximum(counts, 1)[:, None]
        return np.where(counts[:, None] > 0, means, before).astype(np.float32)

    book = Codebook(np.hstack(list(map_blocks(moved, len(bounds) - 1, 1, threads))), offsets)

    def multiply(first: int, last: int) -> NDArray[np.float64]:
        return (rows[first:last].T @ book.decoded(codes[first:last])).astype(np.float64)

    products = sum(map_blocks(multiply, len(rows), BLOCK, threads), np.zeros((rows.shape[1],) * 2))
    u, _, v = np.linalg.svd(products)
    return _State((u @ v).astype(np.float32), book.pivots, error)
