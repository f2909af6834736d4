"""Star packing of a large graph in districts: full stars of each district, then what is left over of several.

Districts consist of near vectors (`borders`), so most edges to near neighbours lie inside one. In the first round only
these count, and only stars that fill a page are kept: near a border, vertices without enough neighbours inside are left
over. A district's lists are numbered anew, so that packing it stays within a few megabytes; districts are packed on
threads, or by tasks of their own. In the second round the vertices left over in neighbouring districts are packed
together, by the edges between them. What does not fill their last page is merged with that of the others,
first-fit-decreasing (`layout.ffd`).

Where a page holds more than half as many vertices as a list, few stars fill one. Then the first round keeps merged
pages, too, and leaves over less than a page of each district.

The vectors and the number of vertices decide the districts: neither threads nor memory reach the order. A graph with
fewer than one and a half times `DISTRICT_VERTICES` vertices is one district, and so is one without vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.districts.borders import fit_borders, sampled_rows
from indexmill.layout.districts.inside import keep_inside
from indexmill.layout.ffd import lay_out
from indexmill.layout.order import Adjacency, Given, OrderMemory, Scratch, Work, in_memory
from indexmill.layout.star import packed_stars, star_order
from indexmill.layout.units.order import UNIT_PAGES, InUnits, in_units
from indexmill.reader.threads import run_blocks

#: Vertices of a district, on average.
DISTRICT_VERTICES = 1 << 18
#: Districts of which the vertices left over are packed together, at most.
TOGETHER = 16
#: Bytes a vertex that is packed: its order, lengths of lists, and star packing.
_VERTEX_BYTES = 40


class Packed(NamedTuple):
    """A district after the first round.

    Attributes
    ----------
    pages : uint32 array, shape (any,)
        Vertices of whole pages, page by page.
    rest : uint32 array, shape (any,)
        The others, near ones near each other, so that caches serve the second round.
    """

    pages: NDArray[np.uint32]
    rest: NDArray[np.uint32]


@dataclass(frozen=True)
class InDistricts(InUnits):
    """Star packing, district by district, and in units within a district."""

    vertices: ClassVar[int] = DISTRICT_VERTICES

    @property
    def memory(self) -> OrderMemory:
        """Memory of the order: that of a graph of one district, or of what each thread packs."""
        return super().memory._replace(a_vertex_at_once=_VERTEX_BYTES)

    def districts(self, n: int) -> int:
        """Return the number of districts of a graph of `n` vertices with vectors."""
        return max(1, (n + self.vertices // 2) // self.vertices)

    @property
    def most(self) -> int:
        """Vertices of a district that are packed together at most."""
        return self.vertices * 3 // 2

    def at_once(self, n: int) -> int:
        """Return about how many of `n` vertices a thread packs at a time: a district, or half of a group of them."""
        return max(self.most, min(n, TOGETHER * self.vertices) // 2)

    def threads(self, n: int, threads: int) -> int:
        """Return how many of `threads` pack districts of `n` vertices.

        Lists and reverse graphs of at most half of the districts take the scratch space of one graph.
        """
        return min(threads, max(1, self.districts(n) // 2))

    def cuts(self, size: int) -> list[int]:
        """Return the bounds of the parts, of at most `most` vertices, in which a district of `size` is packed.

        Districts have more than one only where very many vectors are equal or nearly so.
        """
        return _cuts(size, self.most)

    def rest_cuts(self, size: int) -> list[int]:
        """Return the bounds of the parts in which the `size` vertices left over in a group of districts are packed."""
        return _cuts(size, TOGETHER * self.vertices)

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `layout.order.Order`. In districts it is never interrupted, and spends two units an edge."""
        graph, points, b = given.graph, given.points, given.nodes_per_page
        n, width = graph.neighbours.shape
        n_districts, units = self.districts(n), self.unit_pages
        if points is None or n_districts == 1:
            return super().arrange(given)
        given.work.spend(n * n_districts.bit_length() * -(-points.shape[1] // 16))
        given.work.spend(2 * int(graph.degrees.sum(dtype=np.int64)))
        borders = fit_borders(points[sampled_rows(n, n_districts)], n_districts, given.threads)
        members, starts = _grouped(borders.districts_of(points, given.threads), n_districts)

        def packed(inside: NDArray[np.uint32]) -> Packed:
            with given.scratch(np.uint32, (len(inside), width)) as lists:
                np.take(graph.neighbours, inside, axis=0, out=lists, mode="clip")  # no copy between
                inner = Adjacency(lists, graph.degrees[inside])
                return pack_district(inside, inner, n, b, units, given.scratch)

        def pack(district: int, _: int) -> Packed:
            inside = members[starts[district] : starts[district + 1]]
            parts = [packed(inside[first:last]) for first, last in pairwise(self.cuts(len(inside)))]
            rest = np.concatenate([np.empty(0, np.uint32), *(part.rest for part in parts)])
            return Packed(behind_each_other([part.pages for part in parts], b, units), rest)

        def packed_rest(rest: NDArray[np.uint32]) -> NDArray[np.uint32]:
            with given.scratch(np.uint32, (len(rest), width)) as lists:
                np.take(graph.neighbours, rest, axis=0, out=lists, mode="clip")
                return pack_group(rest, Adjacency(lists, graph.degrees[rest]), n, b, units, given.scratch)

        def pack_rest(group: int, _: int) -> NDArray[np.uint32]:
            rest = np.concatenate([district.rest for district in districts[slice(*groups[group])]])
            cuts = self.rest_cuts(len(rest))
            return behind_each_other(
                [packed_rest(rest[first:last]) for first, last in pairwise(cuts)], b, units
            )

        threads = self.threads(n, given.threads)
        districts, groups = run_blocks(pack, n_districts, 1, threads), groups_of(n_districts)
        rests = run_blocks(pack_rest, len(groups), 1, threads)
        return joined([district.pages for district in districts], rests, b, units)


def _cuts(size: int, most: int) -> list[int]:
    """Return the bounds of as few parts of at most `most` as `size` has, of the same length."""
    parts = -(-size // most)
    return [size * part // parts for part in range(parts + 1)] if parts else [0]


def groups_of(n_districts: int) -> list[tuple[int, int]]:
    """Return the first and last of the districts of which the vertices left over are packed together.

    They are halved as by the borders of all districts (`borders.Borders`).
    """

    def halve(first: int, last: int) -> Iterable[tuple[int, int]]:
        if last - first <= TOGETHER:
            return [(first, last)]
        middle = (first + last) // 2
        return [*halve(first, middle), *halve(middle, last)]

    return list(halve(0, n_districts))


def pack_district(
    members: NDArray[np.uint32], lists: Adjacency, n: int, nodes_per_page: int,
    unit_pages: tuple[int, ...] = UNIT_PAGES, scratch: Scratch = in_memory,
) -> Packed:  # fmt: skip
    """Return a district, or a part of one, after the first round.

    Parameters
    ----------
    members : uint32 array, shape (m,)
        Its vertices.
    lists : Adjacency
        Their lists, uint32 (m, R), and lengths: work space from then on.
    n : int
        Vertices of the graph.
    unit_pages : tuple of int
        See `layout.units.order.InUnits`.
    """
    b, m = nodes_per_page, len(members)
    keep_inside(members, *lists, n)
    with scratch(np.uint32, (int(lists.degrees.sum(dtype=np.int64)),)) as sources:
        stars, sizes = packed_stars(*lists, b, sources)
    if 2 * (b - 1) > lists.neighbours.shape[1]:
        order, whole = lay_out(stars, sizes, b), m // b * b
    else:
        is_full = np.repeat(sizes == b, sizes)
        order, whole = np.concatenate([stars[is_full], stars[~is_full]]), int(np.count_nonzero(is_full))
    inside = Given(lists, None, b, 0, 1, Work(), scratch)
    pages, rest = (in_units(part, inside, unit_pages) for part in (order[:whole], order[whole:]))
    return Packed(members[pages], members[rest])


def pack_group(
    members: NDArray[np.uint32], lists: Adjacency, n: int, nodes_per_page: int,
    unit_pages: tuple[int, ...] = UNIT_PAGES, scratch: Scratch = in_memory,
) -> NDArray[np.uint32]:  # fmt: skip
    """Return the vertices left over in neighbouring districts as they are packed; parameters as of `pack_district`."""
    b = nodes_per_page
    keep_inside(members, *lists, n)
    with scratch(np.uint32, (int(lists.degrees.sum(dtype=np.int64)),)) as sources:
        order = star_order(*lists, b, sources)
    return members[in_units(order, Given(lists, None, b, 0, 1, Work(), scratch), unit_pages)]


def joined(
    pages: Sequence[NDArray[np.uint32]], rests: Sequence[NDArray[np.uint32]], nodes_per_page: int,
    unit_pages: tuple[int, ...] = UNIT_PAGES,
) -> NDArray[np.uint32]:  # fmt: skip
    """Return the order of all vertices, uint32 (n,), made of the pages of each district and of `rests`.

    The pages of each group of districts are followed by one of `rests`, its vertices left over as they are packed.
    What fills no unit comes behind the units of all groups, and pages that are not full are merged in the end.
    """
    pieces: list[NDArray[np.uint32]] = []
    for (first, last), rest in zip(groups_of(len(pages)), rests, strict=True):
        pieces += [*pages[first:last], rest]
    whole, ends = _by_units(pieces, nodes_per_page, unit_pages)
    if not ends:
        return np.concatenate(whole)
    sizes = np.array([len(end) for end in ends], np.int64)
    return np.concatenate([*whole, lay_out(np.concatenate(ends), sizes, nodes_per_page)])


def behind_each_other(
    pieces: Sequence[NDArray[np.uint32]], nodes_per_page: int, unit_pages: tuple[int, ...] = UNIT_PAGES
) -> NDArray[np.uint32]:
    """Return pieces of an order as one, uint32 (any,), of which units begin where units may."""
    whole, ends = _by_units(pieces, nodes_per_page, unit_pages)
    return np.concatenate([np.empty(0, np.uint32), *whole, *ends])


def _by_units(
    pieces: Sequence[NDArray[np.uint32]], nodes_per_page: int, unit_pages: tuple[int, ...]
) -> tuple[list[NDArray[np.uint32]], list[NDArray[np.uint32]]]:
    """Return the units of all pieces, the largest first and at last single pages, and what fills no page of each."""
    whole, ends = [], list(pieces)
    for unit in (*unit_pages, 1):
        bounds = [len(piece) - len(piece) % (unit * nodes_per_page) for piece in ends]
        whole += [piece[:bound] for piece, bound in zip(ends, bounds, strict=True)]
        ends = [piece[bound:] for piece, bound in zip(ends, bounds, strict=True)]
    return whole, [end for end in ends if len(end)]


@kernel
def _grouped(districts: Any, n_districts: int) -> Any:  # pragma: no cover - compiled
    """Return the vertices district by district, ascending in each, uint32 (n,), and where each district starts."""
    starts = np.zeros(n_districts + 1, np.int64)
    for district in districts:
        starts[np.int64(district) + 1] += 1
    starts = np.cumsum(starts)
    at = starts[:n_districts].copy()
    members = np.empty(districts.size, np.uint32)
    for v in range(districts.size):
        own = np.int64(districts[v])
        members[at[own]] = v
        at[own] += 1
    return members, starts
