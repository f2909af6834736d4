"""Form of new tables: hash functions and sizes, which are those of one index, and how vectors are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.lsh.shape import LshShape
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.kinds.common.metric import with_added_component

#: Arrays that make hash functions equal, besides their width.
_ARRAYS = ("radii", "projections", "offsets", "multipliers")


@dataclass(frozen=True)
class TablesForm:
    """The form of new tables.

    Attributes
    ----------
    of : OpenedTables
        The index whose functions hash all vectors, into as many tables and buckets.
    max_norm : float
        Largest norm of a user's vector, for metric ip: stored vectors depend on it.
    """

    of: OpenedTables
    max_norm: float

    @staticmethod
    def common(indexes: Sequence[OpenedTables], base: int = 0) -> TablesForm:
        """Return the form that vectors of all `indexes` can take, with the functions of the one in place `base`."""
        return TablesForm(indexes[base], max(index.files.vectors.max_norm for index in indexes))

    def shape(self, n: int) -> LshShape:
        """Return the shape of tables of `n` vectors."""
        return of_size(self.of.files.shape, n)

    def stored(self, index: OpenedTables, rows: NDArray[Any]) -> NDArray[Any]:
        """Return rows (m, dim), as `index` stores them, as the new tables store them."""
        if index.files.vectors.max_norm == self.max_norm:
            return rows
        return with_added_component(rows[:, :-1], self.max_norm)

    def must_hash(self, index: OpenedTables, shape: LshShape) -> bool:
        """Tell whether the vectors of `index` are hashed again for tables of `shape`.

        That is so if its functions or its largest norm are others; or if its chains lack bits of fingerprints, where
        many vectors went and tables have few buckets for their number.
        """
        if index.files.vectors.max_norm != self.max_norm or not self._has_functions_of(index):
            return True
        return any(pair.shape.fingerprint_bits < shape.fingerprint_bits for pair in index.files.pairs)

    def _has_functions_of(self, index: OpenedTables) -> bool:
        one, other = self.of.files, index.files
        if one is other:
            return True
        sizes = [(files.shape.hash_bits, files.functions.width) for files in (one, other)]
        return sizes[0] == sizes[1] and all(
            np.array_equal(getattr(one.functions, name), getattr(other.functions, name)) for name in _ARRAYS
        )


def of_size(shape: LshShape, n: int) -> LshShape:
    """Return the shape of the same tables with `n` vectors."""
    return LshShape(n, shape.n_tables, shape.n_radii, shape.hash_bits, shape.block_bytes)
