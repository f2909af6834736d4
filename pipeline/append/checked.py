"""Checks of the vectors of an append as they stream by: what an index of any kind refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.sources.file import Vectors
from indexmill.formats.sources.source import DEFAULT_BATCH_ROWS, VectorBatch, VectorSource
from indexmill.pipeline.append.addition import (
    Extendable,
    check_alike,
    check_replace,
    check_size,
    column_types,
)
from indexmill.pipeline.mill.inputs import ObjectWatch

#: A norm may exceed M by this share before it counts as larger: sums of one vector differ in their last digits.
_NORM_SLACK = 1e-9


def opened_source(
    index: Extendable, open_more: Callable[[Sequence[str]], VectorSource], replace: bool
) -> VectorSource:
    """Open the vectors of an append; refuse those that do not go with `index`.

    Parameters
    ----------
    open_more : callable
        Opens them, given the names of the index's metadata columns.
    replace : bool
        Whether vectors with a user id of the new ones are deleted.

    Raises
    ------
    ConfigError, InputError
        As `check_replace`, `check_source` and `check_size`.
    """
    if replace:
        check_replace(index)
    source = open_more([] if index.metadata is None else index.metadata.schema_arrow.names)
    check_source(index, source)
    check_size(index, source.n_vectors)
    return source


def check_source(index: Extendable, source: VectorSource) -> None:
    """Refuse an input whose dimension, type, ids or metadata columns are not those of `index`.

    Raises
    ------
    InputError
        Naming the first file.
    """
    schema = None if index.metadata is None else index.metadata.schema_arrow
    convert = "convert the input or build an index of its own"
    check_alike(
        index,
        source.paths[0],
        [
            ("dimension", index.dim, source.dim, convert),
            ("dtype", index.input_dtype, str(source.dtype), convert),
            ("id type", index.id_type, source.id_type, "name a fitting column with --id-column, or none"),
            ("metadata columns", column_types(schema), column_types(source.metadata_schema), convert),
        ],
    )


class CheckedSource:
    """A source that passes each batch to `check` as it streams by, and notes where batches come from.

    After the last batch it refuses files at URLs that were replaced since it was made; see `ObjectWatch`.

    Attributes
    ----------
    origins : list of (first vector id, path, row of it)
        As in `VectorBatch`.
    """

    def __init__(self, source: VectorSource, check: Callable[[VectorBatch], None] | None) -> None:
        self._source, self._check, self._watch = source, check, ObjectWatch(source)
        self.n_vectors, self.dim, self.dtype = source.n_vectors, source.dim, source.dtype
        self.id_type, self.paths, self.metadata_schema = source.id_type, source.paths, source.metadata_schema
        self.origins: list[tuple[int, str, int]] = []

    def batches(self, batch_rows: int = DEFAULT_BATCH_ROWS) -> Iterator[VectorBatch]:
        """See `VectorSource.batches`."""
        for batch in self._source.batches(batch_rows):
            self.origins.append((batch.start, batch.path, batch.first_row))
            if self._check is not None:
                self._check(batch)
            yield batch
        self._watch.check()

    def read(self, rows: NDArray[np.int64]) -> Vectors:
        """See `VectorSource.read`."""
        return self._source.read(rows)


def check_norms(batch: VectorBatch, index: Path, most: float) -> None:
    """Refuse vectors that are longer than those which an index for inner product was built with.

    Raises
    ------
    InputError
        Naming the first row.
    """
    wide = batch.vectors.astype(np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", wide, wide, dtype=np.float64))
    bad = np.flatnonzero(norms > most * (1 + _NORM_SLACK))
    if len(bad):
        raise InputError(
            f"{batch.path}: row {batch.first_row + bad[0]}: norm {norms[bad[0]]:g}; under inner product "
            f"{index} takes norms up to {most:g}, the largest it was built with, on which every "
            "distance in it depends; build the index again with these vectors"
        )


def check_range(
    batch: VectorBatch,
    rows: NDArray[Any],
    outside: NDArray[np.bool_],
    index: Path,
    range_of: Callable[[int], str],
    holder: str = "nodes",
) -> None:
    """Refuse vectors with a component outside of what an index holds.

    Parameters
    ----------
    rows : array, shape (m, dim)
        The vectors as they are stored.
    outside : bool array, shape (m, dim)
        Which components are.
    range_of : callable
        Describes the values that a component may have.
    holder : str
        What holds them.

    Raises
    ------
    InputError
        Naming the first row.
    """
    bad = np.argwhere(outside)
    if len(bad):
        row, j = bad[0]
        raise InputError(
            f"{batch.path}: row {batch.first_row + row}: component {j} is {rows[row, j]:g}; {holder} of "
            f"{index} hold {range_of(int(j))}; build the index again with these vectors"
        )
