"""Indexes of which all that a search reads lies far behind in a file: before it are holes.

Each has a few vectors in its last slots; all others are zero, and no search comes to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tests.support.sizes.sparse import holes, list_unsealed, stretched, write_zeros, zero_rows

from indexmill.builders.lsh.pack import BlockPacker
from indexmill.formats.graph.codes import Codebook, write_codes
from indexmill.formats.graph.entries import EntryVertices, write_entries
from indexmill.formats.graph.file import write_graph
from indexmill.formats.graph.nodes import NodeBlock, NodeFormat, pack_nodes
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.vectors import VECTORS_NAME, RowFormat, write_vectors
from indexmill.formats.ivf.batch import batch_name, write_batch
from indexmill.formats.ivf.centroids import CENTROIDS_NAME, Centroids, write_centroids
from indexmill.formats.lsh.blocks import seal_blocks
from indexmill.formats.lsh.buckets import writing_buckets
from indexmill.formats.lsh.functions import HashFunctions, SearchDefaults, write_functions
from indexmill.formats.lsh.names import BASE
from indexmill.formats.lsh.shape import LshShape, pointers_to
from indexmill.formats.lsh.tables import write_tables
from indexmill.formats.pagefile.frame import PAGE_BYTES

#: Vectors that are there; all are neighbours of each other in a graph, and share a list.
N_FAR = 60
#: Most neighbours of a node, and the bytes of a code.
R, CODE_BYTES = N_FAR - 1, 4


class Far(NamedTuple):
    """An index, the number of its vectors, and the last of them, float32 (N_FAR, dim)."""

    path: Path
    n: int
    vectors: NDArray[np.float32]

    def nearest(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return vector ids and squared distances of the vectors nearest to each query, (n_queries, k)."""
        distances = ((queries[:, None].astype(np.float64) - self.vectors) ** 2).sum(axis=2)
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        return self.n - N_FAR + order, np.take_along_axis(distances, order, axis=1)


def far_vectors(dim: int) -> NDArray[np.float32]:
    """Whole numbers, so that distances are exact, which depend on four components, so that they differ."""
    rng = np.random.default_rng(5)
    vectors = np.zeros((N_FAR, dim), np.float32)
    vectors[:, :4] = rng.integers(1, 30, (N_FAR, 4))
    return vectors


def far_nodes(n: int, dim: int, code_bytes: int = 0) -> NodeBlock:
    """Nodes of the last slots, each the neighbour of all others."""
    others = np.stack([np.delete(np.arange(N_FAR), i) for i in range(N_FAR)])
    codes = np.zeros((N_FAR, R, code_bytes), np.uint8) if code_bytes else None
    return NodeBlock(far_vectors(dim), (n - N_FAR + others).astype(np.uint32), np.full(N_FAR, R), codes)


def graph_parts(path: Path, n: int, dim: int) -> None:
    """Write what belongs to a graph of n vertices besides graph.imx; all codes are equal."""
    chunks = np.linspace(0, dim, CODE_BYTES + 1).astype(np.uint32)
    write_codes(path / "codes.imx", Codebook(np.zeros((2, dim), np.float32), chunks), n, code_blocks(n))
    entries = EntryVertices(n - 1, np.zeros((1, dim), np.float32), np.array([n - 2], np.uint32))
    write_entries(path / "entries.imx", entries, n)
    write_ids(path / "ids.imx", np.arange(n, dtype=np.uint32), None)


def code_blocks(n: int) -> list[NDArray[np.uint8]]:
    return [np.zeros((n, CODE_BYTES), np.uint8)]


def far_graph(path: Path, dim: int, pages_before: int, code_bytes: int = 0) -> Far:
    """Write a graph whose nodes begin so many pages behind the first one."""
    node = NodeFormat(dim, "float32", R, code_bytes)
    n = pages_before // node.pages_per_node * node.nodes_per_group + N_FAR
    near, far = far_nodes(N_FAR, dim, code_bytes), far_nodes(n, dim, code_bytes)
    path.mkdir()
    graph_parts(path, n, dim)
    write_graph(path / "short.imx", node, N_FAR, "l2", [near])
    pages = pack_nodes(node, far, n - N_FAR).tobytes()
    hole = pages_before // node.pages_per_node * node.group_bytes
    stretched(path / "short.imx", path / "graph.imx", "nodes", hole, {"n_vertices": n}, pages)
    (path / "short.imx").unlink()
    list_unsealed(path, "graph", n, dim, {"codes_on_page": code_bytes > 0}, layout={}, graph={})
    return Far(path, n, far.vectors)


def far_lists(path: Path, dim: int, pages_before: int) -> Far:
    """Write inverted lists of one batch: a list of so many pages of zeros, and behind it a short one."""
    n = -(-pages_before * PAGE_BYTES // (4 * dim)) + N_FAR
    vectors, sizes = far_vectors(dim), np.array([N_FAR, n - N_FAR])
    centroids = np.stack([vectors.mean(axis=0), np.full(dim, -1000, np.float32)])
    path.mkdir()
    write_centroids(path / CENTROIDS_NAME, Centroids(centroids, "float32", "l2", 0.0, n, 1, "flat"))

    def pieces() -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint8]]]:
        done = 0
        for rows in zero_rows(n - N_FAR, 4 * dim):
            yield np.arange(done, done + len(rows), dtype=np.uint32), rows
            done += len(rows)
        yield np.arange(done, n, dtype=np.uint32), vectors.view(np.uint8).reshape(N_FAR, -1)

    with holes():
        write_batch(path / batch_name(0), 0, 0, sizes, 4 * dim, pieces())
    write_ids(path / "ids.imx", np.arange(n, dtype=np.uint32), None)
    list_unsealed(path, "ivf", n, dim, ivf={})
    return Far(path, n, vectors)


def far_tables(path: Path, block_bytes: int, blocks_before: int, dim: int = 1024) -> Far:
    """Write hash tables whose chains begin behind so many blocks; vectors lie behind 4 GiB of others."""
    n = (1 << 20) + N_FAR
    shape = LshShape(n, n_tables=8, n_radii=3, hash_bits=1, block_bytes=block_bytes)
    rng = np.random.default_rng(6)
    functions = HashFunctions(
        projections=rng.normal(size=(shape.n_tables, 2, dim)).astype(np.float32),
        offsets=rng.uniform(0, 4, (shape.n_radii, shape.n_tables, 2)).astype(np.float32),
        multipliers=rng.integers(2**62, size=(shape.n_tables, 2)).astype(np.uint64) | np.uint64(1),
        radii=np.array([1.0, 8.0, 1000.0]),
        width=4.0,
    )
    vectors = far_vectors(dim)
    path.mkdir()
    write_functions(path / "functions.imx", shape, functions, SearchDefaults(2.0, N_FAR, 0))
    _write_tables(path, shape, functions, vectors, blocks_before)
    write_vectors(path / "short.imx", RowFormat(dim, "float32"), N_FAR, "l2", vectors)
    stretched(path / "short.imx", path / VECTORS_NAME, "vectors", (n - N_FAR) * 4 * dim, {"n_vectors": n})
    (path / "short.imx").unlink()
    write_ids(path / "ids.imx", np.arange(n, dtype=np.uint32), None)
    list_unsealed(path, "lsh", n, dim, lsh={})
    return Far(path, n, vectors)


def _write_tables(
    path: Path, shape: LshShape, functions: HashFunctions, vectors: NDArray[np.float32], blocks_before: int
) -> None:
    """Write tables and buckets of the last slots alone."""
    width = shape.buckets_per_table
    pointers = np.zeros((shape.n_radii, shape.n_tables, width), np.uint64)
    with holes(), writing_buckets(path / BASE.buckets, shape) as file:
        write_zeros(file, blocks_before * shape.block_bytes)
        for radius, table in np.ndindex(shape.n_radii, shape.n_tables):
            cells = vectors @ functions.projections[table].T / np.float32(functions.radii[radius])
            whole = np.floor((cells + functions.offsets[radius, table]) / functions.width).astype(np.int64)
            hashes = (functions.multipliers[table] * whole.view(np.uint64)).sum(axis=1) >> np.uint64(32)
            buckets, rest = hashes % np.uint64(width), hashes >> np.uint64(shape.hash_bits)
            prints = rest & np.uint64((1 << shape.fingerprint_bits) - 1)
            slots = np.arange(shape.n_vectors - N_FAR, shape.n_vectors)
            order = np.lexsort([slots, prints, buckets])
            packer = BlockPacker(shape.block_bytes, shape.id_bits, 0, width)
            columns = (values[order].astype(np.uint32) for values in (buckets, prints, slots))
            blocks = np.concatenate([packer.add(*columns), packer.finish()])
            lengths = -(-np.bincount(buckets.astype(np.int64), minlength=width) // shape.capacity)
            ends, first = np.cumsum(lengths), file.n_blocks
            pointers[radius, table] = pointers_to(first + ends - lengths, lengths, shape.block_bytes)
            left = np.repeat(ends, lengths) - np.arange(len(blocks)) - 1
            entry = (radius * shape.n_tables + table) * width
            owners = np.repeat(entry + np.arange(width, dtype=np.uint64), lengths)
            seal_blocks(
                blocks, pointers_to(first + np.arange(len(blocks)) + 1, left, shape.block_bytes), owners
            )
            file.write(blocks)
            file.longest_chain = max(file.longest_chain, int(lengths.max()))
    write_tables(path / BASE.tables, shape, pointers)
