"""How cosine and inner product become Euclidean distance (docs/formats/graph.md, "Metrics")."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Return `vectors`, shape (n, dim), scaled to length 1; none may be zero."""
    wide = vectors.astype(np.float64)
    scaled: NDArray[np.float32] = (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def added_component(squared_norms: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return ``sqrt(M^2 - |x|^2)`` for each of `squared_norms`, shape (n,), M the largest norm among them."""
    rest: NDArray[np.float32] = np.sqrt(squared_norms.max() - squared_norms).astype(np.float32)
    return rest
