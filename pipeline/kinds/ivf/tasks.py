"""The stages of an IVF index: *centroids*, *assign*, *pack*, *lists* and *emit* (Batch Similarity Search, 4.2).

Vectors are cut into batches by vector id. An external sort by (list, vector id) makes the lists of a batch: *assign*
finds the cell of every vector, *pack* writes them as records (place of the list in the file; vector id; row), and
*lists* sorts the records of a batch into its file. Deviation from Equation 5 of the paper: one set of centroids serves
all batches, so that the lists that a query probes are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.cells import Cells, nearest_cells
from indexmill.builders.cluster.closure import NO_CELL, cell_sizes, closure_cells
from indexmill.builders.cluster.kmeans import fit_centroids
from indexmill.builders.gpu import Gpu, open_gpu
from indexmill.builders.leaders.graph import LeaderGraph
from indexmill.builders.quantize.opq import train_opq
from indexmill.builders.quantize.rabitq import encode_rabitq, random_rotation
from indexmill.builders.quantize.scalar import Scale, fit_scale
from indexmill.formats.chunks.reader import Records
from indexmill.formats.chunks.writer import write_chunk
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.vectors import VECTORS_NAME, RowFormat, write_vectors
from indexmill.formats.ivf.batch import batch_name, longest_first, write_batch
from indexmill.formats.ivf.centroids import CENTROIDS_NAME, CellGraph, Centroids, write_centroids
from indexmill.formats.ivf.rabitq import RabitQ
from indexmill.formats.ivf.rotation import rotated_rows
from indexmill.formats.pagefile.atomic import link_or_copy
from indexmill.pipeline.draws import ROTATION, generator
from indexmill.pipeline.kinds.common.encode import (
    encoded,
    given_codebook,
    load_codebook,
    save_codebook,
    trained,
)
from indexmill.pipeline.kinds.common.ingest import read_ids, read_summary
from indexmill.pipeline.kinds.common.record import seal
from indexmill.pipeline.kinds.common.shared import CODEBOOK_NAME
from indexmill.pipeline.kinds.ivf.parameters import IvfParameters
from indexmill.pipeline.mill.external_sort import sorted_records

CENTROIDS_VERSION = 5
ASSIGN_VERSION = 2
PACK_VERSION = 3
LISTS_VERSION = 2
EMIT_VERSION = 2
#: The centroids rotated, where codes are of rotated vectors.
_ROTATED_NAME = "rotated.npy"
#: Fewest centroids where searching a graph of them is faster than comparing all.
GRAPH_FROM = 16384
#: Rows whose cells are found, or that are encoded, at a time.
_BLOCK = 8192
#: The same on a GPU, which divides them by its own memory; and bytes of float32 sent there to be encoded.
_GPU_BLOCK, GPU_BLOCK_BYTES = 1 << 17, 16 << 20


class Batch(NamedTuple):
    """Vectors `first` to `last`, whose cells are in the files `labels`, in order."""

    number: int
    first: int
    last: int
    labels: tuple[str, ...]


class Fitted(NamedTuple):
    """A fitted codec.

    Attributes
    ----------
    scale : float32 array, shape (2, dim), or None
        For sq8.
    codebook : Codebook or None
        For pq and opq.
    rabitq : RabitQ or None
        For rabitq.
    rotated : float32 array, shape (n_lists, dim), or None
        The centroids, rotated, for rabitq and opq.
    """

    scale: NDArray[np.float32] | None = None
    codebook: Codebook | None = None
    rabitq: RabitQ | None = None
    rotated: NDArray[np.float32] | None = None

    @property
    def rotation(self) -> NDArray[np.float32] | None:
        """The rotation of vectors before they are coded, float32 (dim, dim)."""
        if self.rabitq is not None:
            return self.rabitq.rotation
        return None if self.codebook is None else self.codebook.rotation

    def residuals(
        self, vectors: NDArray[np.float32], centroids: NDArray[np.float32], cells: NDArray[np.uint32]
    ) -> NDArray[np.float32]:
        """Return vectors (m, dim) minus the centroids of their lists `cells` (m,), as they are coded: both rotated."""
        if self.rotation is None or self.rotated is None:
            return vectors - centroids[cells]
        found = rotated_rows(vectors, self.rotation)
        found -= self.rotated[cells]
        return found


def centroids_task(
    ingest: str, sample: str, p: IvfParameters, given: NDArray[np.float32] | None, out: str, threads: int
) -> None:
    """Write ``centroids.npy``; ``scale.npy``, ``codebook.npz`` or ``rabitq.npz`` by codec; ``graph.npz`` of many.

    Where codes are of rotated vectors, ``rotated.npy`` has the centroids rotated. A codebook that stage *ingest* put
    beside the vectors is taken as it is.
    """
    directory, gpu = Path(out), open_gpu(p.compute)
    rows = np.load(Path(sample) / "sample.npy", mmap_mode="r")
    centroids = fit_centroids(rows, p.lists, p.seed, threads, gpu) if given is None else given
    np.save(directory / "centroids.npy", centroids)
    if len(centroids) >= GRAPH_FROM:
        graph = LeaderGraph(centroids, seed=p.seed, threads=threads).graph
        own = np.arange(len(centroids), dtype=np.uint32)[:, None]
        there = np.arange(graph.neighbours.shape[1]) < graph.degrees[:, None]
        neighbours = np.where(there, graph.neighbours, own)
        np.savez(directory / "graph.npz", neighbours=neighbours, entry=graph.entry)
    if p.codec == "sq8":
        summary = read_summary(Path(ingest))
        scale = fit_scale(np.array(summary.minimum), np.array(summary.maximum), 8)
        np.save(directory / "scale.npy", np.stack([scale.minimum, scale.step]))
    if p.codec == "pq":
        book = given_codebook(Path(ingest))
        if book is None:
            book = _trained_codebook(rows, centroids, p, threads, gpu)
        save_product_codec(directory, book, centroids)
    if p.codec == "rabitq":
        rotation = random_rotation(centroids.shape[1], generator(p.seed, ROTATION))
        save_rabitq(directory, RabitQ(p.code_bits, rotation), centroids)


def _trained_codebook(
    rows: NDArray[Any], centroids: NDArray[np.float32], p: IvfParameters, threads: int, gpu: Gpu | None
) -> Codebook:
    """Return a codebook of the residuals of sampled `rows` (m, dim); a rotation is learnt on the processor."""
    cells = nearest_cells(rows, centroids, 1, threads, gpu)[:, 0]
    residuals = np.asarray(rows, np.float32) - centroids[cells]
    if p.pq_rotation == "opq":
        return train_opq(residuals, p.pq_bytes, seed=p.seed, threads=threads)
    return trained(residuals, p.pq_bytes, p.seed, gpu, threads)


def save_product_codec(directory: Path, codebook: Codebook, centroids: NDArray[np.float32]) -> None:
    """Write ``codebook.npz`` and, if it has a rotation, the centroids rotated."""
    save_codebook(codebook, directory)
    if codebook.rotation is not None:
        np.save(directory / _ROTATED_NAME, rotated_rows(centroids, codebook.rotation))


def save_rabitq(directory: Path, rabitq: RabitQ, centroids: NDArray[np.float32]) -> None:
    """Write ``rabitq.npz``, and the centroids rotated."""
    np.savez(directory / "rabitq.npz", bits=rabitq.bits, rotation=rabitq.rotation)
    np.save(directory / _ROTATED_NAME, rotated_rows(centroids, rabitq.rotation))


def load_centroids(directory: Path) -> NDArray[np.float32]:
    """Read the centroids that `centroids_task` wrote."""
    centroids: NDArray[np.float32] = np.load(directory / "centroids.npy")
    return centroids


def _load_codec(directory: Path) -> Fitted:
    """Read the fitted codec; flat lists have none."""
    if (directory / "scale.npy").exists():
        return Fitted(scale=np.load(directory / "scale.npy"))
    there = (directory / _ROTATED_NAME).exists()
    rotated = np.load(directory / _ROTATED_NAME) if there else None
    if (directory / CODEBOOK_NAME).exists():
        return Fitted(codebook=load_codebook(directory), rotated=rotated)
    if (directory / "rabitq.npz").exists():
        with np.load(directory / "rabitq.npz") as arrays:
            return Fitted(rabitq=RabitQ(int(arrays["bits"]), arrays["rotation"]), rotated=rotated)
    return Fitted()


def _load_graph(directory: Path) -> CellGraph | None:
    if not (directory / "graph.npz").exists():
        return None
    with np.load(directory / "graph.npz") as arrays:
        return CellGraph(arrays["neighbours"], int(arrays["entry"]))


def assign_task(vectors: str, centroids: str, p: IvfParameters, first: int, last: int, out: str) -> None:
    """Write the cells of each of the rows `first` to `last` as .npy, uint32 (rows, copies): see `closure_cells`."""
    rows, centres = np.load(vectors, mmap_mode="r")[first:last], load_centroids(Path(centroids))
    gpu = open_gpu(p.compute)
    cells, block = Cells(centres, rows.dtype, gpu), _BLOCK if gpu is None else _GPU_BLOCK
    labels = np.empty((len(rows), p.copies), np.uint32)
    for at in range(0, len(rows), block):
        some = np.asarray(rows[at : at + block])
        if p.copies == 1:
            labels[at : at + block, 0] = cells.nearest(some)
        else:
            labels[at : at + block] = closure_cells(some, centres, p.copies, p.closure, gpu)
    with open(out, "wb") as file:
        np.save(file, labels)


def list_sizes(batch: Batch, n_lists: int) -> NDArray[np.int64]:
    """Return the rows of each list of a batch."""
    sizes = np.zeros(n_lists, np.int64)
    for labels in batch.labels:
        sizes += cell_sizes(np.load(labels, mmap_mode="r"), n_lists)
    return sizes


def pack_task(
    vectors: str, centroids: str, compute: str, batch: Batch, labels: str, first: int, last: int, batch_bytes: int,
    out: str,
) -> None:  # fmt: skip
    """Write rows `first` to `last` of a batch as a chunk file: key place of the list, value vector id, payload row.

    A vector that lies in several lists has a record for each.
    """
    directory = Path(centroids)
    centres = load_centroids(directory)
    order = longest_first(list_sizes(batch, len(centres)))
    places = np.empty(len(order), np.uint32)
    places[order] = np.arange(len(order), dtype=np.uint32)
    cells = np.load(labels)
    vector, copy = np.nonzero(cells != NO_CELL)
    cells = cells[vector, copy]
    stored = np.load(vectors, mmap_mode="r")[first:last]
    copied = stored if len(cells) == len(stored) else stored[vector]
    rows = encoded_rows(copied, centres, cells, _load_codec(directory), open_gpu(compute))
    records = Records(places[cells], (first + vector).astype(np.uint32), rows)
    write_chunk(out, records, [0, len(order)], batch_bytes=batch_bytes)


def encoded_rows(
    vectors: NDArray[Any],
    centroids: NDArray[np.float32],
    cells: NDArray[np.uint32],
    fitted: Fitted,
    gpu: Gpu | None,
) -> NDArray[np.uint8]:
    """Return the rows of lists, uint8 (m, row_bytes)."""
    scale, codebook, rabitq, _ = fitted
    if scale is None and codebook is None and rabitq is None:
        return np.ascontiguousarray(vectors).view(np.uint8).reshape(len(vectors), -1)
    parts = []
    on_gpu = gpu is not None and codebook is not None
    block = max(_BLOCK, GPU_BLOCK_BYTES // (4 * vectors.shape[1])) if on_gpu else _BLOCK
    for at in range(0, len(vectors), block):
        some = np.asarray(vectors[at : at + block], np.float32)
        if scale is not None:
            parts.append(Scale(scale[0], scale[1], 8).encode(some))
            continue
        residuals = fitted.residuals(some, centroids, cells[at : at + block])
        if rabitq is not None:
            parts.append(encode_rabitq(residuals, rabitq.bits))
        elif codebook is not None:
            parts.append(encoded(residuals, codebook.of_rotated(), gpu))
    return np.concatenate(parts)


def lists_task(
    batch: Batch,
    n_lists: int,
    row_bytes: int,
    has_copies: bool,
    chunks: list[str],
    buffer_bytes: int,
    out: str,
) -> None:
    """Sort the chunk files of a batch into its file."""
    n_vectors = batch.last - batch.first if has_copies else None

    def pieces() -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint8]]]:
        for _, ids, rows in sorted_records(chunks, 0, n_lists, buffer_bytes=buffer_bytes):
            yield ids, rows

    write_batch(out, batch.number, batch.first, list_sizes(batch, n_lists), row_bytes, pieces(), n_vectors)


def emit_task(
    ingest: str, centroids: str, lists: list[str], sizes: list[int], p: IvfParameters, out: str, threads: int
) -> None:
    """Put all files of an index together except its manifest, stamped with the build id.

    Parameters
    ----------
    lists : list of str
        The file of each batch.
    sizes : list of int
        Vectors of each batch.
    """
    directory, summary = Path(out), read_summary(Path(ingest))
    stored = np.load(Path(ingest) / "vectors.npy", mmap_mode="r")
    scale, codebook, rabitq, rotated = _load_codec(Path(centroids))
    shared = Centroids(
        load_centroids(Path(centroids)) if rotated is None else rotated, str(stored.dtype), p.metric,
        summary.max_norm, len(stored), len(lists), p.list_codec, scale, codebook, p.copies,
        _load_graph(Path(centroids)), rabitq,
    )  # fmt: skip
    write_centroids(directory / CENTROIDS_NAME, shared)
    for number, file in enumerate(lists):
        link_or_copy(file, directory / batch_name(number))
    write_ids(directory / "ids.imx", np.arange(len(stored), dtype=np.uint32), read_ids(Path(ingest)))
    if p.keep_vectors:
        form = RowFormat(shared.dim, shared.dtype)
        write_vectors(directory / VECTORS_NAME, form, len(stored), p.metric, stored, summary.max_norm)
    facts = {"lists": shared.n_lists, "codec": shared.codec, "row_bytes": shared.row_bytes, "batches": sizes}
    seal(directory, {"ivf": facts}, Path(ingest))
