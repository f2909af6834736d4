"""Stages *leaves*, *choose*, *unite* and *link* of a graph built region by region.

*leaves* compares what each region has, which makes records (place of a vertex, region, nearest others); *choose* sorts
those of a range of places into reservoirs and chooses lists, which makes records (place of a vertex, ends of edges) of
both directions; *unite* prunes what is too long, and *link* puts the lists in the order of ids, links distant clusters,
joins equal vectors, and links what cannot be reached. All but the last have the vectors of one region in memory, and
read others in the order of their ids; *link* reads those of sampled and of equal vertices' neighbours from the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.gpu import open_gpu
from indexmill.builders.partition.build import CANDIDATES, first_degree
from indexmill.builders.partition.carve import carve_cells, without
from indexmill.builders.partition.choose import Copies
from indexmill.builders.partition.edges import ENDS, append_ends, edge_records, edges_both_ways, unite_ends
from indexmill.builders.partition.equals import join_equals, repeated
from indexmill.builders.partition.gpu import leaf_lists_on
from indexmill.builders.partition.leaf_lists import leaf_lists
from indexmill.builders.partition.links import link_clusters
from indexmill.builders.partition.regions import Regions, cells_of
from indexmill.builders.partition.reservoirs import Reservoirs, choose_lists, met_records, missing
from indexmill.builders.vamana.graph import Misses
from indexmill.builders.vamana.prune import PruneRule
from indexmill.formats.chunks.reader import Records
from indexmill.formats.chunks.writer import write_chunk, write_runs
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.kinds.graph.regions.memory import STRAYS, Allowance, most_ends
from indexmill.pipeline.kinds.graph.regions.rows import RegionRows, spans
from indexmill.pipeline.kinds.graph.regions.tasks import load_regions
from indexmill.pipeline.kinds.graph.tasks import BuildArguments, misses_of, notes_of, write_linked
from indexmill.pipeline.mill.external_sort import collect, count, sorted_records
from indexmill.reader.threads import map_blocks

LEAVES_VERSION = 7
CHOOSE_VERSION = 3
UNITE_VERSION = 2
LINK_VERSION = 6
#: Vertices that a thread takes at a time.
_BLOCK = 1024
#: Edges made records at a time.
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
    """Compare the vectors of each leaf of a region; write a chunk file: key place, value region, payload candidates."""
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
    del leaves
    at = np.empty(len(names), np.uint32)
    at[copies.order] = np.arange(len(copies.order), dtype=np.uint32)
    starts, most = copies.starts, CANDIDATES * p.max_degree
    del copies
    keys = np.load(folder / "places.npy", mmap_mode="r")[names]
    order = np.argsort(keys)
    order = order[~left_out[order]]

    def block(first: int, last: int) -> Records:
        vertices = order[first:last]
        firsts, ends = starts[at[vertices]], starts[at[vertices] + np.uint32(1)]
        owners, payload = met_records(vectors, vertices, firsts, ends, lists, names, most)
        return Records(keys[vertices][owners], np.full(len(owners), region, np.uint32), payload)

    def runs() -> Iterator[Records]:
        for i, run in enumerate(map_blocks(block, len(order), _BLOCK, threads)):
            yield run
            advance(min(_BLOCK, len(order) - i * _BLOCK))
        advance(len(names) - len(order))

    write_runs(out, runs(), run_end_encoded=False, batch_bytes=batch_bytes, notes=notes_of(misses))


def choose_task(
    files: RegionFiles, met: list[str], part: int, p: BuildArguments, allowance: Allowance, batch_bytes: int,
    out: str, threads: int, advance: Advance = lambda vertices: None,
) -> None:  # fmt: skip
    """Choose the lists of a part; write a chunk file: key place, value the first of the ids, payload ends of edges."""
    plan, first, last, ids = files.at(part)
    lists = np.empty((len(ids), first_degree(p.max_degree, p.saturate)), np.uint32)
    degrees = np.empty(len(ids), np.int32)
    reservoirs = Reservoirs(last - first, CANDIDATES * p.max_degree)
    for piece in sorted_records(met, first, last, buffer_bytes=allowance.buffer_bytes):
        reservoirs.add(piece.keys.astype(np.int64) - first, piece.payload)
    _Crew(files.rows(plan, part, allowance), p.vamana.rule, threads, advance).choose(
        reservoirs, lists, degrees
    )
    del reservoirs
    places = np.load(Path(files.places) / "places.npy", mmap_mode="r")
    pairs = edges_both_ways(ids, first, lists, degrees, places)
    del lists, degrees
    notes = notes_of(misses_of(met))
    write_runs(out, _edge_runs(pairs), run_end_encoded=False, batch_bytes=batch_bytes, notes=notes)


def _edge_runs(pairs: NDArray[np.uint64]) -> Iterator[Records]:
    for first in range(0, max(len(pairs), 1), _EDGES):  # at least one run, perhaps empty
        keys, payload = edge_records(pairs[first : first + _EDGES])
        yield Records(keys, payload[:, 0].copy(), payload)


def unite_task(
    files: RegionFiles, edges: list[str], part: int, p: BuildArguments, allowance: Allowance, batch_bytes: int,
    out: str, threads: int, advance: Advance = lambda vertices: None,
) -> None:  # fmt: skip
    """Unite the edges of both directions of a part; write a chunk file: key vertex, value part, payload neighbours.

    A list shorter than R is filled with the vertex itself. Very many edges may lead to a few vertices: those of as many
    vertices are in memory at a time as the plan of a part allows.
    """
    plan, first, last, ids = files.at(part)
    crew = _Crew(files.rows(plan, part, allowance), p.vamana.rule, threads, advance)
    lists = np.empty((len(ids), p.max_degree), np.uint32)
    for start, end, records in ranges(edges, first, last, most_ends(len(ids), p.max_degree) // ENDS):
        ends, starts = _ends(edges, start, end, records, allowance.buffer_bytes)
        rows = slice(start - first, end - first)
        crew.unite(ids[rows], ends, starts, lists[rows])
        del ends
    del crew
    values = np.full(len(ids), part, np.uint32)
    notes = notes_of(misses_of(edges[:1]))  # each has those of all regions
    write_chunk(out, Records(ids, values, lists), (0, 1 << 32), batch_bytes=batch_bytes, notes=notes)


def ranges(chunks: list[str], first: int, last: int, most: int) -> Iterator[tuple[int, int, int]]:
    """Cut a range of keys into ranges of at most `most` records, unless one key has more; yield bounds and records."""
    records = count(chunks, first, last)
    if last - first == 1 or records <= most:
        yield first, last, records
        return
    middle = (first + last) // 2
    yield from ranges(chunks, first, middle, most)
    yield from ranges(chunks, middle, last, most)


def _ends(
    edges: list[str], first: int, last: int, records: int, buffer_bytes: int
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the ends of edges at the places `first` to `last`, and the bounds of each place among them."""
    ends = np.empty(ENDS * records, np.uint32)
    counts = np.zeros(last - first, np.int64)
    for piece in sorted_records(edges, first, last, buffer_bytes=buffer_bytes):
        append_ends(piece.keys.astype(np.int64) - first, piece.payload, ends, counts)
    return ends, np.concatenate([[0], np.cumsum(counts)])


class _Crew(NamedTuple):
    """Threads that work on the vertices of a part, with the vectors of its home in memory."""

    held: RegionRows
    rule: PruneRule
    threads: int
    advance: Advance

    def choose(self, reservoirs: Reservoirs, lists: NDArray[np.uint32], degrees: NDArray[np.int32]) -> None:
        """Fill the lists of all vertices from their reservoirs."""
        held, firsts = self.held, np.arange(len(lists)) * reservoirs.ids.shape[1]

        def choose(one: int, end: int) -> None:
            choose_lists(
                held.vectors, held.rows, held.names, reservoirs, (one, end), self.rule, lists, degrees
            )

        self._run(reservoirs.ids.reshape(-1), firsts, firsts + reservoirs.counts, choose)

    def unite(
        self, ids: NDArray[np.uint32], ends: NDArray[np.uint32], starts: NDArray[np.int64], lists: NDArray[np.uint32]
    ) -> None:  # fmt: skip
        """Fill the lists of the vertices `ids` from the `ends` of their edges, which begin at `starts`."""
        held = self.held

        def unite(one: int, end: int) -> None:
            bounds = starts[one : end + 1]
            unite_ends(
                held.vectors, held.rows, held.names, ids[one:end], ends, bounds, self.rule, lists[one:end]
            )

        self._run(ends, starts[:-1], starts[1:], unite)

    def _run(
        self, ids: NDArray[np.uint32], firsts: NDArray[np.int64], ends: NDArray[np.int64],
        work: Callable[[int, int], None],
    ) -> None:  # fmt: skip
        """Call ``work(first, last)`` for blocks of vertices while the vectors that they name are in memory.

        Parameters
        ----------
        ids : uint32 array
            From ``firsts[i]`` to ``ends[i]`` those that vertex i names.
        """
        strays, starts = missing(ids, firsts, ends, self.held.rows)
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
