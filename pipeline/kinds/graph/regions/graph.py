"""Stages *leaves*, *choose*, *unite* and *link* of a graph built region by region.

*leaves* compares what each region has, which makes records (place of a vertex, region, those met); *choose* chooses the
lists of a range of places, which makes records (place of a vertex, ends of edges) of both directions; *unite* prunes
what is too long, and *link* puts the lists in the order of ids, links distant clusters, joins equal vectors, and links
what cannot be reached. All but the last have the vectors of one region in memory, and read others in the order of their
ids; *link* reads those of sampled and of equal vertices' neighbours from the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.gpu import open_gpu
from indexmill.builders.partition.build import CANDIDATES, first_degree
from indexmill.builders.partition.carve import carve_cells, without
from indexmill.builders.partition.choose import Copies
from indexmill.builders.partition.equals import join_equals, repeated
from indexmill.builders.partition.gpu import leaf_lists_on
from indexmill.builders.partition.leaf_lists import leaf_lists
from indexmill.builders.partition.links import link_clusters
from indexmill.builders.partition.received import Received, choose_lists, missing, unite_lists
from indexmill.builders.partition.records import (
    ENDS,
    MET,
    append_ids,
    edge_records,
    edges_both_ways,
    met_records,
)
from indexmill.builders.partition.regions import Regions, cells_of
from indexmill.builders.vamana.graph import Misses
from indexmill.builders.vamana.prune import PruneRule
from indexmill.formats.chunks.reader import Records
from indexmill.formats.chunks.writer import write_chunk, write_runs
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.kinds.graph.regions.memory import STRAYS, Allowance, most_received
from indexmill.pipeline.kinds.graph.regions.rows import RegionRows, spans
from indexmill.pipeline.kinds.graph.regions.tasks import load_regions
from indexmill.pipeline.kinds.graph.tasks import BuildArguments, misses_of, notes_of, write_linked
from indexmill.pipeline.mill.ahead import read_ahead
from indexmill.pipeline.mill.external_sort import collect, count, sorted_records
from indexmill.reader.threads import map_blocks

LEAVES_VERSION = 8
CHOOSE_VERSION = 4
UNITE_VERSION = 2
LINK_VERSION = 6
#: Vertices whose lists a thread makes at a time.
_BLOCK = 1024
#: Vertices whose records of those met a thread makes at a time: about a batch of records.
_RECORDED = 4096
#: Pairs made records at a time, at least.
_EDGES = 65_536
#: Rows copied at a time.
_ROWS = 1024

Advance = Callable[[int], None]


class RegionFiles(NamedTuple):
    """Files that the tasks of a region read.

    Attributes
    ----------
    vectors : str
        Rows as the builder takes them.
    places : str
        Directory of stage *regions*.
    chunks : list of str
        Of stage *assign*.
    """

    vectors: str
    places: str
    chunks: list[str]

    def at(self, part: int) -> tuple[Regions, int, int, NDArray[np.uint32]]:
        """Return the plan, the first place of a part, the one after its last, and the ids there."""
        plan = load_regions(self.places)
        first, last = plan.places[part : part + 2].tolist()
        return plan, first, last, np.array(np.load(Path(self.places) / "ids.npy", mmap_mode="r")[first:last])

    def rows(self, plan: Regions, part: int, allowance: Allowance) -> RegionRows:
        """Load the vectors of a part's home."""
        home, spare = int(plan.homes[part]), int(STRAYS * allowance.bytes) // (allowance.row_bytes + 4)
        members = int(plan.members[home])
        return RegionRows(self.vectors, self.chunks, home, members, spare, allowance.buffer_bytes)


def leaves_task(
    places: str, chunks: list[str], region: int, p: BuildArguments, allowance: Allowance, batch_bytes: int, out: str,
    threads: int, advance: Advance = lambda vectors: None,
) -> None:  # fmt: skip
    """Compare the vectors of each leaf of a region; write a chunk file: key place, value region, payload ids met."""
    plan, folder = load_regions(places), Path(places)
    leaders = np.load(folder / "leaders.npy", mmap_mode="r")
    names, vectors = collect(chunks, region, region + 1, buffer_bytes=allowance.buffer_bytes)[1:]
    left_out = repeated(np.load(folder / "firsts.npy", mmap_mode="r")[names], names)
    cells, numbers = cells_of(leaders[names], plan, region)
    cells = without(cells, left_out)
    gpu = open_gpu(p.compute)
    leaves = carve_cells(
        vectors, cells, numbers, len(leaders), p.fanouts, seed=p.seed, threads=threads, gpu=gpu
    )
    del cells
    copies = Copies(leaves.members, len(names))
    misses: Misses | None = None
    if gpu is None:
        lists, misses = leaf_lists(vectors, leaves, int(plan.found), copies.rows, threads)
        first_level = Misses(0, 0, *plan.leaders.tolist()) if region == 0 else Misses()
        misses = Misses.total([misses, leaves.misses, first_level])
    else:
        lists = leaf_lists_on(gpu, vectors, leaves, int(plan.found), copies.rows)
    del leaves, vectors
    at = np.empty(len(names), np.uint32)
    at[copies.order] = np.arange(len(copies.order), dtype=np.uint32)
    starts = copies.starts
    del copies
    keys = np.load(folder / "places.npy", mmap_mode="r")[names]
    order = np.argsort(keys)
    order = order[~left_out[order]]

    def block(first: int, last: int) -> Records:
        vertices = order[first:last]
        firsts, ends = starts[at[vertices]], starts[at[vertices] + np.uint32(1)]
        owners, payload = met_records(firsts, ends, lists, names)
        return Records(keys[vertices][owners], np.full(len(owners), region, np.uint32), payload)

    def runs() -> Iterator[Records]:
        for i, run in enumerate(map_blocks(block, len(order), _RECORDED, threads)):
            yield run
            advance(min(_RECORDED, len(order) - i * _RECORDED))
        advance(len(names) - len(order))

    write_runs(out, runs(), run_end_encoded=False, batch_bytes=batch_bytes, notes=notes_of(misses))


def choose_task(
    files: RegionFiles, met_files: list[str], part: int, p: BuildArguments, allowance: Allowance, batch_bytes: int,
    out: str, threads: int, advance: Advance = lambda vertices: None,
) -> None:  # fmt: skip
    """Choose the lists of a part; write a chunk file: key place, value the first of the ids, payload ends of edges."""
    plan, first, last, ids = files.at(part)
    crew = _Crew(files.rows(plan, part, allowance), p.vamana.rule, threads, advance)
    lists = np.empty((len(ids), first_degree(p.max_degree, p.saturate)), np.uint32)
    degrees = np.empty(len(ids), np.int32)
    most = most_received(len(ids), p.max_degree)
    for span, received in read_ahead(
        _received(met_files, (first, last), ids, MET, most, allowance.buffer_bytes)
    ):
        crew.choose(received, CANDIDATES * p.max_degree, lists[span], degrees[span])
        del received
    del crew
    places = np.load(Path(files.places) / "places.npy", mmap_mode="r")
    pairs, starts = edges_both_ways(ids, first, lists, degrees, places)
    del lists, degrees
    notes = notes_of(misses_of(met_files))
    runs = _edge_runs(pairs, starts, threads)
    write_runs(out, runs, run_end_encoded=False, batch_bytes=batch_bytes, notes=notes)


def _edge_runs(pairs: NDArray[np.uint64], starts: NDArray[np.int64], threads: int) -> Iterator[Records]:
    """Yield the records of groups of pairs that are sorted together; at least one run, perhaps empty."""
    wanted = np.arange(0, max(len(pairs), 1), _EDGES)
    bounds = np.append(np.unique(starts[np.searchsorted(starts, wanted)]), len(pairs))

    def block(first: int, last: int) -> Records:
        keys, payload = edge_records(pairs[bounds[first] : bounds[last]])
        return Records(keys, payload[:, 0].copy(), payload)

    return map_blocks(block, len(bounds) - 1, 1, threads)


def unite_task(
    files: RegionFiles, edge_files: list[str], part: int, p: BuildArguments, allowance: Allowance, batch_bytes: int,
    out: str, threads: int, advance: Advance = lambda vertices: None,
) -> None:  # fmt: skip
    """Unite the edges of both directions of a part; write a chunk file: key vertex, value part, payload neighbours.

    A list shorter than R is filled with the vertex itself.
    """
    plan, first, last, ids = files.at(part)
    crew = _Crew(files.rows(plan, part, allowance), p.vamana.rule, threads, advance)
    lists = np.empty((len(ids), p.max_degree), np.uint32)
    most = most_received(len(ids), p.max_degree)
    for span, received in read_ahead(
        _received(edge_files, (first, last), ids, ENDS, most, allowance.buffer_bytes)
    ):
        crew.unite(received, lists[span])
        del received
    del crew
    values = np.full(len(ids), part, np.uint32)
    notes = notes_of(misses_of(edge_files[:1]))  # each has those of all regions
    write_chunk(out, Records(ids, values, lists), (0, 1 << 32), batch_bytes=batch_bytes, notes=notes)


def _received(
    chunks: list[str], places: tuple[int, int], vertices: NDArray[np.uint32], width: int, most: int, buffer_bytes: int
) -> Iterator[tuple[slice, Received]]:  # fmt: skip
    """Yield what vertices received in records, of as many at a time as have at most `most` ids, unless one has more.

    Parameters
    ----------
    places : (int, int)
        The place of the first vertex, and the one after the last.
    width : int
        Ids of a record.

    Yields
    ------
    slice
        Of `vertices`.
    Received
    """
    for first, last, records in ranges(chunks, *places, most // width):
        ids, counts = np.empty(width * records, np.uint32), np.zeros(last - first, np.int64)
        for piece in sorted_records(chunks, first, last, buffer_bytes=buffer_bytes):
            append_ids(piece.keys.astype(np.int64) - first, piece.payload, ids, counts)
        span = slice(first - places[0], last - places[0])
        yield span, Received(vertices[span], ids, np.concatenate([[0], np.cumsum(counts)]))


def ranges(chunks: list[str], first: int, last: int, most: int) -> Iterator[tuple[int, int, int]]:
    """Cut a range of keys into ranges of at most `most` records, unless one key has more; yield bounds and records.

    They are equally long, and cut again where keys have many records.
    """
    records = count(chunks, first, last)
    if last - first == 1 or records <= most:
        yield first, last, records
        return
    n = min(last - first, -(-records // max(most, 1)))
    for low, high in pairwise([first + (last - first) * i // n for i in range(n + 1)]):
        yield from ranges(chunks, low, high, most)


class _Crew(NamedTuple):
    """Threads that work on the vertices of a part, with the vectors of its home in memory."""

    held: RegionRows
    rule: PruneRule
    threads: int
    advance: Advance

    def choose(
        self, met: Received, candidates: int, lists: NDArray[np.uint32], degrees: NDArray[np.int32]
    ) -> None:
        """Fill the lists of all vertices from the nearest that they met."""

        def choose(one: int, end: int) -> None:
            part, held = slice(one, end), self.held
            choose_lists(
                held.vectors, held.rows, held.names, met.part(one, end), candidates, self.rule, lists[part],
                degrees[part],
            )  # fmt: skip

        self._run(met, choose)

    def unite(self, ends: Received, lists: NDArray[np.uint32]) -> None:
        """Fill the lists of all vertices from the ends of their edges."""

        def unite(one: int, end: int) -> None:
            held = self.held
            unite_lists(held.vectors, held.rows, held.names, ends.part(one, end), self.rule, lists[one:end])

        self._run(ends, unite)

    def _run(self, received: Received, work: Callable[[int, int], None]) -> None:
        """Call ``work(first, last)`` for blocks of vertices while the vectors that they received are in memory."""
        strays, starts = missing(received, self.held.rows)
        for first, last in spans(starts, self.held.spare):
            with self.held.holding(np.unique(strays[starts[first] : starts[last]])):

                def block(one: int, end: int, first: int = first) -> int:
                    work(first + one, first + end)
                    return end - one

                with closing(map_blocks(block, last - first, _BLOCK, self.threads)) as blocks:
                    for done in blocks:  # closed before the rows go, whatever `advance` raises
                        self.advance(done)


def link_task(
    vectors: str, places: str, chunks: list[str], n: int, entry: int, p: BuildArguments, buffer_bytes: int,
    out: str, threads: int,
) -> None:  # fmt: skip
    """Put the lists in the order of ids, link clusters, equals and what the entry cannot reach; write a graph.

    It is written as `save_graph` does.
    """
    directory = Path(out)

    def fill(neighbours: NDArray[np.uint32], degrees: NDArray[np.int32]) -> tuple[list[int], Misses | None]:
        for piece in sorted_records(chunks, 0, n, buffer_bytes=buffer_bytes):
            rows = slice(int(piece.keys[0]), int(piece.keys[-1]) + 1)
            padding = piece.payload == piece.keys[:, None]
            piece.payload[padding] = 0
            neighbours[rows] = piece.payload
            degrees[rows] = p.max_degree - np.count_nonzero(padding, axis=1)
        firsts = np.array(np.load(Path(places) / "firsts.npy", mmap_mode="r"))
        _link(directory / "sampled.npy", vectors, firsts, neighbours, degrees, entry, p, threads)
        return [n], misses_of(chunks[:1])

    write_linked(directory, vectors, (n, p.max_degree), entry, p.build_list_size, fill)


def _link(
    scratch: Path, vectors: str, firsts: NDArray[np.uint32], neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32], entry: int, p: BuildArguments, threads: int,
) -> None:  # fmt: skip
    """Link clusters and join equal vectors as a build in one piece does.

    The rows of sampled vertices are in file `scratch` meanwhile.
    """
    all_rows = np.load(vectors, mmap_mode="r")

    def rows_of(sampled: NDArray[np.int64]) -> NDArray[Any]:
        rows = create_npy(scratch, all_rows.dtype, (len(sampled), all_rows.shape[1]))
        for first in range(0, len(sampled), _ROWS):
            rows[first : first + _ROWS] = all_rows[sampled[first : first + _ROWS]]
        return rows

    rule = p.vamana.rule
    link_clusters(all_rows, firsts, neighbours, degrees, entry, rule, rows_of, seed=p.seed, threads=threads)
    scratch.unlink()
    join_equals(all_rows, firsts, neighbours, degrees, rule)
