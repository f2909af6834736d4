"""Product quantization (Jegou et al., 2011): Lloyd's k-means a chunk, and encoding.

Distances to the centres of a chunk are a product of matrices, tile by tile, which is looked through while it is in a
core's own cache. Of narrow chunks, whose products BLAS is slow at, squared differences are added up for all centres of
one row at a time instead, in the nearest cache.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.builders.nearest.products import augment, with_one
from indexmill.formats.graph.codes import Codebook
from indexmill.reader.threads import map_blocks

#: Centres of a chunk: one byte a chunk.
N_CENTRES = 256
#: Training vectors: 256 a centre, beyond which the error hardly falls.
TRAINING_VECTORS = 256 * N_CENTRES
#: Lloyd iterations, as many as faiss's.
ITERATIONS = 25
#: Components of a chunk from which on products are faster: measured with 4, 8, 16 and 24.
_WIDE = 8
#: Rows of a product; part of the result.
_TILE = 256
#: Rows encoded at a time: they stay in a core's cache while chunk after chunk is looked at.
_BLOCK = 1024


def train_pq(sample: NDArray[Any], n_chunks: int, *, seed: int, threads: int = 1) -> Codebook:
    """Train a codebook.

    Parameters
    ----------
    sample : array, shape (n_sample, dim)
        At least one row; with fewer than 256 rows there is one centre a row.
    n_chunks : int
        Bytes of a code; at most dim chunks are made.
    seed : int

    Returns
    -------
    Codebook
        Pivots float32 (K, dim), K = min(256, n_sample); offsets uint32 (M + 1,), M = min(n_chunks, dim), chunk
        sizes differing by at most one.
    """
    rows = training_rows(sample)
    offsets = chunk_offsets(rows.shape[1], n_chunks)
    return Codebook(chunk_pivots(rows, offsets, seed=seed, threads=threads), offsets)


def chunk_pivots(
    rows: NDArray[np.float32],
    offsets: NDArray[np.uint32],
    *,
    seed: int,
    threads: int = 1,
    iterations: int = ITERATIONS,
) -> NDArray[np.float32]:
    """Return the centres of each chunk of `rows` (n, dim), side by side: float32 (min(256, n), dim)."""

    def chunk(first: int, last: int) -> NDArray[np.float32]:
        columns = np.ascontiguousarray(rows[:, offsets[first] : offsets[last]])
        return _lloyd(columns, np.random.default_rng([seed, first]), iterations)

    return np.hstack(list(map_blocks(chunk, len(offsets) - 1, 1, threads)))


def training_rows(sample: NDArray[Any]) -> NDArray[np.float32]:
    """Return at most `TRAINING_VECTORS` rows of `sample`, spread out, for it may be sorted; float32."""
    chosen = np.linspace(0, len(sample) - 1, min(len(sample), TRAINING_VECTORS)).astype(np.int64)
    return np.asarray(sample[chosen], dtype=np.float32)


def chunk_offsets(dim: int, n_chunks: int) -> NDArray[np.uint32]:
    """Return where at most `n_chunks` chunks begin, and `dim`: their sizes differ by at most one."""
    n_chunks = min(n_chunks, dim)
    return (np.arange(n_chunks + 1) * dim // n_chunks).astype(np.uint32)


def _lloyd(rows: NDArray[np.float32], rng: np.random.Generator, iterations: int) -> NDArray[np.float32]:
    """k-means from random rows; a centre that loses all its rows moves to a row that is far from its own."""
    n_centres = min(N_CENTRES, len(rows))
    centres = rows[np.sort(rng.choice(len(rows), n_centres, replace=False))].copy()
    labels, errors = np.empty((len(rows), 1), np.uint8), np.empty((len(rows), 1), np.float32)
    bounds = np.array([0, rows.shape[1]])
    for _ in range(iterations):
        label_rows(rows, np.ascontiguousarray(centres.T), bounds, labels, errors)
        sums, counts = np.zeros(centres.shape), np.zeros(n_centres, np.int64)
        add_up(rows, labels[:, 0], sums, counts)
        filled = counts > 0
        centres[filled] = (sums[filled] / counts[filled, None]).astype(np.float32)
        empty = np.flatnonzero(~filled)
        if len(empty):
            centres[empty] = rows[np.argsort(-errors[:, 0], kind="stable")[: len(empty)]]
    return centres


def encode_pq(
    vectors: NDArray[Any],
    codebook: Codebook,
    threads: int = 1,
    advance: Callable[[int], None] = lambda vectors: None,
    out: NDArray[np.uint8] | None = None,
) -> NDArray[np.uint8]:
    """Encode vectors: the nearest centre of each chunk, ties by the smaller index.

    Parameters
    ----------
    vectors : array, shape (n_vectors, dim)
    out : uint8 array, shape (n_vectors, M), optional
        Where to put the codes, a mapped file for instance.

    Returns
    -------
    uint8 array, shape (n_vectors, M)
    """
    bounds = codebook.offsets.astype(np.int64)
    n_chunks = len(bounds) - 1
    centres = np.ascontiguousarray(codebook.pivots.T)
    codes = np.empty((len(vectors), n_chunks), np.uint8) if out is None else out

    def block(first: int, last: int) -> int:
        rows = codebook.rotated(vectors[first:last])
        errors = np.empty((last - first, n_chunks), np.float32)
        label_rows(rows, centres, bounds, codes[first:last], errors)
        return last - first

    for done in map_blocks(block, len(vectors), _BLOCK, threads):
        advance(done)
    return codes


def label_rows(
    rows: NDArray[np.float32],
    centres: NDArray[np.float32],
    bounds: NDArray[np.int64],
    labels: NDArray[np.uint8],
    errors: NDArray[np.float32],
) -> None:
    """Find the nearest centre of each row's chunks, ties by the smaller index.

    Parameters
    ----------
    rows : float32 array, shape (m, dim)
    centres : float32 array, shape (dim, K)
        Row d is component d of every centre; K at most 256.
    bounds : int64 array, shape (M + 1,)
        Where chunks begin and end.
    labels, errors : uint8 and float32 arrays, shape (m, M)
        Get the centres, and the squared distances to them.
    """
    if np.diff(bounds).max() < _WIDE:
        _label_narrow(rows, centres, bounds, labels, errors)
        return
    origin = centres.mean(axis=1)
    scores = np.empty((min(_TILE, len(rows)), centres.shape[1]), np.float32)
    for j, (first, last) in enumerate(pairwise(bounds.tolist())):
        augmented = augment((centres[first:last] - origin[first:last, None]).T)
        for top in range(0, len(rows), _TILE):
            tile = slice(top, min(top + _TILE, len(rows)))
            some = rows[tile, first:last]
            products = np.matmul(with_one(some - origin[first:last]), augmented, out=scores[: len(some)])
            _label_tile(products.view(np.int32), some, centres[first:last], labels[tile, j], errors[tile, j])


@njit(nogil=True, cache=True, fastmath={"contract"})
def _label_narrow(
    rows: Any, centres: Any, bounds: Any, labels: Any, errors: Any
) -> None:  # pragma: no cover - compiled
    distances = np.empty(centres.shape[1], np.float32)
    bits = distances.view(np.int32)
    for j in range(len(bounds) - 1):
        for i in range(len(rows)):
            distances[:] = 0
            for d in range(bounds[j], bounds[j + 1]):
                x = rows[i, d]
                for c in range(distances.size):
                    apart = x - centres[d, c]
                    distances[c] += apart * apart
            at = _first_at(bits, _least(bits))
            labels[i, j] = at
            errors[i, j] = distances[at]


@njit(nogil=True, cache=True, fastmath={"contract"})
def _label_tile(
    bits: Any, rows: Any, centres: Any, labels: Any, errors: Any
) -> None:  # pragma: no cover - compiled
    """Find the least score of each row, int32 bits of floats (m, K), and its distance, which is told anew."""
    for i in range(len(rows)):
        at = _first_at(bits[i], _ordered(_least_ordered(bits[i])))
        distance = np.float32(0)
        for d in range(len(centres)):
            apart = rows[i, d] - centres[d, at]
            distance += apart * apart
        labels[i] = at
        errors[i] = distance


@njit(nogil=True, cache=True)
def _ordered(bits: Any) -> Any:  # pragma: no cover - compiled
    """Return an int32 that is ordered as the float of these bits, and of that the bits again; 0 and -0 differ."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@njit(nogil=True, cache=True)
def _least_ordered(bits: Any) -> Any:  # pragma: no cover - compiled
    least = _ordered(bits[0])
    for c in range(bits.size):
        value = _ordered(bits[c])
        least = value if value < least else least
    return least


@njit(nogil=True, cache=True)
def _least(bits: Any) -> Any:  # pragma: no cover - compiled
    """Return the least of `bits`, int32: those of floats that are not negative are in the order of the floats.

    Unlike the least of floats it is found with vector instructions.
    """
    least = bits[0]
    for c in range(bits.size):
        least = bits[c] if bits[c] < least else least
    return least


@njit(nogil=True, cache=True)
def _first_at(bits: Any, least: Any) -> Any:  # pragma: no cover - compiled
    """Return the first place of `least`; looking at all places is faster than stopping there."""
    nowhere = np.int32(bits.size)
    at = nowhere
    for c in range(bits.size):
        here = np.int32(c) if bits[c] == least else nowhere
        at = here if here < at else at
    return at


@njit(nogil=True, cache=True)
def add_up(rows: Any, labels: Any, sums: Any, counts: Any) -> None:  # pragma: no cover - compiled
    """Add each row, float32 (m, d), to the sum of its label, float64 (K, d), and count it."""
    for i in range(len(rows)):
        label = labels[i]
        counts[label] += 1
        for d in range(rows.shape[1]):
            sums[label, d] += rows[i, d]
