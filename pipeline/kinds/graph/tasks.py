"""Stages *build*, and for shards *assign*, *build*, *unite* and *link*: one graph of all vectors.

A build that fits the budget is made in one piece. Otherwise an external sort by shard id hands every shard its
vectors, each shard's graph becomes records (vertex, neighbours), and a second external sort by vertex id unites the
lists of a vertex, pruned back to R as DiskANN's merged build would (section 3.3 of its paper) except that the
prune is robust, not random.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.shards import ShardPlan
from indexmill.builders.distances import comparable
from indexmill.builders.gpu import open_gpu
from indexmill.builders.partition.build import FANOUTS, Fanouts, build_partitioned
from indexmill.builders.partition.coded import build_coded
from indexmill.builders.quantize.scalar import comparable_codes
from indexmill.builders.vamana.build import build_vamana
from indexmill.builders.vamana.connect import connect_unreachable
from indexmill.builders.vamana.entries import medoid
from indexmill.builders.vamana.graph import Graph, Misses, VamanaParameters
from indexmill.builders.vamana.unite import unite_lists
from indexmill.formats.chunks.reader import ChunkFile, Records
from indexmill.formats.chunks.writer import write_chunk
from indexmill.formats.errors import BudgetError
from indexmill.formats.pagefile.frame import corrupt
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.execution.allocator import give_back
from indexmill.pipeline.kinds.graph.parameters import TAKEN_TYPES
from indexmill.pipeline.mill.external_sort import collect, count

COMPARABLE_VERSION = 1
ASSIGN_VERSION = 2
BUILD_VERSION = 10
UNITE_VERSION = 4
LINK_VERSION = 4
#: Most vectors of a shard over its stated size, which was judged by a sample.
SHARD_TOLERANCE = 1.02
#: Keys of a sample of queries, and of edges within labels, among the facts of a graph.
SAMPLE, LABELS = "query_sample", "labels"
#: Rows copied or converted at a time.
_BLOCK = 65_536


class BuildArguments(NamedTuple):
    """Arguments of a task that builds a graph."""

    max_degree: int
    build_list_size: int
    alpha: float
    seed: int
    builder: str = "vamana"
    compute: str = "cpu"
    saturate: bool = True
    passes: int = 1
    build_codes: str = "none"
    fanouts: Fanouts = FANOUTS

    @property
    def vamana(self) -> VamanaParameters:
        """The arguments of the Vamana builder."""
        return VamanaParameters(self.max_degree, self.build_list_size, self.alpha, self.passes, self.saturate)

    @property
    def is_coded(self) -> bool:
        """Whether the partition builder makes graphs of float vectors from byte codes."""
        return self.builder == "partition" and self.build_codes == "sq8"

    def taken(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return vectors as the builder takes them."""
        return vectors if vectors.dtype.name in TAKEN_TYPES[self.builder] else comparable(vectors)

    def build(self, vectors: NDArray[Any], entry: int, threads: int, advance: Any) -> Graph:
        """Build the graph of rows as `taken` returns them; `advance` is told of vertices, unless it is None."""
        report = {} if advance is None else {"advance": advance}
        how = {"seed": self.seed, "threads": threads, **report}
        if self.builder == "vamana":
            codes = comparable_codes(vectors) if self.build_codes == "sq8" else None
            return build_vamana(vectors, entry, self.vamana, codes=codes, **how)
        how |= {
            "gpu": open_gpu(self.compute),
            "ended": lambda step, copies: give_back(),
            "fanouts": self.fanouts,
        }
        build = build_coded if self.is_coded else build_partitioned
        return build(vectors, entry, self.vamana, **how)


def save_graph(graph: Graph, out: Path) -> None:
    """Write ``neighbours.npy``, ``degrees.npy`` and ``graph.json`` into `out`."""
    np.save(out / "neighbours.npy", graph.neighbours)
    np.save(out / "degrees.npy", graph.degrees)
    write_facts(out, graph.entry, graph.edges_added, [len(graph.degrees)], graph.misses)


def load_graph(directory: Path) -> Graph:
    """Map what `save_graph` wrote."""
    facts = json.loads((directory / "graph.json").read_text())
    return Graph(
        np.load(directory / "neighbours.npy", mmap_mode="r"),
        np.load(directory / "degrees.npy", mmap_mode="r"),
        facts["entry"],
        facts["edges_added"],
        Misses(*facts["misses"]) if facts.get("misses") else None,
    )


def shard_sizes(directory: Path) -> list[int]:
    """Return the vectors of each shard that the graph in `directory` was made of; one in a build of one piece."""
    sizes: list[int] = json.loads((directory / "graph.json").read_text())["shards"]
    return sizes


def graph_facts(directory: Path) -> dict[str, Any]:
    """Return what a manifest says of what shaped the graph in `directory`: a sample of queries, a column of labels."""
    facts: dict[str, Any] = json.loads((directory / "graph.json").read_text())
    return {name: facts[name] for name in (SAMPLE, LABELS) if name in facts}


def copied_graph(graph: Graph, directory: Path) -> tuple[np.memmap[Any, Any], np.memmap[Any, Any]]:
    """Write the lists and degrees of a graph into `directory`, and return both, mapped, to be changed and flushed."""
    neighbours = create_npy(directory / "neighbours.npy", np.uint32, graph.neighbours.shape)
    degrees = create_npy(directory / "degrees.npy", np.int32, graph.degrees.shape)
    for first in range(0, len(degrees), _BLOCK):
        neighbours[first : first + _BLOCK] = graph.neighbours[first : first + _BLOCK]
        degrees[first : first + _BLOCK] = graph.degrees[first : first + _BLOCK]
    return neighbours, degrees


def write_facts(
    directory: Path, entry: int, edges_added: int, shards: list[int], misses: Misses | None = None,
    shaped: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Write ``graph.json``: what is known of a graph beside its lists; `shaped` as of `graph_facts`."""
    facts = {
        "entry": entry,
        "edges_added": edges_added,
        "shards": shards,
        "misses": misses,
        **(shaped or {}),
    }
    (directory / "graph.json").write_text(json.dumps(facts))


def comparable_task(vectors: str, out: str, threads: int) -> None:
    """Write ``vectors.npy`` as rows whose components can be computed with (`builders.distances.comparable`)."""
    rows = np.load(vectors, mmap_mode="r")
    dtype = comparable(np.empty((0, 1), rows.dtype)).dtype
    wide = create_npy(Path(out) / "vectors.npy", dtype, rows.shape)
    for first in range(0, len(rows), _BLOCK):
        wide[first : first + _BLOCK] = comparable(rows[first : first + _BLOCK])
    wide.flush()


def misses_of(chunks: Sequence[str]) -> Misses | None:
    """Return the sum of the misses that are noted in chunk files; None where leaves were not compared by codes."""
    noted = []
    for chunk in chunks:
        with ChunkFile(chunk) as file:
            if file.notes:
                noted.append(Misses(**file.notes))
    return Misses.total(noted) if noted else None


def notes_of(misses: Misses | None) -> dict[str, int]:
    """Return notes for a chunk file, as `misses_of` reads them."""
    return {} if misses is None else misses._asdict()


def build_task(
    vectors: str, entry: int, p: BuildArguments, out: str, threads: int, advance: Any = None
) -> None:
    """Build the graph of all vectors in one piece, from rows as `BuildArguments.taken` returns them."""
    rows = np.load(vectors, mmap_mode="r" if p.is_coded else None)
    save_graph(p.build(rows, entry, threads, advance), Path(out))


def assign_task(vectors: str, plan: ShardPlan, first: int, last: int, batch_bytes: int, out: str) -> None:
    """Write the chunk file of rows `first` to `last`: key shard, value vector id, payload vector."""
    rows = np.load(vectors, mmap_mode="r")[first:last]
    shards, members = plan.assign(rows, first)
    records = Records(shards, (members + first).astype(np.uint32), rows)
    write_chunk(out, records, range(plan.n_shards + 1), rows=members, batch_bytes=batch_bytes)


def build_shard_task(
    chunks: list[str],
    shard: int,
    limit: int,
    p: BuildArguments,
    bounds: list[int],
    buffer_bytes: int,
    batch_bytes: int,
    out: str,
    threads: int,
    advance: Any = None,
) -> None:
    """Build the graph of one shard and write it as a chunk file: key vertex, value shard, payload neighbours.

    A list shorter than R is filled with the vertex itself; `bounds` cut the vertices into tasks of the sort.

    Raises
    ------
    BudgetError
        If the shard is larger than the sample predicted.
    """
    n = count(chunks, shard, shard + 1)
    if n > limit * SHARD_TOLERANCE:
        raise BudgetError(
            f"shard_vectors: shard {shard} holds {n:,} vectors, more than the {limit:,} allowed; "
            "raise --sample-vectors, so that shards are sized better, or --memory"
        )
    _, ids, payload = collect(chunks, shard, shard + 1, buffer_bytes=buffer_bytes)
    if n:
        vectors = p.taken(payload)
        del payload
        entry = medoid(vectors, vectors.mean(axis=0, dtype=np.float64))
        graph = p.build(vectors, entry, threads, advance)
        lists, misses = graph.neighbours, graph.misses
        _name_globally(lists, graph.degrees, ids)
        del vectors, graph
    else:
        lists, misses = np.empty((0, p.max_degree), np.uint32), None
    shards = np.full(n, shard, np.uint32)
    write_chunk(out, Records(ids, shards, lists), bounds, batch_bytes=batch_bytes, notes=notes_of(misses))


def _name_globally(lists: NDArray[np.uint32], degrees: NDArray[np.int32], ids: NDArray[np.uint32]) -> None:
    """Turn local vertices into vector ids, in place; a place without a neighbour gets the vertex's own id."""
    for first in range(0, len(lists), _BLOCK):
        rows = slice(first, first + _BLOCK)
        block = ids[lists[rows]]
        padding = np.arange(block.shape[1]) >= degrees[rows, None]
        block[padding] = np.broadcast_to(ids[rows, None], block.shape)[padding]
        lists[rows] = block


def unite_task(
    vectors: str, chunks: list[str], first: int, last: int, p: BuildArguments, buffer_bytes: int, out: str
) -> None:
    """Unite the lists of vertices `first` to `last`; write an npz file, with how many of them each shard has.

    It has the misses of all shards, too.
    """
    vertices, shards, lists = collect(chunks, first, last, buffer_bytes=buffer_bytes)
    rows = np.load(vectors, mmap_mode="r")
    neighbours, degrees = unite_lists(rows, vertices, lists, first, last, p.max_degree, p.vamana.rule)
    with open(out, "wb") as file:
        sizes, misses = np.bincount(shards), np.array(misses_of(chunks) or (), np.int64)
        np.savez(file, neighbours=neighbours, degrees=degrees, shards=sizes, misses=misses)


def link_task(
    vectors: str, parts: list[str], n: int, max_degree: int, entry: int, list_size: int, out: str, threads: int
) -> None:  # fmt: skip
    """Lay the parts end to end, link what the entry cannot reach, and leave the graph as `save_graph` does."""

    def fill(neighbours: NDArray[np.uint32], degrees: NDArray[np.int32]) -> tuple[list[int], Misses | None]:
        first, sizes, misses = 0, np.zeros(0, np.int64), None
        for part in parts:
            with _opened(part) as arrays:
                lists = arrays["neighbours"]
                neighbours[first : first + len(lists)] = lists
                degrees[first : first + len(lists)] = arrays["degrees"]
                sizes = _sum(sizes, arrays["shards"])
                misses = Misses(*arrays["misses"].tolist()) if len(arrays["misses"]) else None
            first += len(lists)
        shards: list[int] = sizes.tolist()
        return shards, misses

    write_linked(Path(out), vectors, (n, max_degree), entry, list_size, fill)


def write_linked(
    directory: Path, vectors: str, shape: tuple[int, int], entry: int, list_size: int,
    fill: Callable[[NDArray[np.uint32], NDArray[np.int32]], tuple[list[int], Misses | None]],
) -> None:  # fmt: skip
    """Write a graph of `shape`, (n, R), as `save_graph` does, and link what the entry cannot reach.

    Parameters
    ----------
    fill : callable
        Fills the mapped lists and degrees; returns the vectors of each shard, and what codes missed.
    """
    neighbours = create_npy(directory / "neighbours.npy", np.uint32, shape)
    degrees = create_npy(directory / "degrees.npy", np.int32, shape[:1])
    shards, misses = fill(neighbours, degrees)
    rows = np.load(vectors, mmap_mode="r")
    added = connect_unreachable(rows, neighbours, degrees, entry, list_size)
    neighbours.flush()
    degrees.flush()
    write_facts(directory, entry, added, shards, misses)


def _sum(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """Add two arrays of counts, of which either may be the longer."""
    total = np.zeros(max(len(a), len(b)), np.int64)
    total[: len(a)] += a
    total[: len(b)] += b
    return total


@contextmanager
def _opened(part: str) -> Iterator[Any]:
    """Open an npz file; zip's checksums find damage.

    Raises
    ------
    CorruptFile
        If it is not what was written.
    """
    try:
        with np.load(part) as arrays:
            yield arrays
    except (zipfile.BadZipFile, EOFError, KeyError, ValueError) as error:
        raise corrupt(part, "arrays", "what was written", error) from error
