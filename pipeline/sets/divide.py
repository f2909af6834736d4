"""Dividing an input into parts of near-equal size: a file of vectors, ids and metadata for each.

A vector belongs to a cell of a power diagram (`builders.cluster.balanced`) that is fitted to a sample. Then the input
is read in one pass, a batch at a time; each batch goes to the files of its parts, so memory does not grow with the
input. Only user ids are held, to check that they are unique. The range of all vectors is found on the way, and so is
the margin.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.builders.cluster.balanced import balanced_centroids
from indexmill.builders.nearest.products import nearest_points, origin_of
from indexmill.formats.errors import BudgetError, InputError
from indexmill.formats.index.setmanifest import Margin, part_name
from indexmill.formats.sources.joined import VectorBatch, VectorSource
from indexmill.formats.sources.validate import check_batch, check_unique_ids
from indexmill.pipeline.kinds.common.cluster import sampled
from indexmill.pipeline.kinds.common.metric import added_component, is_usable, unit
from indexmill.pipeline.kinds.common.shared import Range
from indexmill.pipeline.mill.descriptors import allow_open
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.sets.margin import QUERIES, NeighbourParts, margin_bytes
from indexmill.reader.router import Router

VERSION = 3
#: Vectors that the router is fitted to.
SAMPLE = 32768
#: Columns of a part's file; metadata columns keep their names.
VECTOR_COLUMN, ID_COLUMN = "indexmill.vector", "indexmill.id"
#: Files of a division that have the router, the range of all vectors, and the margin.
ROUTER_NAME, RANGE_NAME, MARGIN_NAME = "router.npz", "range.json", "margin.json"


class Sample(NamedTuple):
    """Vectors that the router is fitted to, as they are compared, and their rows, ascending."""

    rows: NDArray[np.int64]
    vectors: NDArray[Any]


def divide(
    source: VectorSource, metric: str, parts: int, seed: int, memory: int, directory: Path, progress: Progress,
    threads: int = 1, asked: NDArray[Any] | None = None,
) -> None:  # fmt: skip
    """Write the router, the range of all vectors, the margin, and ``part-NNN.arrow`` for each part, into a directory.

    Rows of a part are in the order of the input. Ids are the user ids, or positions in the input (int64). Bytes do not
    depend on `threads`.

    Parameters
    ----------
    memory : int
        Bytes that the sample and what fits the router to it may take, and then what finds neighbours.
    asked : array, shape (n_queries, dim), optional
        Queries by which the margin is chosen, as they are compared; by default some of the vectors. Under inner product
        there is no margin.

    Raises
    ------
    InputError
        If there are fewer vectors than parts, a part would be empty, a row cannot be used, or a user id repeats.
    BudgetError
        If that does not fit `memory`.
    """
    check_divisible(source.n_vectors, parts)
    with threadpool_limits(1):  # as tasks run
        sample = _sample(source, metric, parts, seed, memory, threads)
        centroids, weights = balanced_centroids(sample.vectors, parts, seed, threads)
        if len(centroids) < parts:
            raise InputError(
                f"parts: vectors are so alike that they fall into {len(centroids):,} parts of near-equal size, not "
                f"{parts:,}; ask for fewer parts"
            )
        origin = origin_of(centroids, source.dtype.kind in "iu")
        neighbours = None if metric == "ip" else _neighbours(sample, origin, seed, asked, threads)
        del sample
        router = centroids, weights
        counts, extent = _write_parts(source, metric, router, neighbours, directory, progress, threads)
        if not counts.all():
            raise InputError(
                f"parts: {part_name(int(counts.argmin()))} would be empty; ask for fewer than {parts:,} parts"
            )
        margin = None if neighbours is None else neighbours.margin(Router(centroids, weights, metric))
    np.savez(directory / ROUTER_NAME, centroids=centroids, weights=weights, counts=counts)
    (directory / RANGE_NAME).write_text(json.dumps(extent))
    (directory / MARGIN_NAME).write_text(json.dumps(None if margin is None else asdict(margin)))


def check_divisible(n: int, parts: int) -> None:
    """Raise `InputError` unless n vectors can make so many parts."""
    if n < parts:
        raise InputError(f"parts: {n:,} vectors cannot make {parts:,} parts; ask for at most {n:,}")


def router_bytes(source: VectorSource, metric: str, parts: int, memory: int, threads: int) -> int:
    """Return the memory of fitting the router, and of what finds neighbours, whichever is larger.

    Raises
    ------
    BudgetError
        If that does not fit `memory`.
    """
    of_margin = 0 if metric == "ip" else margin_bytes(source.dim, threads)
    needed = max(min(SAMPLE, source.n_vectors) * (12 * source.dim + 4 * parts), of_margin)
    if needed > memory:
        raise BudgetError(
            f"memory: the router of a set needs {needed:,} bytes, got {memory:,}; raise --memory"
        )
    return needed


def load_router(directory: Path) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """Return centroids (parts, dim), weights (parts,) and vectors of each part that `divide` wrote."""
    with np.load(directory / ROUTER_NAME) as arrays:
        return arrays["centroids"], arrays["weights"], arrays["counts"]


def load_range(directory: Path) -> Range:
    """Return the range of all vectors that `divide` found."""
    return Range(*json.loads((directory / RANGE_NAME).read_text()))


def load_margin(directory: Path) -> Margin | None:
    """Return the margin that `divide` chose; None under inner product."""
    found = json.loads((directory / MARGIN_NAME).read_text())
    return None if found is None else Margin(**found)


def part_file(directory: Path, number: int) -> Path:
    """Return the file of a part that `divide` wrote."""
    return directory / f"{part_name(number)}.arrow"


def _sample(source: VectorSource, metric: str, parts: int, seed: int, memory: int, threads: int) -> Sample:
    """Return the vectors that the router is fitted to."""
    rows = sampled(source.n_vectors, SAMPLE, seed)
    router_bytes(source, metric, parts, memory, threads)
    vectors = source.read(rows)
    fits = is_usable(vectors, metric)  # the pass over all rows names a bad one
    rows, vectors = rows[fits], vectors[fits]
    if len(vectors) == 0:
        raise InputError(
            f"{source.paths[0]}: no row of the sample can be used; expected finite numbers, not all zero"
        )
    return Sample(rows, unit(vectors) if metric == "cosine" else vectors)


def _neighbours(
    sample: Sample, origin: NDArray[np.float32], seed: int, asked: NDArray[Any] | None, threads: int
) -> NeighbourParts:
    """Return what finds the parts of the neighbours of `asked`, by default of some vectors of the sample."""
    if asked is not None:
        return NeighbourParts(asked, origin, threads=threads)
    drawn = sampled(len(sample.rows), QUERIES, seed)
    return NeighbourParts(sample.vectors[drawn], origin, sample.rows[drawn], threads)


def _write_parts(
    source: VectorSource, metric: str, router: tuple[NDArray[np.float32], NDArray[np.float32]],
    neighbours: NeighbourParts | None, directory: Path, progress: Progress, threads: int,
) -> tuple[NDArray[np.int64], Range]:  # fmt: skip
    """Write the rows of every part, given centroids and weights; return how many each has, and the range of all."""
    centroids, weights = router
    allow_open(len(centroids))
    counts, extent = np.zeros(len(centroids), np.int64), _Extent(source.dim, metric)
    ids: list[pa.Array] = []
    origins: list[tuple[int, str, int]] = []
    with ExitStack() as stack:
        writers: list[Any] = []
        for batch in source.batches():
            check_batch(batch, metric)
            table = as_table(batch)
            if not writers:
                writers = [
                    stack.enter_context(pa.ipc.new_file(str(part_file(directory, number)), table.schema))
                    for number in range(len(centroids))
                ]
            vectors = unit(batch.vectors) if metric == "cosine" else batch.vectors
            extent.add(vectors)
            cells = nearest_points(vectors, centroids, 1, threads, weights=weights)[:, 0]
            if neighbours is not None:
                neighbours.add(batch.start, vectors, cells)
            for number in np.unique(cells):
                rows = np.flatnonzero(cells == number)
                counts[number] += len(rows)
                writers[number].write_batch(table.take(pa.array(rows)))
            if batch.ids is not None:
                ids.append(batch.ids)
                origins.append((batch.start, batch.path, batch.first_row))
            progress.advance(len(batch.vectors))
    if ids:
        check_unique_ids(pa.chunked_array(ids), origins)
    return counts, extent.range()


class _Extent:
    """The range of vectors that are added batch by batch, as *ingest* stores them."""

    def __init__(self, dim: int, metric: str) -> None:
        self._metric = metric
        self._low, self._high = np.full(dim, np.inf), np.full(dim, -np.inf)
        self._least, self._largest = np.inf, 0.0  # squared norms

    def add(self, vectors: NDArray[Any]) -> None:
        """Add vectors (m, dim), under cosine of unit length."""
        self._low = np.minimum(self._low, vectors.min(axis=0))
        self._high = np.maximum(self._high, vectors.max(axis=0))
        if self._metric == "ip":
            stored = np.asarray(vectors, np.float32)
            squares = np.einsum("ij,ij->i", stored, stored, dtype=np.float64)
            self._least, self._largest = min(self._least, squares.min()), max(self._largest, squares.max())

    def range(self) -> Range:
        """Return the range of all that were added, under inner product with the added component."""
        low, high = self._low.tolist(), self._high.tolist()
        if self._metric == "ip":
            norms = np.array([self._largest, self._least])
            least, largest = added_component(norms, self._largest).tolist()
            low, high = [*low, least], [*high, largest]
        return Range(low, high, float(self._largest))


def as_table(batch: VectorBatch) -> pa.RecordBatch:
    """Return vectors, ids and metadata of a batch."""
    n, dim = batch.vectors.shape
    flat = pa.array(np.ascontiguousarray(batch.vectors).ravel())
    ids = (
        pa.array(np.arange(batch.start, batch.start + n, dtype=np.int64)) if batch.ids is None else batch.ids
    )
    columns, names = [pa.FixedSizeListArray.from_arrays(flat, dim), ids], [VECTOR_COLUMN, ID_COLUMN]
    if batch.metadata is not None:
        columns += [_plain(column) for column in batch.metadata.columns]
        names += batch.metadata.schema.names
    return pa.RecordBatch.from_arrays(columns, names=names)


def _plain(column: pa.Array) -> pa.Array:
    """Return a column without a dictionary: an Arrow file holds one dictionary of a column, and batches may differ."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
