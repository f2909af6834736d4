"""Product quantization on a `Gpu`, and Lloyd's algorithm as two matrix products.

One product compares rows with centres. A second one sums the rows of each centre, by a matrix of ones where a row
belongs to a centre: unlike atomic additions, it adds in a fixed order. The chunks of a product quantizer are a batch of
products; k-means is a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.gpu import Gpu, uploaded
from indexmill.builders.nearest.products import origin_of
from indexmill.builders.quantize.pq import N_CENTRES, SCHEDULE, TRAINING_VECTORS, chunk_offsets, stride
from indexmill.formats.graph.codes import Codebook

#: Most rows of a product, whose float32 sums are then added in float64.
_MOST_ROWS = 1 << 16


def train_pq_on(gpu: Gpu, sample: NDArray[Any], n_chunks: int, *, seed: int) -> Codebook:
    """Train a codebook with the rows, first centres and iterations of `builders.quantize.pq.train_pq`.

    GPU memory: the training rows four times, and blocks of scores.

    Raises
    ------
    BudgetError
        If the GPU's memory is too small.
    """
    chosen = np.linspace(0, len(sample) - 1, min(len(sample), TRAINING_VECTORS)).astype(np.int64)
    rows = sample[chosen]
    origin = origin_of(rows)
    offsets = chunk_offsets(rows.shape[1], n_chunks)
    n_chunks = len(offsets) - 1
    columns, padding = _columns(offsets)
    first = [
        np.sort(np.random.default_rng([seed, j]).choice(len(rows), min(N_CENTRES, len(rows)), replace=False))
        for j in range(n_chunks)
    ]
    with gpu.use("the rows that a codebook is trained on") as xp:
        points = uploaded(xp, rows, np.float32) - xp.asarray(origin)
        chunks = points[:, xp.asarray(columns)].transpose(1, 0, 2)
        chunks = chunks * xp.asarray((~padding).astype(np.float32))[:, None, :]
        centres = chunks[xp.arange(n_chunks)[:, None], xp.asarray(np.stack(first))]
        for share, iterations, step in SCHEDULE:
            some = xp.ascontiguousarray(chunks[:, :: stride(len(rows), share)])
            centres = xp.asarray(lloyd_on(gpu, xp, some, centres, iterations, step))
        centres = gpu.host(centres)
    pivots = centres.transpose(1, 0, 2)[:, ~padding]  # chunk after chunk: the order of components
    return Codebook(np.ascontiguousarray(pivots) + origin, offsets)


def encode_pq_on(
    gpu: Gpu,
    vectors: NDArray[Any],
    codebook: Codebook,
    advance: Callable[[int], None] = lambda vectors: None,
    out: NDArray[np.uint8] | None = None,
) -> NDArray[np.uint8]:
    """Encode vectors as `builders.quantize.pq.encode_pq`: the nearest centre of each chunk, ties by the smaller index.

    GPU memory: the codebook, and blocks of scores.

    Parameters
    ----------
    vectors : array, shape (n_vectors, dim)
    out : uint8 array, shape (n_vectors, M), optional
        Receives the codes; may be a mapped file.

    Returns
    -------
    uint8 array, shape (n_vectors, M)

    Raises
    ------
    BudgetError
        If the GPU's memory is too small.
    """
    columns, padding = _columns(codebook.offsets)
    origin = origin_of(codebook.pivots)
    pivots = (codebook.pivots - origin)[:, columns].transpose(1, 2, 0)
    codes = np.empty((len(vectors), len(columns)), np.uint8) if out is None else out
    with gpu.use("codes") as xp:
        # The padding column of a narrower chunk is 0 in its centres.
        turned = xp.asarray(np.where(padding[:, :, None], 0, pivots).astype(np.float32))
        norms = (turned * turned).sum(axis=1)[:, None, :]
        turned *= -2.0
        centre, column = xp.asarray(origin), xp.asarray(columns)

        def block(first: int, last: int) -> None:
            rows = uploaded(xp, vectors[first:last], np.float32) - centre
            scores = xp.matmul(rows[:, column].transpose(1, 0, 2), turned)
            scores += norms
            codes[first:last] = gpu.host(scores.argmin(axis=2).astype(np.uint8)).T
            advance(last - first)

        a_row = columns.size * 8 + len(columns) * (4 * norms.shape[2] + 12) + 12 * vectors.shape[1]
        gpu.blocks(len(vectors), a_row, block)
    return codes


def _columns(offsets: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the components of each chunk, (M, widest), and which of them are padding: sizes differ by at most one."""
    starts = offsets.astype(np.int64)
    widths = np.diff(starts)
    places = np.arange(widths.max())
    padding = places >= widths[:, None]
    return np.where(padding, 0, starts[:-1, None] + places), padding


def lloyd_on(
    gpu: Gpu, xp: Any, points: Any, centres: Any, iterations: int, step: float = 1.0
) -> NDArray[np.float32]:
    """Return the centres, float32 (batch, k, dim), of points (batch, n, dim) after Lloyd's iterations.

    A centre moves by `step` times its distance to the mean of its rows. A centre that loses all its rows moves to the
    row farthest from its centre, as in `builders.quantize.pq`.
    """
    norms = gpu.host((points * points).sum(axis=2))
    for _ in range(iterations):
        sums, counts, errors = _grouped(gpu, xp, points, centres)
        filled = (counts > 0)[:, :, None]
        moved = centres + step * (sums / xp.maximum(counts, 1)[:, :, None] - centres)
        centres = xp.where(filled, moved, centres).astype(np.float32)
        empty = gpu.host(counts) == 0
        if empty.any():
            centres = _refilled(gpu, xp, points, centres, empty, errors + norms)
    return np.asarray(gpu.host(centres))


def _grouped(gpu: Gpu, xp: Any, points: Any, centres: Any) -> tuple[Any, Any, NDArray[np.float32]]:
    """Return each centre's sum and number of rows, on the GPU, and each row's least score, in main memory."""
    batch, n, dim = points.shape
    k = centres.shape[1]
    turned = centres.transpose(0, 2, 1) * -2.0
    squares = (centres * centres).sum(axis=2)[:, None, :]
    numbers = xp.arange(k)[None, :, None]
    sums, counts = xp.zeros((batch, k, dim), np.float64), xp.zeros((batch, k), np.float64)
    errors = np.empty((batch, n), np.float32)

    def block(first: int, last: int) -> None:
        some = xp.ascontiguousarray(points[:, first:last])
        scores = xp.matmul(some, turned)
        scores += squares
        labels = scores.argmin(axis=2)
        lowest = gpu.host(scores.min(axis=2))
        belongs = (labels[:, None, :] == numbers).astype(np.float32)
        more, members = xp.matmul(belongs, some), belongs.sum(axis=2)
        errors[:, first:last] = lowest
        xp.add(sums, more, out=sums)
        xp.add(counts, members, out=counts)

    gpu.blocks(n, batch * (9 * k + 8 * dim + 24), block, _MOST_ROWS)
    return sums, counts, errors


def _refilled(
    gpu: Gpu,
    xp: Any,
    points: Any,
    centres: Any,
    empty: NDArray[np.bool_],
    distances: NDArray[np.float32],
) -> Any:
    """Return the centres with empty ones replaced by the rows farthest from their centre, ties by the smaller row."""
    known = gpu.host(centres)
    for j in np.flatnonzero(empty.any(axis=1)).tolist():
        farthest = np.argsort(-distances[j], kind="stable")[: int(empty[j].sum())]
        known[j, empty[j]] = gpu.host(points[j, xp.asarray(farthest)])
    return xp.asarray(known)
