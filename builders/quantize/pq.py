"""Product quantization (Jegou et al., 2011): Lloyd's k-means for each chunk, and encoding.

Distances to the centres of a chunk are matrix products, tile by tile, each searched while it is in a core's own cache.
BLAS is slow at the products of narrow chunks; for these, squared differences are summed for all centres and one row at
a time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.nearest.products import augment, with_one
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.kernel import kernel
from indexmill.reader.threads import map_blocks

#: Centres of a chunk, whose numbers fit one byte.
N_CENTRES = 256
#: Most training vectors: 256 a centre; with more, the error hardly falls.
TRAINING_VECTORS = 256 * N_CENTRES
#: Lloyd iterations, as many as faiss's.
ITERATIONS = 25
#: Least components of a chunk for which products are faster: measured with 4, 8, 16 and 24.
_WIDE = 8
#: Rows of a product; it affects results.
_TILE = 256
#: Rows encoded at a time, which stay in a core's cache for all chunks.
_BLOCK = 1024


def train_pq(sample: NDArray[Any], n_chunks: int, *, seed: int, threads: int = 1) -> Codebook:
    """Train a codebook.

    Parameters
    ----------
    sample : array, shape (n_sample, dim)
        At least one row; with fewer than 256 rows, every row is a centre.
    n_chunks : int
        Bytes of a code; at most dim chunks are made.
    seed : int

    Returns
    -------
    Codebook
        With pivots, float32 (K, dim) for K = min(256, n_sample), and offsets, uint32 (M + 1,) for
        M = min(n_chunks, dim); chunk sizes differ by at most one.
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
    """Return at most `TRAINING_VECTORS` rows of `sample`, float32, evenly spread because it may be sorted."""
    chosen = np.linspace(0, len(sample) - 1, min(len(sample), TRAINING_VECTORS)).astype(np.int64)
    return np.asarray(sample[chosen], dtype=np.float32)


def chunk_offsets(dim: int, n_chunks: int) -> NDArray[np.uint32]:
    """Return the bounds of at most `n_chunks` chunks, uint32 (M + 1,), whose sizes differ by at most one."""
    n_chunks = min(n_chunks, dim)
    return (np.arange(n_chunks + 1) * dim // n_chunks).astype(np.uint32)


def _lloyd(rows: NDArray[np.float32], rng: np.random.Generator, iterations: int) -> NDArray[np.float32]:
    """Return k-means centres from random rows; a centre that loses all its rows moves to the row with most error."""
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
    """Encode vectors by the nearest centre of each chunk, ties by the smaller index.

    Parameters
    ----------
    vectors : array, shape (n_vectors, dim)
    out : uint8 array, shape (n_vectors, M), optional
        Receives the codes; may be a mapped file.

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
        Row d has component d of every centre; K is at most 256.
    bounds : int64 array, shape (M + 1,)
        Bounds of the chunks.
    labels, errors : uint8 and float32 arrays, shape (m, M)
        Receive the centres, and the squared distances to them.
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
            columns = rows[tile, first:last]
            products = np.matmul(
                with_one(columns - origin[first:last]), augmented, out=scores[: len(columns)]
            )
            _label_tile(
                products.view(np.int32), columns, centres[first:last], labels[tile, j], errors[tile, j]
            )


@kernel(fastmath={"contract"})
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


@kernel(fastmath={"contract"})
def _label_tile(
    bits: Any, rows: Any, centres: Any, labels: Any, errors: Any
) -> None:  # pragma: no cover - compiled
    """Find the least score of each row, int32 bits of floats (m, K), and compute its distance from the components."""
    for i in range(len(rows)):
        at = _first_at(bits[i], _ordered(_least_ordered(bits[i])))
        distance = np.float32(0)
        for d in range(len(centres)):
            apart = rows[i, d] - centres[d, at]
            distance += apart * apart
        labels[i] = at
        errors[i] = distance


@kernel
def _ordered(bits: Any) -> Any:  # pragma: no cover - compiled
    """Map float bits to an int32 of the same order, and such an int32 back to the bits; 0 and -0 differ."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@kernel
def _least_ordered(bits: Any) -> Any:  # pragma: no cover - compiled
    least = _ordered(bits[0])
    for c in range(bits.size):
        value = _ordered(bits[c])
        least = value if value < least else least
    return least


@kernel
def _least(bits: Any) -> Any:  # pragma: no cover - compiled
    """Return the least of `bits`, int32; bits of nonnegative floats are ordered as the floats.

    Unlike the least float, it is found by vector instructions.
    """
    least = bits[0]
    for c in range(bits.size):
        least = bits[c] if bits[c] < least else least
    return least


@kernel
def _first_at(bits: Any, least: Any) -> Any:  # pragma: no cover - compiled
    """Return the first place of `least`; scanning all places is faster than stopping."""
    nowhere = np.int32(bits.size)
    at = nowhere
    for c in range(bits.size):
        here = np.int32(c) if bits[c] == least else nowhere
        at = here if here < at else at
    return at


@kernel
def add_up(rows: Any, labels: Any, sums: Any, counts: Any) -> None:  # pragma: no cover - compiled
    """Add each row, float32 (m, d), to the sum of its label, float64 (K, d), and count the rows of each label."""
    for i in range(len(rows)):
        label = labels[i]
        counts[label] += 1
        for d in range(rows.shape[1]):
            sums[label, d] += rows[i, d]
