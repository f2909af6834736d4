"""Byte codes of float32 vectors that nearly keep the order of distances, and exact ranking for the last step.

Every component has its own origin, and all share one step, so the squared distance of codes is the true one divided by
the squared step, except for rounding. (`builders.quantize.scalar` gives each component its own step, which keeps the
vectors but not the order of distances.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances

#: Share of the components, at either end, that may lie beyond the codes, so that outliers do not coarsen the rest.
_CLIPPED = 1e-4
#: Most vectors that the step is fitted to.
_FIT_VECTORS = 4096


class ByteCodes(NamedTuple):
    """Code c of component j means ``low[j] + step * c``."""

    low: NDArray[np.float32]  # (dim,)
    step: np.float32

    def encode(self, vectors: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the codes, uint8 (m, dim), of vectors (m, dim); components beyond the range take the nearest code."""
        out = np.empty(vectors.shape, np.uint8)
        _encode(np.ascontiguousarray(vectors), self.low, np.float32(1) / self.step, out)
        return out


def fit_codes(vectors: NDArray[np.float32]) -> ByteCodes:
    """Fit codes to vectors, (n, dim) with n at least 1."""
    sample = vectors[:: -(-len(vectors) // _FIT_VECTORS)].astype(np.float64)
    mean = sample.mean(axis=0)
    low, high = np.quantile(sample - mean, [_CLIPPED, 1 - _CLIPPED])
    step = np.float32((high - low) / 255)
    return ByteCodes((mean + low).astype(np.float32), step if step > 0 else np.float32(1))


@kernel
def _encode(vectors: Any, low: Any, per_step: Any, out: Any) -> None:  # pragma: no cover - compiled
    m, dim = vectors.shape
    for i in range(m):
        for j in range(dim):
            code = (vectors[i, j] - low[j]) * per_step + np.float32(0.5)
            out[i, j] = np.uint8(np.int32(min(max(code, np.float32(0)), np.float32(255))))


@kernel
def rank_exactly(
    vectors: Any, points: Any, candidates: Any, found: Any
) -> None:  # pragma: no cover - compiled
    """Write the nearest of each vector's candidates to `found`, nearest first, ties by the smaller id.

    Parameters
    ----------
    vectors, points : float32 arrays, shapes (m, dim) and (n, dim), C-contiguous
    candidates : uint32 array, shape (m, c)
        Rows of `points`, distinct for each vector.
    found : uint32 array, shape (m, fanout)
        `fanout` is at most c.
    """
    c, fanout = candidates.shape[1], found.shape[1]
    distances, ids = np.empty(c, np.float32), np.empty(c, np.uint32)
    for i in range(len(vectors)):
        ids[:] = candidates[i]
        squared_distances(vectors, i, points, ids, c, distances)
        for k in range(fanout):
            best = k
            for j in range(k + 1, c):
                if distances[j] < distances[best] or (distances[j] == distances[best] and ids[j] < ids[best]):
                    best = j
            found[i, k] = ids[best]
            distances[best], ids[best] = distances[k], ids[k]
