"""Stages *assign*, *build* and *merge*: vectors to shards, a Vamana graph of each, one graph of all.

A build that fits the budget is one shard: assign and merge have nothing to do. Otherwise each vector goes to
its two nearest shards by sort-merge on shard id, every shard's graph becomes records (vertex, neighbours),
and a second sort-merge on vertex id unites the lists of a vertex, pruned back to R as DiskANN's merged build
would (section 3.3 of its paper) except that the prune is robust, not random.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.connect import connect_unreachable
from indexmill.builders.distances import comparable
from indexmill.builders.entries import medoid
from indexmill.builders.nearest import nearest_points
from indexmill.builders.unite import unite_lists
from indexmill.builders.vamana import Graph, VamanaParameters, build_vamana, sort_lists
from indexmill.formats.errors import BudgetError
from indexmill.pipeline.cluster import FANOUT
from indexmill.pipeline.sortmerge import even_bounds, merge_partition, write_chunk

ASSIGN_VERSION = 1
BUILD_VERSION = 1
MERGE_VERSION = 1
#: Vectors of a map task and vertices of a merge task, in bytes of vectors; a task peaks at about four times that.
TASK_BYTES = 64 << 20
#: A shard may exceed its size by this share: the sample that sized it is not the whole.
_SHARD_TOLERANCE = 1.15


class GraphParameters(NamedTuple):
    """What a task needs to build a graph."""

    max_degree: int
    build_list_size: int
    alpha: float
    seed: int

    @property
    def vamana(self) -> VamanaParameters:
        """The builder's part."""
        return VamanaParameters(self.max_degree, self.build_list_size, self.alpha)


def save_graph(graph: Graph, out: Path) -> None:
    """Write ``neighbours.npy``, ``degrees.npy`` and ``graph.json`` into `out`."""
    np.save(out / "neighbours.npy", graph.neighbours)
    np.save(out / "degrees.npy", graph.degrees)
    (out / "graph.json").write_text(json.dumps({"entry": graph.entry}))


def load_graph(directory: Path) -> Graph:
    """Map what `save_graph` wrote."""
    entry = json.loads((directory / "graph.json").read_text())["entry"]
    return Graph(
        np.load(directory / "neighbours.npy", mmap_mode="r"),
        np.load(directory / "degrees.npy", mmap_mode="r"),
        entry,
    )


def build_task(
    vectors: str, entry: int, p: GraphParameters, out: str, threads: int, advance: Any = None
) -> None:
    """Build the graph of all vectors in one piece."""
    rows = comparable(np.load(vectors))
    report = {} if advance is None else {"advance": advance}
    save_graph(build_vamana(rows, entry, p.vamana, seed=p.seed, threads=threads, **report), Path(out))


def assign_task(vectors: str, centroids: str, first: int, last: int, out: str) -> None:
    """Write the chunk file of rows `first` to `last`: key shard, value vector id, payload vector."""
    rows = np.load(vectors, mmap_mode="r")[first:last]
    points = np.load(centroids)
    shards = nearest_points(rows, points, FANOUT)
    ids = np.repeat(np.arange(first, last, dtype=np.uint32), FANOUT)
    payload = np.repeat(rows, FANOUT, axis=0)
    write_chunk(Path(out), shards.ravel(), ids, payload, range(len(points) + 1))


def build_shard_task(
    chunks: list[str],
    shard: int,
    dtype: str,
    shard_vectors: int,
    p: GraphParameters,
    bounds: list[int],
    out: str,
    threads: int,
) -> int:
    """Build the graph of one shard and write it as a chunk file: key vertex, value shard, payload neighbours.

    A list shorter than R is filled with the vertex itself; `bounds` cut the vertices into merge tasks. Returns
    the number of vectors.

    Raises
    ------
    BudgetError
        If the shard is much larger than the sample foretold.
    """
    _, ids, payload = merge_partition([Path(c) for c in chunks], shard, np.dtype(dtype))
    if len(ids) > shard_vectors * _SHARD_TOLERANCE:
        raise BudgetError(
            f"shard_vectors: shard {shard} holds {len(ids):,} vectors, more than the {shard_vectors:,} allowed; "
            "raise --sample-vectors, so that shards are sized better, or --memory"
        )
    local = np.empty((0, p.max_degree), np.uint32)
    if len(ids):
        vectors = comparable(payload)
        entry = medoid(vectors, vectors.mean(axis=0, dtype=np.float64))
        graph = build_vamana(vectors, entry, p.vamana, seed=p.seed, threads=threads)
        local = ids[graph.neighbours]
        padding = np.arange(p.max_degree) >= graph.degrees[:, None]
        local[padding] = np.broadcast_to(ids[:, None], local.shape)[padding]
    shards = np.full(len(ids), shard, np.uint32)
    write_chunk(Path(out), ids, shards, local, bounds)
    return len(ids)


def task_bounds(n: int, dim: int, dtype: np.dtype[np.generic]) -> list[int]:
    """Return the bounds that cut `n` vectors into tasks of about `TASK_BYTES`."""
    return even_bounds(n, max(1, -(-n * dim * dtype.itemsize // TASK_BYTES)))


def merge_task(
    vectors: str, chunks: list[str], part: int, bounds: list[int], p: GraphParameters, out: str
) -> None:
    """Unite the lists of one range of vertices, loading only the vectors they name; write an npz file."""
    first, last = bounds[part], bounds[part + 1]
    vertices, _, lists = merge_partition([Path(c) for c in chunks], part, np.dtype(np.uint32))
    named = np.unique(np.concatenate([np.arange(first, last, dtype=np.uint32), lists.ravel()]))
    rows = comparable(np.load(vectors, mmap_mode="r")[named])
    start = int(np.searchsorted(named, first))  # the range itself is named, so it is contiguous there
    united, degrees = unite_lists(
        rows,
        np.searchsorted(named, vertices).astype(np.uint32),
        np.searchsorted(named, lists).astype(np.uint32),
        start,
        start + last - first,
        p.max_degree,
        p.alpha,
    )
    neighbours = named[united]
    neighbours[np.arange(p.max_degree) >= degrees[:, None]] = 0
    with open(out, "wb") as file:
        np.savez(file, neighbours=neighbours, degrees=degrees)


def finish_merge_task(
    vectors: str, parts: list[str], entry: int, list_size: int, out: str, threads: int
) -> None:
    """Join the parts, link what the entry cannot reach, and write the graph."""
    rows = comparable(np.load(vectors, mmap_mode="r"))
    loaded = [np.load(part) for part in parts]
    neighbours: NDArray[np.uint32] = np.concatenate([part["neighbours"] for part in loaded])
    degrees: NDArray[np.int32] = np.concatenate([part["degrees"] for part in loaded])
    connect_unreachable(rows, neighbours, degrees, entry, list_size)
    sort_lists(rows, neighbours, degrees, threads)
    save_graph(Graph(neighbours, degrees, entry), Path(out))
