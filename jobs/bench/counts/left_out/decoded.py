"""Distances of queries to what codes in memory and nodes on a page hold of vectors: formats that no index has, too.

Each function returns squared distances of all queries to all rows, float32 (n_queries, n_rows). Codes are trained on a
sample of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.kmeans import fit_centroids
from indexmill.builders.quantize.opq import train_opq
from indexmill.builders.quantize.pq import encode_pq
from indexmill.builders.quantize.rabitq import encode_rabitq, random_rotation
from indexmill.builders.quantize.scalar import fit_scale
from indexmill.formats.ivf.rabitq import heads_of, levels_of
from indexmill.jobs.bench.common.parameters import SEED, THREADS

#: Centroids that RaBitQ codes are taken around.
CENTROIDS = 1024
#: Rows at a time.
BLOCK = 16_384
#: Steps of a component of 4 bits: 16 over so many standard deviations.
LEVELS, DEVIATIONS = 16, 5.4

#: Of queries, rows and training rows.
Distances = Callable[[Any, Any, Any], NDArray[np.float32]]


def squared(queries: Any, rows: Any) -> NDArray[np.float32]:
    """Return squared distances, float32 (n_queries, n_rows)."""
    squares = np.einsum("qd,qd->q", queries, queries)[:, None] + np.einsum("nd,nd->n", rows, rows)
    found: NDArray[np.float32] = np.maximum(squares - 2 * queries @ rows.T, 0).astype(np.float32)
    return found


def in_blocks(queries: Any, base: Any, decoded: Callable[[Any], Any]) -> NDArray[np.float32]:
    """Return squared distances of queries to what blocks of `base` are decoded to."""
    out = np.empty((len(queries), len(base)), np.float32)
    for first in range(0, len(base), BLOCK):
        out[:, first : first + BLOCK] = squared(queries, decoded(base[first : first + BLOCK]))
    return out


def rotated_codes(queries: Any, base: Any, sample: Any, n_bytes: int) -> NDArray[np.float32]:
    """Return distances by rotated product codes."""
    codebook = train_opq(sample, n_bytes, seed=SEED, threads=THREADS)
    turned = codebook.rotated(queries)
    return in_blocks(turned, base, lambda rows: codebook.decoded(encode_pq(rows, codebook, THREADS)))


def rabitq_codes(queries: Any, base: Any, sample: Any, bits: int) -> NDArray[np.float32]:
    """Return distances by RaBitQ codes of the differences from the nearest of `CENTROIDS` centroids."""
    centroids = fit_centroids(sample, CENTROIDS, SEED, THREADS)
    rotation = random_rotation(base.shape[1], np.random.default_rng(SEED))
    blocks = [base[first : first + BLOCK] for first in range(0, len(base), BLOCK)]
    cells = np.concatenate([squared(rows, centroids).argmin(axis=1) for rows in blocks])
    turned, turned_centroids = queries @ rotation, centroids @ rotation
    out = np.empty((len(queries), len(base)), np.float32)
    for number, centroid in enumerate(centroids):
        ids = np.flatnonzero(cells == number)
        rows = encode_rabitq((base[ids] - centroid) @ rotation, bits)
        lengths, factors = heads_of(rows).T
        values = factors[:, None] * (
            2 * levels_of(rows, base.shape[1], bits).astype(np.float32) + 1 - 2**bits
        )
        away = turned - turned_centroids[number]
        out[:, ids] = np.einsum("qd,qd->q", away, away)[:, None] + lengths - 2 * away @ values.T
    return out


def four_bits(queries: Any, base: Any, sample: Any) -> NDArray[np.float32]:
    """Return distances by even steps of each component, 4 bits each."""
    low = sample.mean(axis=0) - DEVIATIONS / 2 * sample.std(axis=0)
    step = np.maximum(DEVIATIONS * sample.std(axis=0) / (LEVELS - 1), np.finfo(np.float32).tiny)
    return in_blocks(
        queries, base, lambda rows: low + step * np.clip(np.rint((rows - low) / step), 0, LEVELS - 1)
    )


def principal_bytes(queries: Any, base: Any, sample: Any, one_in: int) -> NDArray[np.float32]:
    """Return distances by a byte for each of the leading principal components, one in so many."""
    basis = np.linalg.eigh(np.cov(sample, rowvar=False))[1][:, ::-1][:, : base.shape[1] // one_in]
    turn = basis.astype(np.float32)
    return component_bytes(queries @ turn, base @ turn, sample @ turn)


def component_bytes(queries: Any, base: Any, _sample: Any) -> NDArray[np.float32]:
    """Return distances by a byte for each component, as sq8 nodes have; the scale is that of all rows."""
    scale = fit_scale(base.min(axis=0), base.max(axis=0), 8)
    return in_blocks(queries, base, lambda rows: scale.minimum + scale.step * scale.encode(rows))
