"""The queries of a join, converted to vectors of the index a block at a time."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.scan import compares_bytes
from indexmill.formats.errors import InputError
from indexmill.formats.ivf.centroids import Centroids
from indexmill.pipeline.join.batches import row_format
from indexmill.pipeline.kinds.common.metric import unit
from indexmill.reader.queries import as_queries

#: Queries that are looked at together where nothing else decides.
CHECKED = 4096


class Queries:
    """Queries of an index.

    Parameters
    ----------
    shared : Centroids
    given : array, shape (n_queries, user's dim)
        Kept as it is, so that it may be a mapped file.

    Raises
    ------
    InputError
        If there are none, or they have another dimension; what they hold is looked at when a block is taken.
    """

    def __init__(self, shared: Centroids, given: NDArray[Any]) -> None:
        dim = shared.dim - (shared.metric == "ip")
        if given.ndim != 2 or given.shape[1] != dim:
            got = given.shape[-1] if given.ndim else 0
            raise InputError(
                f"queries: {got} dimensions, but the index has {dim}; pass the queries that belong to it"
            )
        if not len(given):
            raise InputError("queries: there are none; pass at least one")
        self.given = given
        self.dtype = np.dtype(shared.dtype if compares_bytes(row_format(shared)) else np.float32)
        self._shared, self._dim = shared, dim

    def __len__(self) -> int:
        return len(self.given)

    def block(self, first: int, last: int) -> NDArray[Any]:
        """Return some queries as they are compared: in the index's type, of length 1, with a component more, rotated.

        Raises
        ------
        InputError
            If they have values that do not fit, or no direction under cosine.
        """
        rows = as_queries(self.given[first:last], self.dtype, self._dim)
        if self._shared.metric == "cosine":
            zero = np.flatnonzero(~rows.any(axis=1))
            if len(zero):
                raise InputError(
                    f"queries: row {first + zero[0]} is zero, which has no direction; leave it out"
                )
            rows = unit(rows)
        if self._shared.metric == "ip":
            rows = np.column_stack([rows, np.zeros(len(rows), np.float32)])
        return self._shared.compared(rows)

    def digest(self) -> list[Any]:
        """Look at all queries, and return what tells them from others."""
        hashed = hashlib.sha256()
        for first in range(0, len(self), CHECKED):
            hashed.update(self.block(first, min(first + CHECKED, len(self))).data)
        return [str(self.dtype), list(self.given.shape), hashed.hexdigest()]


def query_block_bytes(shared: Centroids, given: np.dtype[Any]) -> int:
    """Return the most memory of one query of `Queries.block`, its input included."""
    widened = 28 if shared.metric == "cosine" else 4 * (shared.metric == "ip")
    rotated = 4 * (shared.rotation is not None)
    return shared.dim * (8 + widened + rotated + max(given.itemsize, 4))
