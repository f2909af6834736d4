"""Product quantization (Jegou et al., 2011): k-means for each chunk, and encoding.

K-means is Lloyd's with two deviations, which reach the error of 25 plain iterations in less than half of the work. A
centre moves beyond the mean of its rows, by the factor of Lee, Baek and Sung (1997); the last iteration moves it to the
mean itself. And the first iterations look at a few of the rows: centres far from their places need no exact means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.graph.codes import Codebook
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import address, nearest_centres
from indexmill.reader.threads import map_blocks

#: Centres of a chunk, whose numbers fit one byte.
N_CENTRES = 256
#: Most training vectors: 256 a centre; with more, the error hardly falls.
TRAINING_VECTORS = 256 * N_CENTRES
#: Iterations of k-means as (share, iterations, step): one of `share` rows is looked at, and a centre moves by `step`
#: times its distance to the mean. Its cost is that of 10.5 iterations with all rows.
Schedule = tuple[tuple[int, int, float], ...]
SCHEDULE: Schedule = ((8, 8, 1.8), (4, 8, 1.8), (2, 5, 1.8), (1, 4, 1.8), (1, 1, 1.0))
#: Least rows that k-means looks at, if there are as many: 32 a centre.
_LEAST_ROWS = 32 * N_CENTRES
#: Rows encoded at a time.
_BLOCK = 4096


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
    schedule: Schedule = SCHEDULE,
    pivots: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Return the centres of each chunk of `rows` (n, dim), side by side: float32 (min(256, n), dim).

    K-means begins with `pivots`, of the same shape, or with random rows.
    """

    def chunk(first: int, last: int) -> NDArray[np.float32]:
        place = slice(offsets[first], offsets[last])
        columns = np.ascontiguousarray(rows[:, place])
        if pivots is None:
            rng = np.random.default_rng([seed, first])
            centres = columns[np.sort(rng.choice(len(rows), min(N_CENTRES, len(rows)), replace=False))]
        else:
            centres = np.ascontiguousarray(pivots[:, place])
        return _trained(columns, centres, schedule)

    return np.hstack(list(map_blocks(chunk, len(offsets) - 1, 1, threads)))


def training_rows(sample: NDArray[Any]) -> NDArray[np.float32]:
    """Return at most `TRAINING_VECTORS` rows of `sample`, float32, evenly spread because it may be sorted."""
    chosen = np.linspace(0, len(sample) - 1, min(len(sample), TRAINING_VECTORS)).astype(np.int64)
    return np.asarray(sample[chosen], dtype=np.float32)


def chunk_offsets(dim: int, n_chunks: int) -> NDArray[np.uint32]:
    """Return the bounds of at most `n_chunks` chunks, uint32 (M + 1,), whose sizes differ by at most one."""
    n_chunks = min(n_chunks, dim)
    return (np.arange(n_chunks + 1) * dim // n_chunks).astype(np.uint32)


def _trained(
    rows: NDArray[np.float32], centres: NDArray[np.float32], schedule: Schedule
) -> NDArray[np.float32]:
    """Return the centres after k-means; a centre that loses all its rows moves to the row with most error."""
    for share, iterations, step in schedule:
        looked_at = np.ascontiguousarray(rows[:: stride(len(rows), share)])
        for _ in range(iterations):
            centres = _moved(looked_at, centres, step)
    return centres


def stride(n_rows: int, share: int) -> int:
    """Return the distance of the rows that k-means looks at: `share`, or less if they would be too few."""
    return max(min(share, n_rows // _LEAST_ROWS), 1)


def _moved(rows: NDArray[np.float32], centres: NDArray[np.float32], step: float) -> NDArray[np.float32]:
    """Return the centres moved by `step` times their distance to the mean of their rows."""
    labels = np.empty((len(rows), 1), np.uint8)
    label_rows(rows, centres, np.array([0, rows.shape[1]]), labels)
    sums, counts = np.zeros(centres.shape), np.zeros(len(centres), np.int64)
    add_up(rows, labels[:, 0], sums, counts)
    moves = sums / np.maximum(counts, 1)[:, None] - centres
    moved = (centres + step * moves).astype(np.float32)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        apart = rows - centres[labels[:, 0]]
        errors = np.einsum("ij,ij->i", apart, apart)
        moved[empty] = rows[np.argsort(-errors, kind="stable")[: len(empty)]]
    return moved


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
    pivots = np.ascontiguousarray(codebook.pivots)
    codes = np.empty((len(vectors), n_chunks), np.uint8) if out is None else out

    def block(first: int, last: int) -> int:
        label_rows(codebook.rotated(vectors[first:last]), pivots, bounds, codes[first:last])
        return last - first

    for done in map_blocks(block, len(vectors), _BLOCK, threads):
        advance(done)
    return codes


def label_rows(
    rows: NDArray[np.float32],
    pivots: NDArray[np.float32],
    bounds: NDArray[np.int64],
    labels: NDArray[np.uint8],
) -> None:
    """Find the nearest centre of each row's chunks, ties by the smaller index; all arrays are C-contiguous.

    Parameters
    ----------
    rows : float32 array, shape (m, dim)
    pivots : float32 array, shape (K, dim)
        Centres of the chunks, side by side; K is 1 to 256.
    bounds : int64 array, shape (M + 1,)
        Bounds of the chunks, from 0 to dim.
    labels : uint8 array, shape (m, M)
        Receives the centres.
    """
    _label_rows(rows, pivots, bounds, labels)


@kernel
def _label_rows(rows: Any, pivots: Any, bounds: Any, labels: Any) -> None:  # pragma: no cover - compiled
    nearest_centres(
        address(rows),
        rows.shape[1],
        len(rows),
        address(pivots),
        len(pivots),
        bounds.ctypes.data,
        len(bounds) - 1,
        address(labels),
    )


@kernel
def add_up(rows: Any, labels: Any, sums: Any, counts: Any) -> None:  # pragma: no cover - compiled
    """Add each row, float32 (m, d), to the sum of its label, float64 (K, d), and count the rows of each label."""
    for i in range(len(rows)):
        label = labels[i]
        counts[label] += 1
        for d in range(rows.shape[1]):
            sums[label, d] += rows[i, d]
