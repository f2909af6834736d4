"""Stages *carve*, *regions* and *assign* of a graph built region by region: which vectors are compared where.

A graph whose build in one piece does not fit the budget is made region by region (`builders.partition.regions`),
and is the same: *carve* finds the leaders of every vector, *regions* cuts their cells into regions that fit, now
that it is known how many vectors each has, and *assign* hands every region its vectors, an external sort by region.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.gpu import open_gpu
from indexmill.builders.nearest.points import Points
from indexmill.builders.partition.build import Fanouts
from indexmill.builders.partition.carve import first_leaders, grouped, misses_of
from indexmill.builders.partition.equals import equal_rows
from indexmill.builders.partition.regions import Crossings, Regions, cells_in_order, parts_of, regions_of
from indexmill.formats.chunks.reader import Records
from indexmill.formats.chunks.writer import write_chunk
from indexmill.formats.errors import BudgetError
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.kinds.graph.regions.cut import Cut
from indexmill.pipeline.kinds.graph.regions.memory import Allowance, more_memory, part_vertices

CARVE_VERSION = 2
REGIONS_VERSION = 4
ASSIGN_VERSION = 1
#: Rows of labels gone through at a time.
_BLOCK = 65_536


def carve_task(
    vectors: str, first: int, last: int, fanouts: Fanouts, seed: int, compute: str, out: str
) -> None:
    """Write the leaders of vectors `first` to `last`, nearest first: npy, uint16 (last - first, fanout)."""
    rows = np.load(vectors, mmap_mode="r")
    leaders, fanout = first_leaders(len(rows), fanouts, seed)
    points = Points(rows[leaders], coded_for=fanout, gpu=open_gpu(compute))
    found = points.nearest(np.array(rows[first:last]), fanout)
    with open(out, "wb") as file:
        np.save(file, found.astype(np.uint16))


def regions_task(
    vectors: str, carved: Sequence[str], seed: int, allowance: Allowance, out: str, threads: int
) -> None:
    """Cut the cells into regions; write ``regions.npz``, ``leaders.npy``, ``places.npy``, ``ids.npy``, ``firsts.npy``.

    The others hold the leaders of each vector, uint16 (n, fanout), the place of each id, the id at each place, and what
    `equal_rows` returns, uint32 (n,). Memory: 12 bytes a vector, and what `Crossings` takes.

    Raises
    ------
    BudgetError
        If one cell is too large for the memory.
    """
    directory, rows = Path(out), np.load(vectors, mmap_mode="r")
    n = len(rows)
    np.save(directory / "firsts.npy", equal_rows(rows, threads))
    drawn, fanout = first_leaders(n, allowance.fanouts, seed)
    leaders = rows[drawn]
    labels = create_npy(directory / "leaders.npy", np.uint16, (n, fanout))
    sizes, first = np.zeros(len(leaders), np.int64), 0
    for file in carved:
        part = np.load(file)
        labels[first : first + len(part)] = part
        sizes += np.bincount(part.ravel(), minlength=len(sizes))
        first += len(part)
    cells, positions = cells_in_order(leaders, sizes)
    crossings = Crossings(positions[cells], len(positions))
    for first in range(0, n, _BLOCK):
        crossings.add(np.array(labels[first : first + _BLOCK]))
    cut = Cut(crossings, allowance)
    found_cut = cut.evenly()
    if found_cut is None:
        raise _too_small(cut, fanout / len(leaders))
    bounds, members = found_cut
    regions = (np.searchsorted(bounds, positions[cells], side="right") - 1).astype(np.int32)
    homes = _place(directory, labels, positions[cells].astype(np.uint32), len(positions))
    places, whose = parts_of(np.diff(homes[bounds]), part_vertices(n, max(members), allowance))
    misses = misses_of(Points(leaders, coded_for=fanout))
    missed = np.array([misses.leaders, misses.leaders_missed])
    plan = Regions(cells, regions, np.array(members), places, whose, cut.found, missed)
    np.savez(directory / "regions.npz", **plan._asdict())
    labels.flush()


def load_regions(directory: str | Path) -> Regions:
    """Read the plan that `regions_task` wrote."""
    with np.load(Path(directory) / "regions.npz") as arrays:
        return Regions(**{name: arrays[name] for name in Regions._fields})


def _too_small(cut: Cut, share: float) -> BudgetError:
    """Return the error for a cell that is too large; `share` of the vectors are in a usual one."""
    n, sizes, allowance = cut.n, cut.crossings.sizes, cut.allowance
    need, vectors = max((cut.needs(size, i, i + 1), size) for i, size in enumerate(sizes.tolist()))
    most_alike = 2 * vectors > (1 + share) * n
    alike = "; most of them are equal or nearly so, shards cut them at random" if most_alike else ""
    return BudgetError(
        f"memory: stage regions compares {vectors:,} of {n:,} vectors, those of one cell, together, which needs "
        f"{need:,} bytes; {allowance.bytes:,} are left for it. Give {more_memory(need, allowance):,} bytes more with "
        f"--memory, or set --shard-vectors{alike}"
    )


def _place(
    directory: Path, labels: NDArray[np.uint16], positions: NDArray[np.uint32], n_cells: int
) -> NDArray[np.int64]:
    """Write the place of each id and the id at each place; return how many vertices are at home before each cell."""
    n = len(labels)
    homes = np.empty((n, 1), np.uint32)
    for first in range(0, n, _BLOCK):
        homes[first : first + _BLOCK, 0] = positions[labels[first : first + _BLOCK, 0]]
    ids, starts = grouped(homes, n_cells)
    del homes
    at = create_npy(directory / "ids.npy", np.uint32, (n,))
    at[:] = ids
    places = create_npy(directory / "places.npy", np.uint32, (n,))
    places[ids] = np.arange(n, dtype=np.uint32)
    at.flush()
    places.flush()
    return starts


def assign_task(
    vectors: str, places: str, first: int, last: int, plan: Regions, batch_bytes: int, out: str
) -> None:
    """Write the chunk file of vectors `first` to `last`: key region, value vector id, payload vector."""
    labels = np.load(Path(places) / "leaders.npy", mmap_mode="r")[first:last]
    regions, rows = regions_of(labels, plan.regions)
    payload = np.load(vectors, mmap_mode="r")[first:last]
    records = Records(regions, (rows + first).astype(np.uint32), payload)
    write_chunk(out, records, range(len(plan.members) + 1), rows=rows, batch_bytes=batch_bytes)
