"""Codes that are chosen by what queries compare (OOD-DiskANN section 4; Guo et al., 2020, ScaNN).

A search estimates the squared distance of a query q to a vector x by the one to its code's vector y, and errs by
``2 (q - x)(x - y) + |x - y|^2``. The nearest centre of each chunk makes the last term small. Where queries lie far
from all vectors, as questions do from images, the first term is larger by far: what counts is the error e = x - y
along the few directions in which queries lie. A sample of queries says which: S is the mean of ``(q - x)(q - x)'``
over its queries and their nearest vectors, and codes are chosen for a small ``e' S e``, the mean square of half the
first term, beside a share of ``|e|^2``.

Chunks depend on each other then: one makes good the error of another. From the nearest centres on, each chunk in turn
takes the centre that is best beside those of all others (iterated conditional modes), a few times.

Deviations from OOD-DiskANN: the centres stay those of plain training, and codes are chosen by S as a whole, not chunk
by chunk. Centres that each chunk trains by its part of S gained less.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.quantize.pq import label_rows
from indexmill.formats.graph.codes import Codebook
from indexmill.reader.threads import map_blocks

#: Weight of ``|e|^2``, over the mean of S's diagonal; a half and five times as much do as well.
_EVEN_SHARE = 1.0
#: Times that the chunks take their turns; the searches read hardly less with more.
_TURNS = 3
#: Rows coded at a time, and pairs of queries and vectors added up at a time; they affect results.
_BLOCK, _PAIRS = 4096, 4096


def query_spread(
    queries: NDArray[np.float32], vectors: NDArray[Any], nearest: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """Return S, the mean of ``(q - x)(q - x)'`` over queries q and their nearest vectors x: shape (dim, dim).

    Memory: `spread_bytes`.

    Parameters
    ----------
    queries : array, shape (n_queries, dim)
    vectors : array, shape (n_vectors, dim)
        May be a mapped file: only nearest vectors are read.
    nearest : uint32 array, shape (n_queries, k)
        Their rows.
    """
    dim, k = queries.shape[1], nearest.shape[1]
    total, step = np.zeros((dim, dim)), max(1, _PAIRS // k)
    for first in range(0, len(queries), step):
        rows = vectors[nearest[first : first + step].ravel()].astype(np.float32)
        apart = np.repeat(queries[first : first + step], k, axis=0) - rows
        total += apart.T @ apart
    return total / nearest.size


def spread_bytes(dim: int) -> int:
    """Return the peak memory of `query_spread`, in bytes: three blocks of pairs, and two matrices."""
    return 12 * _PAIRS * dim + 16 * dim**2


def choose_codes(
    vectors: NDArray[Any],
    codebook: Codebook,
    spread: NDArray[np.float64],
    codes: NDArray[np.uint8],
    threads: int = 1,
    advance: Callable[[int], None] = lambda vectors: None,
) -> None:
    """Choose codes anew by their error along the directions of queries, in place.

    Time of a vector: three encodings, and three products with a dim x dim matrix. Memory of a thread: three blocks of
    rows, and the matrix.

    Parameters
    ----------
    vectors : array, shape (n_vectors, dim)
    spread : float64 array, shape (dim, dim)
        S, as of `query_spread`.
    codes : uint8 array, shape (n_vectors, M)
        The nearest centres, as `encode_pq` finds them; may be a mapped file.
    """
    weights = _weights(spread, codebook.rotation)
    chunks = [
        _Chunk(slice(*bounds), weights, codebook.pivots) for bounds in pairwise(codebook.offsets.tolist())
    ]

    def block(first: int, last: int) -> int:
        rows, chosen = codebook.rotated(vectors[first:last]), np.array(codes[first:last])
        errors = rows - codebook.decoded(chosen)
        for _ in range(_TURNS):
            for j, chunk in enumerate(chunks):
                chosen[:, j] = chunk.best(rows, errors)
        codes[first:last] = chosen
        return last - first

    for done in map_blocks(block, len(vectors), _BLOCK, threads):
        advance(done)


def choosing_bytes(dim: int, chunks: int, threads: int) -> int:
    """Return the peak memory of `choose_codes`, without vectors and codes, in bytes."""
    return threads * _BLOCK * (16 * dim + 2 * chunks) + 40 * dim**2


class _Chunk:
    """A chunk of the components, its centres, and what its error weighs beside the errors of all others."""

    def __init__(self, place: slice, weights: NDArray[np.float64], pivots: NDArray[np.float32]) -> None:
        own = weights[place, place]
        scale = np.linalg.cholesky(own)
        self.place = place
        self.pivots = np.ascontiguousarray(pivots[:, place])
        self.scaled_pivots = np.ascontiguousarray(self.pivots @ scale, np.float32)
        self.scale = scale.astype(np.float32)
        # of errors: what the chunk's own error must make good
        self.pull = np.linalg.solve(own, weights[place]).T.astype(np.float32)
        self.bounds = np.array([0, place.stop - place.start])

    def best(self, rows: NDArray[np.float32], errors: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the best centre of each of `rows`, uint8 (m,), beside the other chunks' `errors`; update its own."""
        # With c the centre and d the errors, d' W d is least where c is nearest, in the norm of the chunk's own
        # weights, to the row's chunk and the pull of all errors but the chunk's own.
        wanted = rows[:, self.place] - errors[:, self.place] + errors @ self.pull
        labels = np.empty((len(rows), 1), np.uint8)
        label_rows(np.ascontiguousarray(wanted @ self.scale), self.scaled_pivots, self.bounds, labels)
        errors[:, self.place] = rows[:, self.place] - self.pivots[labels[:, 0]]
        return labels[:, 0]


def _weights(spread: NDArray[np.float64], rotation: NDArray[np.float32] | None) -> NDArray[np.float64]:
    """Return the weights of errors of rotated vectors, about 1 for a component."""
    if rotation is not None:
        wide = rotation.astype(np.float64)
        spread = wide.T @ spread @ wide
    mean = float(np.trace(spread)) / len(spread)
    weights: NDArray[np.float64] = _EVEN_SHARE * np.eye(len(spread))
    if mean > 0:  # else queries are vectors that are all equal
        weights += spread / mean
    return weights
