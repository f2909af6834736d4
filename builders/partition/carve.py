"""Randomized ball carving: small overlapping sets of near vectors (PiPNN, arXiv 2602.21247).

Leaders are random vectors, and every vector goes to its few nearest leaders. The cell of a leader is carved again until
it holds at most `LEAF_MOST` vectors. The number of leaves of a vector is the product of the fanouts of all levels, and
each leaf holds other neighbours of it.

Deviations from the paper: fanouts are given for two levels with nearly equal numbers of leaders, and are 1 on deeper
levels. A cell that does not shrink is cut at random. Vectors that equal an earlier one are left out (`equals`): they
count in the numbers of leaders of the first level, which are the same region by region, but are in no leaf.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.gpu import Gpu
from indexmill.builders.nearest.points import Points
from indexmill.builders.nearest.products import TILE_ROWS
from indexmill.builders.streams import CARVING
from indexmill.builders.vamana.graph import Misses
from indexmill.formats.kernel import kernel
from indexmill.reader.threads import map_blocks

#: Most and average vectors of a leaf: all its pairs are compared while it is in a core's cache.
LEAF_MOST, LEAF_MEAN = 1024, 470
#: Leaves with fewer vectors are joined to others.
_LEAF_LEAST = 64
#: Bytes of rows gathered at a time to be compared with leaders.
_GATHERED_BYTES = 4 << 20
#: A cell with a larger share of its parent's vectors is cut at random.
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
        Mean number of leaves of a vector, predicted from the sizes of the first level's cells, with vectors that are
        left out. A vector is once in a joined leaf.
    misses : Misses
        What byte codes missed of the leaders.
    """

    members: NDArray[np.uint32]
    starts: NDArray[np.int64]
    copies: float = 1.0
    misses: Misses = Misses()


def carve(
    vectors: NDArray[Any],
    fanouts: Sequence[int],
    *,
    seed: int,
    threads: int = 1,
    gpu: Gpu | None = None,
    left_out: NDArray[np.bool_] | None = None,
) -> Leaves:
    """Carve vectors into leaves of at most `LEAF_MOST`.

    Memory: 4 bytes a copy, twice; and 4 MiB of gathered rows for each thread, with their codes.

    Parameters
    ----------
    vectors : uint8, float16 or float32 array, shape (n_vectors, dim), C-contiguous
    fanouts : sequence of int
        Leaders that a vector goes to on each level; 1 on deeper levels.
    seed : int
    gpu : Gpu, optional
        Compares vectors with leaders; uint8 vectors get the same leaves.
    left_out : bool array, shape (n_vectors,), optional
        Vectors that are in no leaf.

    Returns
    -------
    Leaves
        The same for every number of threads. Every other vector is in at least one leaf, and at most once in each.
    """
    n = len(vectors)
    if n <= LEAF_MOST:
        (cell,) = without([np.arange(n, dtype=np.uint32)], left_out)
        return Leaves(cell, np.array([0, len(cell)]))
    rows, fanout = first_leaders(n, fanouts, seed)
    leaders = Points(vectors[rows], coded_for=fanout, gpu=gpu)
    members, starts = grouped(leaders.nearest(vectors, fanout, threads), len(rows))
    cells = list(_together(members, starts, joined(starts)))
    copies = copies_of(map(len, cells), n, fanouts) / n
    cells = without(cells, left_out)
    del members
    leaves = carve_cells(vectors, cells, range(len(cells)), n, fanouts, seed=seed, threads=threads, gpu=gpu)
    return leaves._replace(copies=copies, misses=Misses.total([misses_of(leaders), leaves.misses]))


def misses_of(leaders: Points) -> Misses:
    """Return what byte codes missed of the nearest leaders of some leaders."""
    return Misses(leaders=leaders.looked_for, leaders_missed=leaders.missed)


def without(cells: list[NDArray[np.uint32]], left_out: NDArray[np.bool_] | None) -> list[NDArray[np.uint32]]:
    """Return the rows of each cell that are not left out."""
    if left_out is None or not left_out.any():
        return cells
    return [cell[~left_out[cell]] for cell in cells]


def carve_cells(
    vectors: NDArray[Any], cells: Sequence[NDArray[np.uint32]], numbers: Sequence[int], n: int,
    fanouts: Sequence[int], *, seed: int, threads: int = 1,
    gpu: Gpu | None = None,
) -> Leaves:  # fmt: skip
    """Carve cells of the first level of `n` vectors further; parameters and memory as for `carve`.

    Parameters
    ----------
    vectors : array
        Rows named by the cells.
    cells : sequence of uint32 arrays
        Rows of each cell, ascending, in the order of the ids. A cell without rows has no leaf.
    numbers : sequence of int
        Number of each cell among all cells: it decides the cell's leaders.
    """

    def leaves(first: int, _: int) -> tuple[NDArray[np.uint32], list[int], list[Misses]]:
        path, misses = [seed, CARVING, numbers[first]], list[Misses]()
        parts = list(_leaves(vectors, cells[first], n, fanouts[1:], path, gpu, misses))
        return np.concatenate(parts), [len(part) for part in parts if len(part)], misses

    members, sizes, misses = zip(*map_blocks(leaves, len(cells), 1, threads), strict=True)
    return Leaves(
        np.concatenate(members), np.cumsum([0, *chain(*sizes)]), misses=Misses.total(chain(*misses))
    )


def first_leaders(n: int, fanouts: Sequence[int], seed: int) -> tuple[NDArray[np.int64], int]:
    """Return the rows of the first level's leaders, ascending, and the number of leaders of each vector."""
    return _draw(n, fanouts, np.random.default_rng([seed, CARVING]))


def copies_of(cells: Iterable[int], n: int, fanouts: Sequence[int]) -> int:
    """Return the size of all leaves made from cells of these sizes on the first level of `n`, except joined leaves."""

    def times(cell: int) -> int:
        return 1 if cell <= LEAF_MOST or cell > _STUCK * n else counts_of(cell, fanouts[1:])[1]

    return sum(cell * times(cell) for cell in cells)


def _leaves(
    vectors: NDArray[Any], cell: NDArray[np.uint32], parent: int, fanouts: Sequence[int], path: list[int],
    gpu: Gpu | None, misses: list[Misses],
) -> Iterator[NDArray[np.uint32]]:  # fmt: skip
    """Yield the leaves of a `cell` that was carved from `parent` vectors, and add what leaders miss to `misses`."""
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
    leaders = Points(vectors[cell[rows]], coded_for=fanout, gpu=gpu)
    misses.append(misses_of(leaders))
    gathered = max(1, _GATHERED_BYTES // vectors[:1].nbytes // TILE_ROWS) * TILE_ROWS
    found = [
        leaders.nearest(vectors[cell[first : first + gathered]], fanout)
        for first in range(0, len(cell), gathered)
    ]
    members, starts = grouped(np.concatenate(found), len(rows))
    for i, part in enumerate(_together(members, starts, joined(starts))):
        yield from _leaves(vectors, cell[part], len(cell), fanouts[1:], [*path, i], gpu, misses)


def counts_of(n: int, fanouts: Sequence[int]) -> tuple[int, int]:
    """Return the number of leaders of `n` vectors, and the number of leaders of each vector."""
    copies = n * math.prod(fanouts)
    levels = max(len(fanouts), 1)
    n_leaders = min(max(2, math.ceil((copies / LEAF_MEAN) ** (1 / levels))), n)
    return n_leaders, min(fanouts[0] if fanouts else 1, n_leaders // 2)


def _draw(n: int, fanouts: Sequence[int], rng: np.random.Generator) -> tuple[NDArray[np.int64], int]:
    """Return the rows of random leaders, ascending, and the number of leaders of each vector."""
    n_leaders, fanout = counts_of(n, fanouts)
    return np.sort(rng.choice(n, n_leaders, replace=False)), fanout


def grouped(labels: NDArray[np.uint32], n_groups: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the rows of each group, ascending, and where each group starts.

    Parameters
    ----------
    labels : uint32 array, shape (n_rows, any)
        Group numbers of each row, below `n_groups`.

    Returns
    -------
    rows : uint32 array, shape (n_rows * any,)
    starts : int64 array, shape (n_groups + 1,)
    """
    rows = np.empty(labels.size, np.uint32)
    starts = np.zeros(n_groups + 1, np.int64)
    _group(labels, rows, starts)
    return rows, starts


@kernel
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
    """Return bounds of the groups joined into one cell: consecutive groups, while the cell is small."""
    bounds = [0]
    for group in range(1, len(starts)):
        if starts[group] - starts[bounds[-1]] >= _LEAF_LEAST:
            bounds.append(group)
    if len(bounds) == 1:
        bounds.append(0)
    bounds[-1] = len(starts) - 1  # the remainder is small
    return bounds


def _together(
    members: NDArray[np.uint32], starts: NDArray[np.int64], bounds: list[int]
) -> Iterator[NDArray[np.uint32]]:
    for first, last in pairwise(bounds):
        cell = members[starts[first] : starts[last]]
        yield cell if last - first == 1 else np.unique(cell)
