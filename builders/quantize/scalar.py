"""Scalar quantization, 8 or 16 bits a component: on pages (DiskANN++ section VI, sq8 and sq16) or during a build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.reader.threads import run_blocks

#: Components encoded at a time, in 12 MiB of work space.
_COMPONENTS = 1 << 20


@dataclass(frozen=True)
class Scale:
    """Range of each component: code c stands for ``minimum + step * c``.

    Attributes
    ----------
    minimum, step : float32 array, shape (dim,)
    bits : int
        8 or 16.
    """

    minimum: NDArray[np.float32]
    step: NDArray[np.float32]
    bits: int

    def encode(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return the codes, uint8 or uint16 (m, dim), of `vectors` (m, dim)."""
        step = np.where(self.step > 0, self.step, np.float32(1))
        codes = np.rint((vectors.astype(np.float32) - self.minimum) / step)
        dtype = np.uint8 if self.bits == 8 else np.uint16
        return np.clip(codes, 0, 2**self.bits - 1).astype(dtype)


def fit_scale(minimum: NDArray[Any], maximum: NDArray[Any], bits: int) -> Scale:
    """Return the scale that spans [minimum, maximum], arrays of shape (dim,), in 2^bits steps."""
    low = minimum.astype(np.float32)
    step = ((maximum.astype(np.float64) - low) / (2**bits - 1)).astype(np.float32)
    return Scale(low, step, bits)


def comparable_codes(vectors: NDArray[Any], threads: int = 1) -> NDArray[np.uint8]:
    """Return byte codes whose distances are those of the vectors, except for rounding and one factor.

    Every component starts at its own least value, which changes no difference, and all share the step of the widest.

    Parameters
    ----------
    vectors : float32 or float16 array, shape (n, dim), n at least 1
        May be a mapped file.

    Returns
    -------
    uint8 array, shape (n, dim)
        Each component is off by at most half a step, 1/510 of the widest range. The same for every number of threads.
    """
    n, dim = vectors.shape
    rows = max(1, _COMPONENTS // dim)
    ranges = run_blocks(lambda i, j: (vectors[i:j].min(axis=0), vectors[i:j].max(axis=0)), n, rows, threads)
    lows, highs = map(np.array, zip(*ranges, strict=True))
    least = lows.min(axis=0).astype(np.float32)
    range_ = (highs.max(axis=0).astype(np.float64) - least).max()
    scale = Scale(least, np.full(dim, range_ / 255, np.float32), 8)
    codes = np.empty(vectors.shape, np.uint8)

    def encode(first: int, last: int) -> None:
        codes[first:last] = scale.encode(vectors[first:last])

    run_blocks(encode, n, rows, threads)
    return codes
