"""Randomized ball carving: small overlapping sets of near vectors (PiPNN, arXiv 2602.21247).

Random vectors are leaders, and every vector goes to the few leaders nearest to it. The cell of a leader is carved again
until it holds at most `LEAF_MOST` vectors. A vector lies in as many leaves as the fanouts of all levels multiply to, in
different company each time.

Deviations from the paper: fanouts are given for two levels, whose leaders are about equally many, and are 1 on
those that follow. A cell that does not get smaller, as one of equal vectors, is cut at random.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.builders.gpu import Gpu
from indexmill.builders.nearest.gpu import nearest_on
from indexmill.builders.nearest.panels import fits_panels, in_panels, nearest_in_panels
from indexmill.builders.nearest.products import TILE_ROWS, nearest_points
from indexmill.builders.streams import CARVING
from indexmill.reader.threads import map_blocks

#: Vectors of a leaf, at most, and about: all pairs of a leaf are compared while it lies in a core's cache.
LEAF_MOST, LEAF_MEAN = 1024, 470
#: Leaves with fewer are joined to others.
_LEAF_LEAST = 64
#: Bytes of rows gathered at a time to be compared with leaders.
_GATHERED_BYTES = 4 << 20
#: A cell with a larger share of the vectors it was carved from is cut at random.
_STUCK = 0.95


class Leaves(NamedTuple):
    """Overlapping sets of vectors.

    Attributes
    ----------
    members : uint32 array, shape (n_copies,)
        Ids of the vectors of each leaf, ascending.
    starts : int64 array, shape (n_leaves + 1,)
        The members of leaf i are ``starts[i]`` to ``starts[i + 1]``.
    copies : float
        Leaves of a vector, in the mean, as the sizes of the first level's cells foretell it: leaves that are joined
        have what they share once.
    """

    members: NDArray[np.uint32]
    starts: NDArray[np.int64]
    copies: float = 1.0


def carve(
    vectors: NDArray[Any],
    fanouts: Sequence[int],
    *,
    seed: int,
    threads: int = 1,
    gpu: Gpu | None = None,
) -> Leaves:
    """Carve vectors into leaves of at most `LEAF_MOST`.

    Memory: 4 bytes a copy, twice; with vectors that are not uint8, float32 rows of one cell a thread.

    Parameters
    ----------
    vectors : uint8 or float32 array, shape (n_vectors, dim), C-contiguous
    fanouts : sequence of int
        Leaders that a vector goes to, of the first level and those that follow; 1 beyond the last.
    seed : int
    gpu : Gpu, optional
        Where leaders are compared; uint8 vectors get the same leaves there.

    Returns
    -------
    Leaves
        The same for every number of threads. Every vector is in one leaf at least, and in any one at most once.
    """
    n = len(vectors)
    if n <= LEAF_MOST:
        return Leaves(np.arange(n, dtype=np.uint32), np.array([0, n]))
    rows, fanout = first_leaders(n, fanouts, seed)
    members, starts = grouped(nearest_leaders(vectors, vectors[rows], fanout, threads, gpu), len(rows))
    bounds = joined(starts)
    cells = list(_together(members, starts, bounds))
    leaves = carve_cells(vectors, cells, range(len(cells)), n, fanouts, seed=seed, threads=threads, gpu=gpu)
    return leaves._replace(copies=copies_of(map(len, cells), n, fanouts) / n)


def carve_cells(
    vectors: NDArray[Any], cells: Sequence[NDArray[np.uint32]], numbers: Sequence[int], n: int,
    fanouts: Sequence[int], *, seed: int, threads: int = 1,
    gpu: Gpu | None = None,
) -> Leaves:  # fmt: skip
    """Carve cells of the first level of `n` vectors on; parameters and memory as of `carve`.

    Parameters
    ----------
    vectors : array
        Rows that the cells name.
    cells : sequence of uint32 arrays
        Rows of each cell, ascending; in the order of their ids.
    numbers : sequence of int
        Of each cell among all: they decide its leaders.
    """

    def leaves(first: int, _: int) -> tuple[NDArray[np.uint32], list[int]]:
        mine = list(_leaves(vectors, cells[first], n, fanouts[1:], [seed, CARVING, numbers[first]], gpu))
        return np.concatenate(mine), list(map(len, mine))

    found = list(map_blocks(leaves, len(cells), 1, threads))
    sizes = [size for _, some in found for size in some]
    return Leaves(np.concatenate([part for part, _ in found]), np.cumsum([0, *sizes]))


def first_leaders(n: int, fanouts: Sequence[int], seed: int) -> tuple[NDArray[np.int64], int]:
    """Return the rows of the leaders of the first level, ascending, and how many of them a vector goes to."""
    return _draw(n, fanouts, np.random.default_rng([seed, CARVING]))


def copies_of(cells: Iterable[int], n: int, fanouts: Sequence[int]) -> int:
    """Return how many vectors all leaves have that such cells of the first level of `n` make, but for joined leaves."""

    def times(cell: int) -> int:
        return 1 if cell <= LEAF_MOST or cell > _STUCK * n else _counts(cell, fanouts[1:])[1]

    return sum(cell * times(cell) for cell in cells)


def _leaves(
    vectors: NDArray[Any], cell: NDArray[np.uint32], parent: int, fanouts: Sequence[int], path: list[int],
    gpu: Gpu | None,
) -> Iterator[NDArray[np.uint32]]:  # fmt: skip
    """Yield the leaves of a `cell`, which was carved from `parent` vectors."""
    if len(cell) <= LEAF_MOST:
        yield cell
        return
    rng = np.random.default_rng(path)
    if len(cell) > _STUCK * parent:
        yield from (
            np.sort(part) for part in np.array_split(rng.permutation(cell), -(-len(cell) // LEAF_MEAN))
        )
        return
    rows, fanout = _draw(len(cell), fanouts, rng)
    leaders = vectors[cell[rows]]
    gathered = max(1, _GATHERED_BYTES // vectors[:1].nbytes // TILE_ROWS) * TILE_ROWS
    found = [
        nearest_leaders(vectors[cell[first : first + gathered]], leaders, fanout, 1, gpu)
        for first in range(0, len(cell), gathered)
    ]
    members, starts = grouped(np.concatenate(found), len(rows))
    for i, part in enumerate(_together(members, starts, joined(starts))):
        yield from _leaves(vectors, cell[part], len(cell), fanouts[1:], [*path, i], gpu)


def _counts(n: int, fanouts: Sequence[int]) -> tuple[int, int]:
    """Return how many leaders `n` vectors have, and to how many of them each goes."""
    copies = n * math.prod(fanouts)
    levels = max(len(fanouts), 1)
    n_leaders = min(max(2, math.ceil((copies / LEAF_MEAN) ** (1 / levels))), n)
    return n_leaders, min(fanouts[0] if fanouts else 1, n_leaders // 2)


def _draw(n: int, fanouts: Sequence[int], rng: np.random.Generator) -> tuple[NDArray[np.int64], int]:
    """Return the rows of some random leaders, ascending, and to how many of them each vector goes."""
    n_leaders, fanout = _counts(n, fanouts)
    return np.sort(rng.choice(n, n_leaders, replace=False)), fanout


def nearest_leaders(
    vectors: NDArray[Any],
    leaders: NDArray[Any],
    fanout: int,
    threads: int = 1,
    gpu: Gpu | None = None,
) -> NDArray[np.uint32]:
    """Return the `fanout` leaders nearest to each vector, uint32 (m, fanout).

    Blocks of vectors may be told apart at multiples of `nearest.TILE_ROWS`, without a change of the result.
    """
    if gpu is not None:
        return nearest_on(gpu, vectors, leaders, fanout)
    if fits_panels(vectors):
        return nearest_in_panels(vectors, in_panels(leaders), fanout, threads)
    return nearest_points(vectors, leaders, fanout, threads)


def grouped(labels: NDArray[np.uint32], n_groups: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the rows of each group, ascending, and where each group starts.

    Parameters
    ----------
    labels : uint32 array, shape (n_rows, any)
        Groups of each row, below `n_groups`.

    Returns
    -------
    rows : uint32 array, shape (n_rows * any,)
    starts : int64 array, shape (n_groups + 1,)
    """
    rows = np.empty(labels.size, np.uint32)
    starts = np.zeros(n_groups + 1, np.int64)
    _group(labels, rows, starts)
    return rows, starts


@njit(nogil=True, cache=True)
def _group(labels: Any, rows: Any, starts: Any) -> None:  # pragma: no cover - compiled
    n, width = labels.shape
    for i in range(n):
        for j in range(width):
            starts[labels[i, j] + 1] += 1
    for group in range(starts.size - 1):
        starts[group + 1] += starts[group]
    ends = starts[:-1].copy()
    for i in range(n):
        for j in range(width):
            group = labels[i, j]
            rows[ends[group]] = i
            ends[group] += 1


def joined(starts: NDArray[np.int64]) -> list[int]:
    """Return bounds of groups that make a cell together: those next to each other while they are small."""
    bounds = [0]
    for group in range(1, len(starts)):
        if starts[group] - starts[bounds[-1]] >= _LEAF_LEAST:
            bounds.append(group)
    if len(bounds) == 1:
        bounds.append(0)
    bounds[-1] = len(starts) - 1  # what is left is small
    return bounds


def _together(
    members: NDArray[np.uint32], starts: NDArray[np.int64], bounds: list[int]
) -> Iterator[NDArray[np.uint32]]:
    for first, last in pairwise(bounds):
        cell = members[starts[first] : starts[last]]
        yield cell if last - first == 1 else np.unique(cell)
