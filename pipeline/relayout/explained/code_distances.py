"""Distances of queries to codes, by which a search chooses before it has read a vector."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.graph.codes import Codebook


class CodeDistances:
    """Squared distances of queries to vertices as their codes have them.

    Parameters
    ----------
    codebook : Codebook
    codes : uint8 array, shape (n, M)
    queries : float32 array, shape (q, dim)
    """

    def __init__(self, codebook: Codebook, codes: NDArray[np.uint8], queries: NDArray[np.float32]) -> None:
        self._codes = codes
        self._table = code_table(codebook, queries)

    def of(self, vertices: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the distances of `vertices`, (q, e), float32 of the same shape."""
        total = np.zeros(vertices.shape, np.float32)
        rows = np.arange(len(vertices))[:, None]
        for chunk in range(self._codes.shape[1]):
            total += self._table[rows, chunk, self._codes[vertices, chunk]]
        return total


def code_table(codebook: Codebook, queries: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return squared distances of `queries`, float32 (q, dim), to the centres of each chunk, float32 (q, M, K)."""
    parts, queries = [], codebook.rotated(queries)
    for first, last in zip(codebook.offsets[:-1], codebook.offsets[1:], strict=True):
        differences = queries[:, None, first:last] - codebook.pivots[None, :, first:last]
        parts.append(np.einsum("qkd,qkd->qk", differences, differences))
    return np.stack(parts, axis=1).astype(np.float32)
