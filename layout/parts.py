"""Packing of pages part by part, each part of the graph on its own thread.

An order that packs pages greedily only follows edges between vertices that have no page yet. If parts consist of near
vertices, most edges are within a part, and the state of a part fits a core's cache. Vertices of partial pages are
packed once more, in parts made of the remains of neighbouring parts. (MARGO's second stage packs all of them at once,
with memory in proportion to the graph.) First-fit-decreasing merges the partial pages of this second round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.breadth_first import BreadthFirstOrder
from indexmill.layout.ffd import lay_out
from indexmill.layout.kmeans_pages import balanced_cells
from indexmill.layout.order import Given, Order, Work, invert
from indexmill.reader.threads import run_blocks

#: Pages of a part: larger parts contain more edges, but exceed a thread's caches.
DEFAULT_PART_PAGES = 4096
#: Parts packed between two checks of the remaining work: more than threads on any machine.
_WAVE = 64
_ELSEWHERE = np.uint32(0xFFFFFFFF)


class Packed(NamedTuple):
    """One part, packed.

    Attributes
    ----------
    vertices : uint32 array, shape (m,)
        Groups of vertices, one after the other.
    sizes : uint16 array
        Sizes of the groups.
    spent : int
        Units of work.
    """

    vertices: NDArray[np.uint32]
    sizes: NDArray[np.uint16]
    spent: int


@dataclass(frozen=True)
class OrderInParts(Order):
    """Base of orders that are packed part by part.

    Attributes
    ----------
    part_pages : int
        Pages of a part.
    """

    part_pages: int = DEFAULT_PART_PAGES
    uses_points = True


#: ``pack(members, places, first)`` packs the members, uint32 (m,), of a part: vertex v is member ``places[v] - first``
#: if that is from 0 to m - 1.
Pack = Callable[[NDArray[np.uint32], NDArray[np.uint32], int], Packed]


def pack_in_parts(given: Given, part_pages: int, pack: Pack) -> NDArray[np.uint32]:
    """Return an order, uint32 (n,), made from groups of vertices that `pack` puts on a page.

    Parts are cells of balanced k-means if there are vectors, else pieces of the breadth-first order. Once work is
    spent, the remaining parts keep that order.

    Memory: 21 bytes a vertex, and that of `pack` for a part on each thread.
    """
    _, points, nodes_per_page, _, threads, work, _ = given
    if points is None:
        order = BreadthFirstOrder().arrange(given)
        bounds = np.append(np.arange(0, len(order), nodes_per_page * part_pages), len(order))
    else:
        order, bounds = balanced_cells(points, nodes_per_page, part_pages, threads, work)
    places = invert(order)

    parts = _pack_parts(order, bounds, places, pack, threads, work)
    full, partial = _separate(parts, nodes_per_page)
    rest, unseen = np.concatenate([order[:0], *partial]), order[bounds[len(parts)] :]
    if work.left and len(rest):
        places[:] = _ELSEWHERE
        places[rest] = np.arange(len(rest), dtype=np.uint32)
        bounds = np.append(np.arange(0, len(rest), nodes_per_page * part_pages), len(rest))
        again = _pack_parts(rest, bounds, places, pack, threads, work)
        unseen = np.concatenate([rest[bounds[len(again)] :], unseen])
        rest = lay_out(
            np.concatenate([part.vertices for part in again]),
            np.concatenate([part.sizes for part in again]),
            nodes_per_page,
        )
    return np.concatenate([*full, rest, unseen])


def _pack_parts(
    order: NDArray[np.uint32],
    bounds: NDArray[np.int64],
    places: NDArray[np.uint32],
    pack: Pack,
    threads: int,
    work: Work,
) -> list[Packed]:
    """Pack the parts ``order[bounds[p] : bounds[p + 1]]`` from the first on, until work is spent."""

    def run(first: int, last: int) -> list[Packed]:
        return [pack(order[bounds[p] : bounds[p + 1]], places, int(bounds[p])) for p in range(first, last)]

    parts: list[Packed] = []
    while len(parts) < len(bounds) - 1 and work.left:
        begin, wave = len(parts), min(_WAVE, len(bounds) - 1 - len(parts))
        done = run_blocks(lambda a, b: run(begin + a, begin + b), wave, 1, threads)  # noqa: B023
        parts += [part for block in done for part in block]
        work.spend(sum(part.spent for part in parts[begin:]))
    return parts


def _separate(
    parts: list[Packed], nodes_per_page: int
) -> tuple[list[NDArray[np.uint32]], list[NDArray[np.uint32]]]:
    """Return, for each part, the vertices of groups that fill a page, and the other vertices."""
    full = [np.repeat(part.sizes == nodes_per_page, part.sizes) for part in parts]
    return (
        [part.vertices[mask] for part, mask in zip(parts, full, strict=True)],
        [part.vertices[~mask] for part, mask in zip(parts, full, strict=True)],
    )


@kernel
def most_akin(score: Any, placed: Any, near: Any, n_near: int) -> Any:  # pragma: no cover - compiled
    """Return the vertex of ``near[:n_near]`` with the highest score that is not placed, ties by place; -1 for none."""
    best, vertex = np.int64(0), np.int64(-1)
    for i in range(n_near):
        u = np.int64(near[i])
        if score[u] > best and not placed[u]:
            best, vertex = np.int64(score[u]), u
    return vertex


@kernel
def edges_inside(
    neighbours: Any, degrees: Any, places: Any, members: Any, first: int
) -> Any:  # pragma: no cover - compiled
    """Return the edges between members, by their numbers in the part, in both directions.

    Returns
    -------
    starts, targets : int64 (m + 1,) and uint32 arrays
        Out-neighbours, in the order of the lists.
    in_starts, sources : int64 (m + 1,) and uint32 arrays
        In-neighbours, ascending.
    """
    m = members.size
    starts, in_starts = np.zeros(m + 1, np.int64), np.zeros(m + 1, np.int64)
    for i in range(m):
        v = members[i]
        for j in range(degrees[v]):
            place = np.int64(places[neighbours[v, j]]) - first
            if 0 <= place < m:
                starts[i + 1] += 1
                in_starts[place + 1] += 1
    starts, in_starts = np.cumsum(starts), np.cumsum(in_starts)
    targets, sources = np.empty(starts[m], np.uint32), np.empty(starts[m], np.uint32)
    ends, e = in_starts[:m].copy(), 0
    for i in range(m):
        v = members[i]
        for j in range(degrees[v]):
            place = np.int64(places[neighbours[v, j]]) - first
            if 0 <= place < m:
                targets[e] = place
                sources[ends[place]] = i
                ends[place] += 1
                e += 1
    return starts, targets, in_starts, sources
