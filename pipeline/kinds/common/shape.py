"""Shape of the stored vectors, which the shape of every kind extends.

A shape is numbers: rows, bytes a row, how the work is cut, and perhaps what a sample tells of it. A `size` chooses the
shape for a job and tells its cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.common.ingest import stored_dtype
from indexmill.pipeline.kinds.common.parameters import DEFAULT_PQ_BYTES

#: Components from which float vectors count as embeddings, and bytes of a PQ code of those.
_LONG, _LONG_PQ_BYTES = 256, 64


@dataclass(frozen=True)
class Shape:
    """Stored vectors; each kind adds what else memory and scratch space depend on.

    Attributes
    ----------
    n, dim : int
        Vectors and their components.
    dtype : numpy dtype
        Type of the components.
    id_bytes : float
        Mean size of a user id, about; 0 where there are none.
    """

    n: int
    dim: int
    dtype: np.dtype[np.generic]
    id_bytes: float

    @property
    def row_bytes(self) -> int:
        """Bytes of a vector."""
        return self.dim * self.dtype.itemsize

    @property
    def is_embedding(self) -> bool:
        """Whether vectors are floats of as many components as embeddings have."""
        return self.dtype.kind == "f" and self.dim >= _LONG

    @property
    def usual_pq_bytes(self) -> int:
        """Bytes of a PQ code where nothing is stated."""
        return _LONG_PQ_BYTES if self.is_embedding else DEFAULT_PQ_BYTES


def stored_vectors(
    source: VectorSource, metric: str, n: int | None = None
) -> tuple[int, int, np.dtype[np.generic]]:
    """Return `n`, `dim` and `dtype` of the shape that the vectors of `source`, or `n` of them, are stored in."""
    dim = source.dim + (metric == "ip")
    return source.n_vectors if n is None else n, dim, stored_dtype(source.dtype, metric)
