"""Scalar quantization of node vectors: 8 or 16 bits a component (DiskANN++ section VI, sq8 and sq16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Scale:
    """Range of each component; code c means ``minimum + step * c``.

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
