"""Parts *formats* and *blocks*: reads of formats that were left out, and what a drive gives of larger reads.

A simulation of the search counts the reads (`simulation`). Larger blocks, fewer components or bits in a node, and other
codes in memory stand beside the nodes and codes that a build takes. Searches start at the nearest of a sample of the
vertices. The reader's own searches of an index with these nodes and codes tell how near the simulation comes.

A larger block saves reads, and a drive gives fewer of them in a second. So part *blocks* times reads of each size.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import indexmill
from indexmill.formats.ivf.rabitq import row_bytes_of
from indexmill.jobs.bench.common import disk
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import K, read_bin
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, ORDER, SEED, THREADS
from indexmill.jobs.bench.counts.graphs import Graph, at, swept
from indexmill.jobs.bench.counts.left_out.decoded import (
    Distances,
    component_bytes,
    four_bits,
    principal_bytes,
    rabitq_codes,
    rotated_codes,
)
from indexmill.jobs.bench.counts.left_out.simulation import MOST_WIDTH, Known, Layout, Simulated, simulate
from indexmill.jobs.bench.counts.sets import Case, given
from indexmill.layout.order import Adjacency
from indexmill.layout.portfolio import ORDERS
from indexmill.reader.index import Index

NAME = "embed768"
RECALLS = (0.95, 0.98)
#: Rows that codes are trained on; the share of vertices where searches may start, and how many they start at.
TRAINING_ROWS, START_SHARE, STARTS = 65_536, 0.01, 8
#: Most results that are measured exactly at the end, and the recall that may be lost by measuring fewer.
MOST_EXACT, LOSS = 64, 0.001
#: Rounds in which the drive is measured, and seconds for each size of a read.
ROUNDS, SECONDS = 5, 2


class Reads(NamedTuple):
    """What a read brings: KiB, nodes, and the neighbours of each."""

    kib: int
    nodes: int
    degree: int


class Node(NamedTuple):
    """What nodes hold of a vector: distances by it, and what a read of such nodes brings, in several ways."""

    distances: Distances
    reads: tuple[Reads, ...]


USUAL = Reads(4, 4, 63)
#: Nodes by name: those of a build first.
SQ8, RABITQ = "sq8", "rabitq, 4 bits"
NODES = {
    SQ8: Node(
        component_bytes, (USUAL, Reads(4, 3, 148), Reads(8, 8, 63), Reads(8, 7, 97), Reads(16, 16, 63))
    ),
    "half of the principal components, sq8": Node(
        partial(principal_bytes, one_in=2), (Reads(4, 6, 63), Reads(4, 4, 148))
    ),
    "a third of the principal components, sq8": Node(partial(principal_bytes, one_in=3), (Reads(4, 8, 62),)),
    "4 bits a component": Node(four_bits, (Reads(4, 6, 63), Reads(4, 4, 148))),
    RABITQ: Node(partial(rabitq_codes, bits=4), (Reads(4, 6, 63), Reads(4, 4, 148))),
}
#: The lists of this R are cut to those of fewer neighbours.
_CUT = {62: 63}


class Asked(NamedTuple):
    """Queries of one half of a set, and their distances to all vertices."""

    case: Case
    known: Known


def measure(run: Run) -> dict[str, Any]:
    """Count the reads of each format, and of the reader."""
    case = given(run, NAME, builder="partition")
    tuning = replace(case, half="tune")
    queries, first = np.concatenate([tuning.queries, case.queries]), len(tuning.queries)
    base = np.asarray(read_bin(case.data.base))
    dim, rows = base.shape[1], []
    sample = base[np.random.default_rng(SEED).permutation(len(base))[:TRAINING_ROWS]]
    graphs = Graphs(case)
    sizes = [max(1, n_bytes) for n_bytes in (dim // 12, dim // 8, 25 * dim // 96)]
    codes: list[tuple[str, int, Distances]] = [
        *(("rotated product codes", n_bytes, partial(rotated_codes, n_bytes=n_bytes)) for n_bytes in sizes),
        *(
            (f"rabitq, bits: {bits}", row_bytes_of(dim, bits), partial(rabitq_codes, bits=bits))
            for bits in (1, 2)
        ),
    ]
    for number, (code, n_bytes, by_codes) in enumerate(codes):
        near = by_codes(queries, base, sample)
        usual = {SQ8: NODES[SQ8]._replace(reads=(USUAL,))}
        for node, (by_nodes, reads) in (usual if number else NODES).items():
            measured = by_nodes(queries, base, sample)
            halves = (
                Asked(tuning, Known(near[:first], measured[:first])),
                Asked(case, Known(near[first:], measured[first:])),
            )
            for read in reads:
                print(f"  {code}, {n_bytes} bytes, {node}, {read}", file=sys.stderr, flush=True)
                found = searched(graphs, *halves, read, base, is_exact=node == SQ8)
                rows.append({"codes": code, "code_bytes": n_bytes, "node": node, **read._asdict(), **found})
    return {"queries": len(case.queries), "order": ORDER, "reader": of_reader(case, graphs), "rows": rows}


def blocks(run: Run) -> dict[str, Any]:
    """Time random reads of each size of a block, in turns, from the graph of an index of the part *formats*."""
    path = Graphs(given(run, NAME, builder="partition")).built(USUAL.degree) / "graph.imx"
    sizes = sorted({read.kib for read in NODES[SQ8].reads})
    done = [
        {kib: disk.read_rate(path, disk.DEPTH, SECONDS, 1024 * kib) for kib in sizes} for _ in range(ROUNDS)
    ]
    how = ("depth", "jobs", "seconds", "method")
    return {
        **{name: done[0][sizes[0]][name] for name in how},
        "rounds": ROUNDS,
        "reads_per_s": {str(kib): over_rounds([one[kib]["reads_per_s"] for one in done]) for kib in sizes},
    }


class Graphs:
    """Graphs of a set by the neighbours of a vertex, and their orders."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._graphs: dict[int, Adjacency] = {}
        self._layouts: dict[Reads, Layout] = {}

    def built(self, degree: int) -> Path:
        """Build an index with nodes and codes of the default unless it is there; return its directory."""
        path = self.case.out / f"formats-{degree}.index"
        if not self.case.is_built(path):
            indexmill.build(
                self.case.data.base, path, builder=self.case.builder, R=degree, metric="l2", node_dtype="sq8",
                pq_bytes=max(1, self.case.data.shape()[1] // 12), pq_rotation="opq", order=ORDER, seed=SEED,
                memory=BUILD_MEMORY, workers=THREADS, work=str(self.case.work), force=True,
            )  # fmt: skip
        return path

    def of(self, degree: int) -> Adjacency:
        """Return the lists of all vertices by vector id."""
        if degree not in self._graphs:
            graph = Graph(self.case, self.built(_CUT.get(degree, degree))).adjacency()
            lists = np.ascontiguousarray(graph.neighbours[:, :degree])
            self._graphs[degree] = Adjacency(lists, np.minimum(graph.degrees, degree))
        return self._graphs[degree]

    def layout(self, read: Reads) -> Layout:
        """Return the order of the vertices in reads of that size."""
        if read not in self._layouts:
            base = np.asarray(read_bin(self.case.data.base))
            order = ORDERS[ORDER].fit(self.of(read.degree), base, read.nodes, SEED, threads=THREADS)
            self._layouts[read] = Layout(order, read.nodes)
        return self._layouts[read]


def searched(
    graphs: Graphs, tuning: Asked, asked: Asked, read: Reads, base: NDArray[Any], *, is_exact: bool
) -> dict[str, Any]:
    """Simulate searches with growing lists; return the reads at each of `RECALLS`, and those of exact vectors.

    Unless nodes are as good as exact, the first results are measured again by exact vectors, a read each: as few as
    lose little recall of the `tuning` queries with a long list.
    """
    graph, layout, n_exact = graphs.of(read.degree), graphs.layout(read), 0
    if not is_exact:
        found = simulate(graph, layout, tuning.known, starts_of(tuning), 2 * MOST_EXACT, MOST_EXACT)
        n_exact = fewest_exact(tuning.case, base, found.vector_ids)
    case, known, starts = *asked, starts_of(asked)

    def search(size: int) -> Simulated:
        if is_exact:
            return simulate(graph, layout, known, starts, size, K)
        found = simulate(graph, layout, known, starts, size, n_exact)
        found.counters["pages_read"] += n_exact
        return found._replace(vector_ids=measured_again(case, base, found.vector_ids, n_exact))

    rows = swept(search, case, K)
    return {"exact_reads": n_exact, "at": {f"{one:.2f}": at(rows, "pages_read", one, K) for one in RECALLS}}


def starts_of(asked: Asked) -> NDArray[np.uint32]:
    """Return the vertices where each query starts: of a drawn share of all, the nearest by codes."""
    n = asked.known.near.shape[1]
    drawn = np.sort(np.random.default_rng(SEED).permutation(n)[: max(STARTS, int(START_SHARE * n))])
    nearest = np.argpartition(asked.known.near[:, drawn], STARTS - 1, axis=1)[:, :STARTS]
    return drawn[nearest].astype(np.uint32)


def fewest_exact(case: Case, base: NDArray[Any], found: NDArray[np.int64]) -> int:
    """Return the fewest first results that find as much as all, except for `LOSS`, when they are measured again."""

    def recall(count: int) -> float:
        return case.recalls(measured_again(case, base, found, count))[f"recall{K}"] or 0.0

    wanted = recall(found.shape[1]) - LOSS
    return next(count for count in range(K, found.shape[1] + 1) if recall(count) >= wanted)


def measured_again(case: Case, base: NDArray[Any], found: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the `K` nearest of the first `count` results of each query, by exact distances."""
    first = found[:, :count]
    away = base[first] - case.queries[:, None]
    distances = np.where(first < 0, np.inf, np.einsum("qkd,qkd->qk", away, away))
    return np.take_along_axis(first, np.argsort(distances, axis=1, kind="stable")[:, :K], axis=1)


def of_reader(case: Case, graphs: Graphs) -> dict[str, float | None]:
    """Return the page reads of the reader at each of `RECALLS`, with nodes and codes of the default."""
    index = Index(graphs.built(USUAL.degree), "mmap", ids="memory")
    rows = swept(
        lambda size: index.search(
            case.queries, K, L=size, policy="pipeline", entry="navigation", beam_width=MOST_WIDTH, threads=THREADS
        ),
        case, K,
    )  # fmt: skip
    return {f"{one:.2f}": at(rows, "pages_read", one, K) for one in RECALLS}
