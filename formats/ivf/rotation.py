"""Rotations of rows, each by the same sums wherever it stands; BLAS adds in an order that depends on a row's place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel

#: Rows that share each row of the rotation: with 1,000 components the sums of all lie in the first cache.
_TILE = 8
#: Rows that are converted at a time.
_CHUNK = 1024


def rotated_rows(vectors: NDArray[Any], rotation: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ``vectors @ rotation``; equal bits on every machine.

    Parameters
    ----------
    vectors : array of any type, shape (m, dim)
    rotation : float32 array, shape (dim, dim)
        Copied, unless it is C-contiguous and writable.

    Returns
    -------
    float32 array, shape (m, dim)
    """
    # One that was read is transposed and read-only, for which the kernel would be compiled again, and be slower.
    rotation = np.require(rotation, np.float32, ["C", "W"])
    out = np.zeros(vectors.shape, np.float32)
    for first in range(0, len(vectors), _CHUNK):
        chunk = np.ascontiguousarray(vectors[first : first + _CHUNK], np.float32)
        _rotate(chunk, rotation, _TILE, out[first : first + _CHUNK])
    return out


@kernel
def _rotate(rows: Any, rotation: Any, tile: int, out: Any) -> None:  # pragma: no cover - compiled
    n, dim = rows.shape
    for first in range(0, n, tile):
        last = min(first + tile, n)
        for k in range(dim):
            for i in range(first, last):
                component = rows[i, k]
                for j in range(dim):
                    out[i, j] += component * rotation[k, j]
