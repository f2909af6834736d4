"""A source that stands for the vectors of a result that is not made yet: a few rows, and how many there will be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.sources.source import DEFAULT_BATCH_ROWS, VectorBatch, VectorSource
from indexmill.pipeline.kinds.common.preview import first_rows

#: Rows that stand for all, and their bytes at most.
_ROWS, _BYTES = 16_384, 32 << 20
_NAME = "<index>"


class OutlinedSource:
    """`VectorSource` of `n` vectors, of which `rows` are known: trials read these alone.

    Parameters
    ----------
    rows : array, shape (m, dim)
        At least one.
    """

    def __init__(self, rows: NDArray[Any], n: int) -> None:
        self._rows = np.ascontiguousarray(rows)
        self.n_vectors, self.dim, self.dtype = n, rows.shape[1], rows.dtype
        self.id_type, self.paths, self.metadata_schema = "none", [_NAME], None

    def batches(self, batch_rows: int = DEFAULT_BATCH_ROWS) -> Iterator[VectorBatch]:
        """Yield the known rows."""
        for first in range(0, len(self._rows), batch_rows):
            rows = self._rows[first : first + batch_rows]
            yield VectorBatch(first, rows, None, None, _NAME, first)

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return known rows in place of others."""
        return np.asarray(self._rows[rows % len(self._rows)])


def rows_wanted(dim: int, dtype: str) -> int:
    """Return how many rows tell a trial enough."""
    return min(_ROWS, max(512, _BYTES // (dim * np.dtype(dtype).itemsize)))


def outlined(
    n: int, dim: int, dtype: str, added: VectorSource | None, present: NDArray[Any] | None
) -> OutlinedSource:
    """Return a source of `n` vectors, told by the first that are added, else by `present` ones, else by random ones."""
    kind, wanted = np.dtype(dtype), rows_wanted(dim, dtype)
    if present is not None and (added is None or added.n_vectors < min(wanted, len(present))):
        rows = present[:wanted]
    elif added is not None:
        rows = first_rows(added, min(wanted, added.n_vectors))
    else:
        rows = np.random.default_rng(0).normal(128, 32, (min(n, wanted), dim))
    if kind.kind != "f":
        bounds = np.iinfo(kind)
        rows = np.clip(np.rint(rows), bounds.min, bounds.max)
    return OutlinedSource(rows.astype(kind), n)
