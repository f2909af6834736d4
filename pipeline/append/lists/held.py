"""Vectors that an index of lists holds as they are: in flat lists, or beside codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.closure import NO_CELL
from indexmill.formats.ivf.lists import ListReader
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.generations.kept import copy_kept


def holds_vectors(index: OpenedLists) -> bool:
    """Tell whether an index has its vectors as they are."""
    return index.files.centroids.codec == "flat" or index.vectors is not None


def read_held(
    index: OpenedLists, left: NDArray[np.int64], vectors: NDArray[Any],
    stored: Callable[[NDArray[Any]], NDArray[Any]] = lambda rows: rows,
) -> None:  # fmt: skip
    """Write the vectors `left` of `index`, which holds them, to `vectors`, shape (len(left), dim), in their order.

    Parameters
    ----------
    stored : callable
        Returns rows in the form of `vectors`, given rows as `index` stores them.
    """
    if index.vectors is not None:
        copy_kept(index.vectors, left, vectors, stored)
        return
    places = np.full(index.n, len(left), np.uint32)
    places[left] = np.arange(len(left), dtype=np.uint32)
    for ids, rows in _flat_rows(index):
        at_places = places[ids]
        stay = at_places < len(left)
        vectors[at_places[stay]] = stored(rows[stay])


def read_cells(index: OpenedLists, left: NDArray[np.int64], cells: NDArray[np.uint32]) -> None:
    """Write the lists that each of the vectors `left` is in to `cells`, shape (len(left), copies)."""
    n = len(left)
    cells[:] = NO_CELL
    places, filled = np.full(index.n, n, np.uint32), np.zeros(n, np.uint8)
    places[left] = np.arange(n, dtype=np.uint32)
    with ListReader(index.files) as reader:
        for number, ids in reader.ids_in_file_order():
            to = places[ids]
            to = to[to < n]
            cells[to, filled[to]] = number
            filled[to] += 1


def _flat_rows(index: OpenedLists) -> Iterator[tuple[NDArray[np.uint32], NDArray[Any]]]:
    """Yield vector ids and vectors of flat lists in file order."""
    dtype = np.dtype(index.files.centroids.dtype)
    with ListReader(index.files) as lists:
        pieces = zip(lists.ids_in_file_order(), lists.rows_in_file_order(), strict=True)
        for (_, ids), (_, rows) in pieces:
            yield ids, rows.view(dtype)
