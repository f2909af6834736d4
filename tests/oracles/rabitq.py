"""RaBitQ rows read bit by bit, distances estimated from them, and the best code of a residual by trying all steps."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.oracles.files.lists import read_list
from tests.oracles.ivf import nearest_cells

from indexmill.formats.ivf.index import IvfFiles


def read_row(row: NDArray[np.uint8], dim: int, bits: int) -> tuple[float, float, NDArray[np.int64]]:
    """Squared length, factor, and the odd number that each component's code stands for."""
    length, factor = struct.unpack("<ff", row[:8].tobytes())
    width, values = -(-dim // 8), []
    for j in range(dim):
        level = 0
        for plane in range(bits):
            level = 2 * level + (int(row[8 + plane * width + j // 8]) >> (j % 8) & 1)
        values.append(2 * level + 1 - 2**bits)
    return length, factor, np.array(values)


def search(index: Path, queries: NDArray[np.float32], nprobe: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Vector ids and scores of the k least estimates in the nearest lists, (n_queries, k), ties by id."""
    files = IvfFiles(index)
    shared = files.centroids
    assert shared.rabitq is not None
    asked = queries.astype(np.float64)
    if shared.metric == "cosine":
        asked /= np.linalg.norm(asked, axis=1)[:, None]
    if shared.metric == "ip":
        asked = np.column_stack([asked, np.zeros(len(asked))])
    asked = asked @ shared.rabitq.rotation
    probed = nearest_cells(asked, shared.centroids, nprobe)
    keys = np.full((len(asked), shared.n_vectors), np.inf)
    for number in range(len(files.batches)):
        with files.open_batch(number) as batch:
            for place in np.flatnonzero(batch.directory["size"]).tolist():
                cell = int(batch.directory["list"][place])
                probing = (probed == cell).any(axis=1)
                centroid = shared.centroids[cell].astype(np.float64)
                for vector, row in zip(*read_list(batch, place), strict=True):
                    length, factor, values = read_row(row, shared.dim, shared.rabitq.bits)
                    if shared.metric == "ip":
                        along = asked @ centroid / max(centroid @ centroid, 1e-300)
                        rest = asked - along[:, None] * centroid
                        known = (shared.max_norm**2 - centroid @ centroid - length) / 2
                        found = -(asked @ centroid) - along * known - factor * (rest @ values)
                    else:
                        away = asked - centroid
                        found = (away**2).sum(axis=1) + length - 2 * factor * (away @ values)
                    keys[probing, vector] = np.minimum(keys[probing, vector], found[probing])
    order = np.argsort(keys, axis=1, kind="stable")[:, :k]
    least = np.take_along_axis(keys, order, 1)
    scores = {"l2": least, "cosine": 1 - least / 2, "ip": -least}[shared.metric]
    return np.where(np.isinf(least), -1, order), np.where(np.isinf(least), np.nan, scores)


def best_cosine(residual: NDArray[np.float64], bits: int) -> float:
    """Return the largest cosine between a residual and levels of one step: all steps at which a level changes."""
    sizes, top = np.abs(residual), 2 ** (bits - 1) - 1
    steps = {m / x for x in sizes.tolist() if x > 0 for m in range(1, top + 1)} | {0.0}
    best = -1.0
    for step in steps:
        values = 2 * np.minimum(np.floor(sizes * step * (1 + 1e-12)), top) + 1
        best = max(best, float(values @ sizes / np.linalg.norm(values) / np.linalg.norm(sizes)))
    return best
