"""Stages *borders*, *settle*, *districts* and *rests*: star packing in districts, for stage *order* to join.

*borders* divides a sample of the vectors. *settle* hands every district the lists of its vertices, an external sort by
district. *districts* packs each, and *rests* what is left over of each group of districts. A task reads its rows front
to back, or the lists of its own vertices. The order is that of `layout.districts.order`, whatever the tasks.
"""

from __future__ import annotations

import zipfile
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
from indexmill.layout.districts.order import (
    InDistricts,
    behind_each_other,
    joined,
    pack_district,
    pack_group,
)
from indexmill.layout.order import Adjacency, Scratch, in_memory
from indexmill.pipeline.kinds.graph.districts.plan import CONVERTED_BYTES
from indexmill.pipeline.kinds.graph.tasks import load_graph
from indexmill.pipeline.mill.external_sort import count, sorted_records

BORDERS_VERSION = 1
SETTLE_VERSION = 1
DISTRICTS_VERSION = 2
RESTS_VERSION = 2
#: Begins of the names of arrays in the file of a district; the number of a part follows.
_PAGES, _REST, _LISTS = "pages_", "rest_", "lists_"


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
    block = max(1, CONVERTED_BYTES // comparable(rows[:1]).nbytes)
    for at in range(0, len(rows), block):
        districts[at : at + block] = borders.districts_of(comparable(rows[at : at + block]))
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
    """Write a district after the first round, an npz of its parts, one after the other.

    Of part i it has ``pages_i`` and ``rest_i`` (`layout.districts.order.Packed`), and ``lists_i``, those of the rest,
    (r, R). `n` vertices are in the graph. Memory: a part, however many there are.
    """
    bounds = order.cuts(count(chunks, district, district + 1))
    pieces = sorted_records(chunks, district, district + 1, buffer_bytes=buffer_bytes)
    with zipfile.ZipFile(out, "w") as file:
        for members, lists in _parts(pieces, bounds, max_degree, in_memory):
            part = pack_district(members, _full(lists.copy()), n, nodes_per_page, order.unit_pages)
            i = len(file.namelist()) // 3  # enumerate() would hold a part until it has the next
            _write(file, f"{_PAGES}{i}", part.pages)
            _write(file, f"{_REST}{i}", part.rest)
            _write(file, f"{_LISTS}{i}", lists[np.searchsorted(members, part.rest)])
            del members, lists, part


def rests_task(
    districts: list[str], order: InDistricts, n: int, max_degree: int, nodes_per_page: int, out: str
) -> None:
    """Write how the vertices left over in a group of districts are packed, npy, uint32 (any,).

    Memory: a part of the group (`InDistricts.rest_cuts`), and the lists left over in a part of a district.
    """
    size = sum(len(rest) for rest in _arrays(districts, _REST))
    ends, scratch = [], partial(scratch_array, Path(out).parent)
    unit = order.unit_pages[0] * nodes_per_page
    with open(out, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<u4", "fortran_order": False, "shape": (size,)})
        for members, lists in _parts(_left_over(districts), order.rest_cuts(size), max_degree, scratch):
            packed = pack_group(members, _full(lists), n, nodes_per_page, order.unit_pages, scratch)
            whole = len(packed) // unit * unit
            file.write(packed[:whole].data)
            ends.append(packed[whole:].copy())
            del members, lists, packed
        file.write(behind_each_other(ends, nodes_per_page, order.unit_pages).data)


def joined_order(
    districts: list[str], rests: list[str], unit_pages: tuple[int, ...], nodes_per_page: int
) -> NDArray[np.uint32]:
    """Return the order of all vertices, uint32 (n,), from the files of both stages."""
    units = (nodes_per_page, unit_pages)
    pages = [behind_each_other([*_arrays([file], _PAGES)], *units) for file in districts]
    return joined(pages, [np.load(file) for file in rests], *units)


def _write(file: zipfile.ZipFile, name: str, array: NDArray[np.uint32]) -> None:
    """Write an array of an npz, without a copy of it."""
    with file.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array(member, array)


def _arrays(files: list[str], kind: str) -> Iterator[NDArray[np.uint32]]:
    """Yield the arrays of a kind of all parts of districts, one at a time."""
    for file in files:
        with np.load(file) as arrays:
            for name in arrays.files:
                if name.startswith(kind):
                    yield arrays[name]


def _left_over(files: list[str]) -> Iterator[Records]:
    """Yield what each part of districts leaves over, and its lists."""
    for file in files:
        with np.load(file) as arrays:
            for i in range(len(arrays.files) // 3):
                rest = arrays[f"{_REST}{i}"]
                yield Records(rest, rest, arrays[f"{_LISTS}{i}"])


def _full(lists: NDArray[np.uint32]) -> Adjacency:
    return Adjacency(lists, np.full(len(lists), lists.shape[1], np.int32))


def _parts(
    pieces: Iterator[Records], bounds: Sequence[int], max_degree: int, scratch: Scratch
) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint32]]]:
    """Yield the vertices between each of `bounds` and the next, in the order of the records, and their lists.

    The lists are in `scratch`, until the next ones are asked for.
    """
    piece = Records(np.empty(0, np.uint32), np.empty(0, np.uint32), np.empty((0, max_degree), np.uint32))
    for first, last in pairwise(bounds):
        members, filled = np.empty(last - first, np.uint32), 0
        with scratch(np.uint32, (last - first, max_degree)) as lists:
            while filled < len(members):
                if not len(piece.values):
                    del piece  # before there is another
                    piece = next(pieces)
                taken = min(len(piece.values), len(members) - filled)
                members[filled : filled + taken] = piece.values[:taken]
                lists[filled : filled + taken] = piece.payload[:taken]
                piece, filled = Records(*(column[taken:] for column in piece)), filled + taken
            yield members, lists
        del members, lists
