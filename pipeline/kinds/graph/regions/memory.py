"""Memory of a build region by region, and the number of regions that a graph is cut into.

Memory of a task beside processes: sizes of its arrays, read off `pipeline.kinds.graph.regions.tasks` and
`pipeline.kinds.graph.regions.graph`. What grows with all vectors is a map of 4 bytes a vector, from ids to rows in
memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from indexmill.builders.partition.build import Fanouts, first_degree, neighbours_a_leaf
from indexmill.builders.partition.carve import LEAF_MOST, counts_of
from indexmill.builders.partition.records import ENDS, MET
from indexmill.pipeline.bisection import greatest, least
from indexmill.pipeline.execution.limits import MOST_NARROW

#: Bytes of a record's key and value in a chunk file.
PAIR_BYTES = 8
#: Share of the allowance that is kept for vectors which a part's vertices name but its home does not have.
STRAYS = 0.125
#: Share of the vectors that vertices name and their home lacks: all of them for a bound, at most about a tenth for a
#: prediction.
ALL_STRAY, FEW_STRAY = 1.0, 0.1
#: Fewest vertices of a part, which also has at least an eighth of the members of its home.
_LEAST_PART = 256
#: Largest region over the mean one, because they are made of whole cells: by its vectors where regions are as many as
#: can be, in proportion where they are fewer; and by the vectors of its cells, where regions are as many or more.
_UNEVEN = 1.25
_UNEVEN_CELLS, _MANY = 1.3, 9
#: From so many components on, the leaders of a vector are spread over regions almost at random; the second number tells
#: how far, from as usual (0) to drawn (1): measured on 200,000 sentences of 768 components in 11 and in 21 regions.
_MANY_COMPONENTS, _SCATTERED = 256, 0.8


class Allowance(NamedTuple):
    """Memory of a task with all threads, and what it is used for.

    Attributes
    ----------
    bytes : int
        In memory, beside what processes take without vectors, and work space of threads.
    buffer_bytes : int
        Of it for an external sort.
    row_bytes : int
        A vector as kernels compare it.
    max_degree : int
    saturate : bool
        Whether lists are filled up to it.
    step : int
        What `bytes` are a multiple of.
    fanouts : (int, int)
        Leaders that a vector goes to on each level.
    """

    bytes: int
    buffer_bytes: int
    row_bytes: int
    max_degree: int
    saturate: bool
    step: int
    fanouts: Fanouts


def leaves_bytes(members: int, in_cells: int, copies: int, allowance: Allowance, found: int) -> int:
    """Return the memory of carving a region of `members` vectors, and of comparing its leaves.

    A vector has its row, its name, and where its lists start, in which order; a copy its vertex, where its list is put,
    and that list. Before, there are labels of vectors, and members of cells and leaves as they are carved; afterwards
    places of vectors, and their order, in place of rows.

    Parameters
    ----------
    in_cells, copies : int
        Vectors of all its cells, and of all leaves made from them (`carve.copies_of`).
    found : int
        Neighbours of a vertex found in each of its leaves.
    """
    collecting = members * (allowance.row_bytes + 8) + allowance.buffer_bytes
    carving = members * (allowance.row_bytes + 4 + 2 * allowance.fanouts[0] + 9) + 4 * in_cells + 8 * copies
    comparing = members * (allowance.row_bytes + 4 + 12 + 1) + copies * (8 + 4 * found)
    writing = members * (4 + 12 + 4 + 25) + copies * 4 * found
    return max(collecting, carving, comparing, writing)


def choose_bytes(n: int, members: int, part: int, allowance: Allowance, stray: float = ALL_STRAY) -> int:
    """Return the memory of choosing the lists of a part: rows of its home's `members` and ids met, or edges.

    Parameters
    ----------
    stray : float
        Share of the ids met whose vectors the home does not have; they are listed.
    """
    chosen = first_degree(allowance.max_degree, allowance.saturate)
    lists = part * (4 * chosen + 36)
    edges = 2 * 8 * chosen * part
    return max(_held(n, members, allowance, stray) + _received(part, allowance, stray) + lists, lists + edges)


def unite_bytes(n: int, members: int, part: int, allowance: Allowance, stray: float = ALL_STRAY) -> int:
    """Return the memory of uniting the lists of a part: rows, ends of edges, lists; `stray` is as of `choose_bytes`."""
    lists = part * (4 * allowance.max_degree + 44)
    return _held(n, members, allowance, stray) + _received(part, allowance, stray) + lists


def _received(part: int, allowance: Allowance, stray: float) -> int:
    """Return the memory of ids received, of those that are next, and of the strays among them."""
    return int((2 + stray) * 4 * most_received(part, allowance.max_degree))


def _held(n: int, members: int, allowance: Allowance, stray: float) -> int:
    """Return the memory of the rows of a region and of strays, their map, and the buffers of an external sort.

    Room is kept for strays, but they take none unless they are there: those that are few are at most all vectors that
    the region does not have.
    """
    row, strays = allowance.row_bytes + 4, int(STRAYS * allowance.bytes)
    if stray < ALL_STRAY:
        strays = min(strays, (n - members) * row)
    return 4 * n + members * row + strays + allowance.buffer_bytes


def most_received(part: int, max_degree: int) -> int:
    """Return the most ids received by one range of a part's vertices; two ranges are in memory, one read ahead.

    A single vertex may have more.
    """
    return part * max_degree // 2


def region_bytes(n: int, members: int, allowance: Allowance) -> int:
    """Return the memory of a region of `members` vectors after its leaves: its smallest parts, chosen and united."""
    part = least_part(members)
    return max(choose_bytes(n, members, part, allowance), unite_bytes(n, members, part, allowance))


def more_memory(need: int, allowance: Allowance) -> int:
    """Return about how much more memory a region needs that exceeds its allowance.

    Of more memory a sixteenth may be lost to steps, and one step more; a share is kept for strays, and as much as a
    narrow task's for buffers.
    """
    gained = 15 / 16 * (1 - STRAYS) - 1 / MOST_NARROW
    return math.ceil((need - allowance.bytes + allowance.step) / gained)


def least_part(members: int) -> int:
    """Return the fewest vertices of a part: each part reads all vectors of its home."""
    return max(_LEAST_PART, members // 8)


def part_vertices(n: int, members: int, allowance: Allowance) -> int:
    """Return the most vertices of a part: what they received fits beside the vectors of its home."""

    def fits(part: int) -> bool:
        need = max(choose_bytes(n, members, part, allowance), unite_bytes(n, members, part, allowance))
        return need <= allowance.bytes

    part = least_part(members)
    return greatest(fits, part, max(n, part) + 1)


class Expected(NamedTuple):
    """The expected cut of a graph into regions.

    Attributes
    ----------
    leaders, fanout : int
        Of the first level, and those that a vector goes to.
    regions, members : int
        Regions, and vectors of the largest.
    times : float
        Regions of a vector.
    in_cells : int
        Vectors of the largest one's cells, each counted in every cell.
    """

    leaders: int
    fanout: int
    regions: int
    members: int
    times: float
    in_cells: int


def expected_regions(n: int, allowance: Allowance, dim: int) -> Expected | None:
    """Return the expected cut of `n` vectors of which nothing is known; None where not even regions of two cells fit.

    How many regions a vector is in depends on the data: ``F G / (F + G - 1)`` of G lies between 1 and the F leaders
    that it goes to, and near what sets of descriptors have. Of vectors with many components, leaders lie in regions
    almost as if each was drawn.
    """
    scattered = _SCATTERED if dim >= _MANY_COMPONENTS else 0.0
    if n <= LEAF_MOST:
        return None
    leaders, fanout = counts_of(n, allowance.fanouts)
    most = leaders // 2 + 1

    def cut(regions: int) -> Expected:
        times = fanout * regions / (fanout + regions - 1)
        times += scattered * (regions * (1 - (1 - 1 / regions) ** fanout) - times)
        uneven = 1 + (_UNEVEN - 1) * min(1.0, regions / most)
        members = min(n, int(uneven * n * times / regions))
        uneven = 1 + (_UNEVEN_CELLS - 1) * min(1.0, regions / _MANY)
        return Expected(leaders, fanout, regions, members, times, int(uneven * n * fanout / regions))

    def fits(regions: int) -> bool:
        tried = cut(regions)
        need = max(expected_leaves_bytes(tried, allowance), region_bytes(n, tried.members, allowance))
        return need <= allowance.bytes

    return cut(least(fits, 1, most)) if fits(most) else None


def expected_leaves_bytes(cut: Expected, allowance: Allowance) -> int:
    """Return about the memory of the leaves of the largest region; see `leaves_bytes`."""
    second = allowance.fanouts[1]
    found = neighbours_a_leaf(allowance.max_degree, cut.fanout * second, allowance.saturate)
    return leaves_bytes(cut.members, cut.in_cells, second * cut.in_cells, allowance, found)


def assign_row_bytes(row_bytes: int, fanouts: Fanouts) -> int:
    """Return the memory of a vector in stages *carve* and *assign*: its row; its leaders and regions, sorted."""
    return row_bytes + 60 * fanouts[0]


def most_scratch(row_bytes: int, max_degree: int, saturate: bool, fanouts: Fanouts) -> int:
    """Return the most bytes of files of a vector between stages, without its row in the input.

    It is in as many regions as it has leaders at most. In each, those that it met leave at most one record that is not
    full; and the ends of its edges one in each part.
    """
    regions, copies = fanouts[0], math.prod(fanouts)
    found = copies * neighbours_a_leaf(max_degree, copies, saturate)
    met = (found // MET + regions) * (4 * MET + PAIR_BYTES)
    edges = 2 * 4 * first_degree(max_degree, saturate) * 5 // 4 + (regions + 1) * (4 * ENDS + PAIR_BYTES)
    return regions * (row_bytes + PAIR_BYTES) + 4 * regions + 12 + met + edges + 4 * max_degree + PAIR_BYTES
