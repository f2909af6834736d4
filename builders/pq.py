"""Product quantization (Jegou et al., 2011): Lloyd's k-means per chunk and encoding, both as matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.nearest import augment, origin_of, with_one
from indexmill.builders.parallel import map_blocks
from indexmill.formats.codes import Codebook

#: Centres of a chunk: one byte a chunk.
N_CENTRES = 256
#: Training vectors: 256 a centre, beyond which the error hardly falls.
TRAINING_VECTORS = 256 * N_CENTRES
#: Lloyd iterations; DiskANN uses 15 at most.
_ITERATIONS = 15
#: Rows encoded at a time (fixed: see `builders.nearest`).
_BLOCK = 4096


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
    chosen = np.linspace(0, len(sample) - 1, min(len(sample), TRAINING_VECTORS)).astype(np.int64)
    rows = np.asarray(sample[chosen], dtype=np.float32)  # spread out: a sample may be sorted
    origin = origin_of(rows)
    rows -= origin  # a copy of the sample
    dim = rows.shape[1]
    n_chunks = min(n_chunks, dim)
    offsets = (np.arange(n_chunks + 1) * dim // n_chunks).astype(np.uint32)
    n_centres = min(N_CENTRES, len(rows))

    def chunk(first: int, last: int) -> NDArray[np.float32]:
        columns = np.ascontiguousarray(rows[:, offsets[first] : offsets[last]])
        return _lloyd(columns, n_centres, np.random.default_rng([seed, first]))

    return Codebook(np.hstack(list(map_blocks(chunk, n_chunks, 1, threads))) + origin, offsets)


def _lloyd(rows: NDArray[np.float32], n_centres: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """k-means from random rows; a centre that loses all its rows moves to a row that is far from its own."""
    centres = rows[np.sort(rng.choice(len(rows), n_centres, replace=False))].copy()
    ones = with_one(rows)
    norms = np.einsum("ij,ij->i", rows, rows)
    for _ in range(_ITERATIONS):
        labels = np.empty(len(rows), np.int64)
        errors = np.empty(len(rows), np.float32)
        augmented = augment(centres)
        for first in range(0, len(rows), _BLOCK):  # blocks stay in cache, the whole product would not
            distances = ones[first : first + _BLOCK] @ augmented
            block = distances.argmin(axis=1)
            labels[first : first + _BLOCK] = block
            errors[first : first + _BLOCK] = np.take_along_axis(distances, block[:, None], 1)[:, 0]
        counts = np.bincount(labels, minlength=n_centres)
        sums = np.stack([np.bincount(labels, column, n_centres) for column in rows.T], axis=1)
        filled = counts > 0
        centres[filled] = (sums[filled] / counts[filled, None]).astype(np.float32)
        empty = np.flatnonzero(~filled)
        if len(empty):
            centres[empty] = rows[np.argsort(-(errors + norms), kind="stable")[: len(empty)]]
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
    origin = origin_of(codebook.pivots)
    pivots = codebook.pivots - origin
    chunks = [augment(pivots[:, bounds[j] : bounds[j + 1]]) for j in range(n_chunks)]
    codes = np.empty((len(vectors), n_chunks), np.uint8) if out is None else out

    def block(first: int, last: int) -> int:
        rows = np.asarray(vectors[first:last], dtype=np.float32) - origin
        for j, augmented in enumerate(chunks):
            distances = with_one(rows[:, bounds[j] : bounds[j + 1]]) @ augmented
            codes[first:last, j] = distances.argmin(axis=1)
        return last - first

    for done in map_blocks(block, len(vectors), _BLOCK, threads):
        advance(done)
    return codes
