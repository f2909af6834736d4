"""Regions: neighbouring cells of the first level of a carving (`builders.partition.carve`), carved together.

A vector belongs to every region that has one of its cells. The nearer the cells of a region are to each other, the
fewer regions a vector has. Its home is the region of its nearest leader. Regions only decide which vectors are in
memory at a time; cells are carved as if all vectors were.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.partition.carve import joined
from indexmill.formats.kernel import kernel

#: Rounds of two-means for one cut.
_ROUNDS = 8


class Regions(NamedTuple):
    """Division of cells into regions.

    Attributes
    ----------
    cells, regions : int32 arrays, shape (n_leaders,)
        Cell and region of each leader.
    members : int64 array, shape (n_regions,)
        Number of vectors of each region.
    places : int64 array, shape (n_parts + 1,)
        Vertices have places in the order of (position of the nearest leader, id). A part is a range of places of
        vertices with one home; these are the bounds of the parts.
    homes : int64 array, shape (n_parts,)
        Home region of each part's vertices.
    found : int
        Neighbours of a vertex found in each of its leaves.
    leaders : int64 array, shape (2,)
        Nearest leaders of some leaders, and those of them that byte codes miss.
    """

    cells: NDArray[np.int32]
    regions: NDArray[np.int32]
    members: NDArray[np.int64]
    places: NDArray[np.int64]
    homes: NDArray[np.int64]
    found: int
    leaders: NDArray[np.int64]


def cells_in_order(
    leaders: NDArray[Any], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the cell of each leader, and the position of each cell in an order that keeps near cells together.

    Parameters
    ----------
    leaders : uint8, float16 or float32 array, shape (n_leaders, dim)
    sizes : int64 array, shape (n_leaders,)
        Vectors of each; leaders of few share a cell.
    """
    bounds = joined(np.concatenate([[0], np.cumsum(sizes)]))
    cells = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
    order = in_halves(leaders[bounds[:-1]].astype(np.float32))
    positions = np.empty(len(order), np.int32)
    positions[order] = np.arange(len(order))
    return cells, positions


def in_halves(points: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return an order of `points`, shape (n, dim), that keeps near points together, by recursive halving.

    A cut is a two-means with sides of equal size. Time: n dim log(n), times 8 rounds.
    """

    def cut(ids: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        if len(ids) <= 2:
            return [ids]
        rows, half = points[ids].astype(np.float64), len(ids) // 2
        one = rows[np.argmax(_squared(rows, rows.mean(axis=0)))]
        other = rows[np.argmax(_squared(rows, one))]
        for _ in range(_ROUNDS):
            order = np.argsort(_squared(rows, one) - _squared(rows, other), kind="stable")
            one, other = rows[order[:half]].mean(axis=0), rows[order[half:]].mean(axis=0)
        return cut(ids[order[:half]]) + cut(ids[order[half:]])

    return np.concatenate(cut(np.arange(len(points))))


def _squared(points: NDArray[np.float64], to: NDArray[np.float64]) -> NDArray[np.float64]:
    apart = points - to
    squared: NDArray[np.float64] = np.einsum("ij,ij->i", apart, apart)
    return squared


class Crossings:
    """Numbers of vectors shared by cells, from which the size of any run of consecutive cells follows.

    Memory: 4 bytes for every pair of cells, approximately a sixth of a byte a vector in a large set.

    Parameters
    ----------
    positions : int32 array, shape (n_leaders,)
        Position of each leader's cell in an order of cells.
    n_cells : int
    """

    def __init__(self, positions: NDArray[np.int32], n_cells: int) -> None:
        self._positions = positions
        self._counts = np.zeros((n_cells + 1, n_cells), np.uint32)

    def add(self, labels: NDArray[np.uint16]) -> None:
        """Count vectors by their leaders, the rows of `labels`."""
        _count(labels, self._positions, self._counts)

    def grow(self, times: float) -> None:
        """Multiply all numbers: a sample stands for a set that is so much larger."""
        for row in self._counts:  # one at a time: in a large set they take a gigabyte
            row[:] = np.rint(row * times)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of vectors of each cell, in the order of positions."""
        sizes: NDArray[np.int64] = self._counts.sum(axis=0, dtype=np.int64)
        return sizes

    @property
    def n_vectors(self) -> int:
        """Number of vectors counted."""
        return int(self._counts[0].sum(dtype=np.int64))  # each counts in its first cell

    def cut(self, needs: Callable[[int, int, int], int], memory: int) -> tuple[list[int], list[int]] | None:
        """Divide the cells into the fewest runs that fit, from the first cell on; None if a single cell does not fit.

        Parameters
        ----------
        needs : callable
            Returns the bytes of a region, given its number of vectors, the position of its first cell, and the one
            after its last.
        memory : int

        Returns
        -------
        bounds : list of int
            Start positions of the runs, and the end of the last.
        members : list of int
            Number of vectors of each run.
        """
        cells, bounds, members = self._counts.shape[1], [0], []
        new = np.zeros(cells, np.int64)  # vectors of each cell in no earlier cell of its run
        inside = 0
        for at in range(cells):
            start = bounds[-1]
            if at == start:
                new = self._counts[: start + 1].sum(axis=0, dtype=np.int64)
            if at > start and needs(inside + int(new[at]), start, at + 1) > memory:
                bounds.append(at)
                members.append(inside)
                new = self._counts[: at + 1].sum(axis=0, dtype=np.int64)
                inside = 0
            inside += int(new[at])
            if needs(inside, bounds[-1], at + 1) > memory:
                return None
        return [*bounds, cells], [*members, inside]


@kernel
def _count(labels: Any, positions: Any, counts: Any) -> None:  # pragma: no cover - compiled
    width = labels.shape[1]
    cells = np.empty(width, np.int64)
    for i in range(labels.shape[0]):
        for j in range(width):
            at, position = j, np.int64(positions[labels[i, j]])
            while at > 0 and cells[at - 1] > position:
                cells[at] = cells[at - 1]
                at -= 1
            cells[at] = position
        before = np.int64(-1)
        for j in range(width):
            if cells[j] != before:
                counts[before + 1, cells[j]] += np.uint32(1)
                before = cells[j]


def parts_of(homes: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return `Regions.places` and `Regions.homes` for regions with `homes` vertices, at most `most` in a part."""
    places, owners, first = [0], [], 0
    for region, size in enumerate(homes.tolist()):
        parts = -(-size // most)
        places += [first + size * (part + 1) // parts for part in range(parts)]
        owners += [region] * parts
        first += size
    return np.array(places), np.array(owners, np.int64)


def regions_of(
    labels: NDArray[np.uint16], regions: NDArray[np.int32]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the distinct regions of each vector, given its leaders, the rows of `labels`; and the row of each."""
    ordered = np.sort(regions[labels], axis=1)
    first = np.ones(ordered.shape, bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return ordered[first].astype(np.uint32), np.nonzero(first)[0]


def cells_of(
    labels: NDArray[np.uint16], plan: Regions, region: int
) -> tuple[list[NDArray[np.uint32]], list[int]]:
    """Return the rows of `labels` in each cell of a region, ascending, and the numbers of these cells."""
    numbers = np.unique(plan.cells[plan.regions == region])
    slots = np.full(int(plan.cells.max()) + 1, -1, np.int32)
    slots[numbers] = np.arange(len(numbers))
    cell_slots = np.where(plan.regions == region, slots[plan.cells], -1).astype(np.int32)
    starts = np.zeros(len(numbers) + 1, np.int64)
    last = np.full(len(numbers), -1, np.int64)
    _size(labels, cell_slots, starts[1:], last)
    np.cumsum(starts, out=starts)
    rows = np.empty(int(starts[-1]), np.uint32)
    last[:] = -1
    _fill(labels, cell_slots, starts[:-1].copy(), last, rows)
    return [rows[a:b] for a, b in pairwise(starts.tolist())], numbers.tolist()


@kernel
def _size(labels: Any, cells: Any, sizes: Any, last: Any) -> None:  # pragma: no cover - compiled
    for i in range(labels.shape[0]):
        for j in range(labels.shape[1]):
            cell = cells[labels[i, j]]
            if cell >= 0 and last[cell] != i:
                last[cell] = i
                sizes[cell] += 1


@kernel
def _fill(labels: Any, cells: Any, ends: Any, last: Any, rows: Any) -> None:  # pragma: no cover - compiled
    for i in range(labels.shape[0]):
        for j in range(labels.shape[1]):
            cell = cells[labels[i, j]]
            if cell >= 0 and last[cell] != i:
                last[cell] = i
                rows[ends[cell]] = i
                ends[cell] += 1
