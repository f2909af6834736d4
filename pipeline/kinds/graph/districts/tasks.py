"""Stages *borders*, *settle*, *districts* and *rests*: star packing in districts, for stage *order* to join.

*borders* divides a sample of the vectors. *settle* hands every district the lists of its vertices, an external sort by
district. *districts* packs each, and *rests* what is left over of each group of districts. A task reads its rows front
to back, or the lists of its own vertices. The order is that of `layout.districts.order`, whatever the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import comparable
from indexmill.formats.chunks.reader import Records
from indexmill.formats.chunks.writer import write_chunk
from indexmill.formats.pagefile.mapped import scratch_array
from indexmill.layout.districts.borders import Borders, fit_borders, sampled_rows
from indexmill.layout.districts.order import InDistricts, Packed, joined, pack_district, pack_group, together
from indexmill.layout.order import Adjacency
from indexmill.pipeline.kinds.graph.tasks import load_graph
from indexmill.pipeline.mill.external_sort import count, sorted_records

BORDERS_VERSION = 1
SETTLE_VERSION = 1
DISTRICTS_VERSION = 1
RESTS_VERSION = 1
#: Rows converted at a time.
_BLOCK = 65_536


def borders_task(vectors: str, n_districts: int, out: str, threads: int) -> None:
    """Write ``borders.npz``: the borders of districts, by a sample of the vectors."""
    rows = np.load(vectors, mmap_mode="r")
    borders = fit_borders(comparable(rows[sampled_rows(len(rows), n_districts)]), n_districts, threads)
    np.savez(Path(out) / "borders.npz", **borders._asdict())


def load_borders(directory: Path) -> Borders:
    """Read the borders that `borders_task` wrote."""
    with np.load(directory / "borders.npz") as arrays:
        return Borders(**{name: arrays[name] for name in Borders._fields})


def settle_task(
    vectors: str, graph: str, first: int, last: int, borders: Borders, batch_bytes: int, out: str
) -> None:
    """Write the chunk file of vertices `first` to `last`: key district, value vertex, payload neighbours.

    A list shorter than R is filled with the vertex itself.
    """
    rows, g = np.load(vectors, mmap_mode="r")[first:last], load_graph(Path(graph))
    districts = np.empty(len(rows), np.uint32)
    for at in range(0, len(rows), _BLOCK):
        districts[at : at + _BLOCK] = borders.districts_of(comparable(rows[at : at + _BLOCK]))
    lists, vertices = g.neighbours[first:last], np.arange(first, last, dtype=np.uint32)
    padding = np.arange(lists.shape[1]) >= g.degrees[first:last, None]
    payload = np.where(padding, vertices[:, None], lists)
    del padding
    records = Records(districts, vertices, payload)
    write_chunk(out, records, range(borders.n_districts + 1), batch_bytes=batch_bytes)


def district_task(
    chunks: list[str], district: int, order: InDistricts, n: int, max_degree: int, nodes_per_page: int,
    buffer_bytes: int, out: str,
) -> None:  # fmt: skip
    """Write a district after the first round: npz, ``pages`` and ``rest``, and ``lists``, those of the rest, (r, R).

    `n` vertices are in the graph.
    """
    bounds = order.cuts(count(chunks, district, district + 1))
    pieces = sorted_records(chunks, district, district + 1, buffer_bytes=buffer_bytes)
    packed, kept = [], [np.empty((0, max_degree), np.uint32)]
    for members, lists in _parts(pieces, bounds, max_degree):
        part = pack_district(members, _full(lists.copy()), n, nodes_per_page)
        packed.append(part)
        kept.append(lists[np.searchsorted(members, part.rest)])
    whole = together(packed)
    with open(out, "wb") as file:
        np.savez(file, pages=whole.pages, rest=whole.rest, lists=np.concatenate(kept))


def rests_task(districts: list[str], n: int, nodes_per_page: int, out: str) -> None:
    """Write how the vertices left over in a group of districts are packed, npy, uint32 (any,)."""
    members = np.concatenate([_loaded(file, "rest") for file in districts])
    scratch, first = partial(scratch_array, Path(out).parent), 0
    with scratch(np.uint32, (len(members), _loaded(districts[0], "lists").shape[1])) as lists:
        for district in districts:
            part = _loaded(district, "lists")
            lists[first : first + len(part)] = part
            first += len(part)
        order = pack_group(members, _full(lists), n, nodes_per_page, scratch)
    with open(out, "wb") as file:
        np.save(file, order)


def joined_order(districts: list[str], rests: list[str], nodes_per_page: int) -> NDArray[np.uint32]:
    """Return the order of all vertices, uint32 (n,), from the files of both stages."""
    none = np.empty(0, np.uint32)
    packed = [Packed(_loaded(file, "pages"), none) for file in districts]
    return joined(packed, [np.load(file) for file in rests], nodes_per_page)


def _loaded(file: str, name: str) -> NDArray[np.uint32]:
    with np.load(file) as arrays:
        loaded: NDArray[np.uint32] = arrays[name]
    return loaded


def _full(lists: NDArray[np.uint32]) -> Adjacency:
    return Adjacency(lists, np.full(len(lists), lists.shape[1], np.int32))


def _parts(
    pieces: Iterator[Records], bounds: Sequence[int], max_degree: int
) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint32]]]:
    """Yield the vertices between each of `bounds` and the next, in the order of the records, and their lists."""
    rest = Records(np.empty(0, np.uint32), np.empty(0, np.uint32), np.empty((0, max_degree), np.uint32))
    for first, last in pairwise(bounds):
        members, lists = np.empty(last - first, np.uint32), np.empty((last - first, max_degree), np.uint32)
        filled = 0
        while filled < len(members):
            rest = rest if len(rest.values) else next(pieces)
            taken = rest.values[: len(members) - filled]
            members[filled : filled + len(taken)] = taken
            lists[filled : filled + len(taken)] = rest.payload[: len(taken)]
            filled += len(taken)
            rest = Records(*(column[len(taken) :] for column in rest))
        yield members, lists
