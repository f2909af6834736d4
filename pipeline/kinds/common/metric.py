"""Cosine and inner product turned into Euclidean distance (docs/formats/graph.md, "Metrics")."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Rows that are widened at a time: their arrays stay in the processor's cache, and need no fresh pages each.
_ROWS = 256


def unit(vectors: NDArray[Any], slack: float = 0.0) -> NDArray[np.float32]:
    """Return `vectors`, shape (n, dim), scaled to length 1; none may be zero.

    One whose length is within `slack` of 1 stays as it is.

    Memory: the result, and 28 bytes a component of 256 rows.
    """
    scaled = np.empty(vectors.shape, np.float32)
    for first in range(0, len(vectors), _ROWS):
        wide = vectors[first : first + _ROWS].astype(np.float64)
        lengths = np.linalg.norm(wide, axis=1, keepdims=True)
        lengths[np.abs(lengths - 1) <= slack] = 1
        scaled[first : first + _ROWS] = wide / lengths
    return scaled


def added_component(squared_norms: NDArray[np.float64], largest: float | None = None) -> NDArray[np.float32]:
    """Return ``sqrt(M^2 - |x|^2)`` for each of `squared_norms`, shape (n,).

    ``M^2`` is `largest`, by default the largest among them; a sum that rounding made larger still counts as equal.
    """
    most = squared_norms.max() if largest is None else largest
    rest: NDArray[np.float32] = np.sqrt(np.maximum(most - squared_norms, 0)).astype(np.float32)
    return rest


def with_added_component(rows: NDArray[Any], max_norm: float) -> NDArray[np.float32]:
    """Append ``sqrt(M^2 - |x|^2)`` to each of `rows`, float32 (m, dim), M the largest norm of an index."""
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    return np.hstack([rows, added_component(squares, max_norm**2)[:, None]])


def usable(vectors: NDArray[Any], metric: str) -> NDArray[Any]:
    """Return `vectors`, shape (n, dim), without those that *ingest* refuses."""
    return vectors[is_usable(vectors, metric)]


def is_usable(vectors: NDArray[Any], metric: str) -> NDArray[np.bool_]:
    """Return which of `vectors`, shape (n, dim), *ingest* does not refuse."""
    finite: NDArray[np.bool_] = np.isfinite(vectors).all(axis=1)
    return finite & (vectors != 0).any(axis=1) if metric == "cosine" else finite


def as_stored(vectors: NDArray[Any], metric: str) -> NDArray[Any]:
    """Return `vectors`, shape (n, dim), as *ingest* stores an input of these alone: see `ingest`."""
    if metric == "cosine":
        return unit(vectors)
    if metric == "ip":
        squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
        return np.column_stack([vectors.astype(np.float32), added_component(squares)])
    return vectors


def as_asked(queries: NDArray[Any], metric: str) -> NDArray[Any]:
    """Return `queries`, shape (q, dim), as they are compared with vectors that *ingest* stores."""
    if metric == "cosine":
        return unit(queries)
    if metric == "ip":  # they have nothing in the added component
        return np.pad(queries.astype(np.float32), ((0, 0), (0, 1)))
    return queries
