"""Seconds of an IVF build: its tasks are tried on the first rows of the input."""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.builders.cluster.cells import nearest_cells
from indexmill.builders.cluster.closure import NO_CELL
from indexmill.builders.cluster.kmeans import MovedCentroids
from indexmill.builders.leaders.graph import LeaderGraph
from indexmill.builders.quantize.opq import DECOMPOSITIONS
from indexmill.builders.quantize.pq import TRAINING_VECTORS, encode_pq, train_pq
from indexmill.builders.quantize.rabitq import random_rotation
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.ivf.rabitq import RabitQ
from indexmill.formats.sources.source import VectorSource
from indexmill.formats.sources.validate import check_batch
from indexmill.pipeline.kinds.common.certify import QUERIES
from indexmill.pipeline.kinds.common.memory import lanes
from indexmill.pipeline.kinds.common.seconds import (
    HASH_SECONDS,
    TRAINING_ROUNDS,
    TRIAL_PREFIX,
    exact_seconds,
    kmeans_seconds,
    write_seconds,
)
from indexmill.pipeline.kinds.ivf import tasks
from indexmill.pipeline.kinds.ivf.shape import IvfShape
from indexmill.pipeline.kinds.ivf.tasks import Batch
from indexmill.pipeline.mill.clocks import fastest

#: Rows of the trial, and their bytes at most; seconds after which no task is repeated.
_ROWS, _BYTES, _SECONDS = 16_384, 32 << 20, 6.0
#: Centroids that the graph over them is tried with at most.
_MOST_CENTROIDS = 1024
#: Queries of a certificate that are tried.
_ASKED = 64
_CHUNK_BATCH, _BUFFER = 256 << 10, 32 << 20
#: Components of the matrix whose decomposition is tried, at most.
_DECOMPOSED = 256


class Rates(NamedTuple):
    """Seconds on one thread.

    Of a vector in *ingest*, *assign*, *pack* and *lists*; of training; of a vector that is compared with the queries of
    a certificate, and of ranking lists for one of them; of a byte written; of training a codebook; of decomposing
    matrices for its rotation, which one thread does, however many there are.
    """

    reading: float
    assigning: float
    packing: float
    sorting: float
    training: float
    comparing: float
    ranking: float
    writing: float
    coding: float = 0.0
    decomposing: float = 0.0


def timed_tasks(source: VectorSource, shape: IvfShape, directory: Path) -> Rates:
    """Time the tasks of a build on the first rows.

    Parameters
    ----------
    directory : Path
        Where files are written, and removed.

    Raises
    ------
    InputError
        If one of the rows is unusable, naming it.
    """
    with threadpool_limits(1), tempfile.TemporaryDirectory(dir=directory, prefix=TRIAL_PREFIX) as work:
        return _tried(source, shape, Path(work), write_seconds(directory))


def stage_seconds(
    rates: Rates, shape: IvfShape, memory: int, workers: int, files: dict[str, int]
) -> dict[str, float]:
    """Return the predicted seconds of every stage in `files`, whose bytes it writes."""
    cuts, n = shape.cuts(memory), shape.n
    at_once = lanes(workers, sum(len(cut) - 1 for cut in cuts))
    work_seconds = {
        "ingest": n * rates.reading,
        "centroids": (rates.training + rates.coding) / workers + rates.decomposing,
        "assign": n * rates.assigning / at_once,
        "pack": n * rates.packing / at_once,
        "lists": n * rates.sorting / lanes(workers, len(cuts)),
        "emit": (files["lists"] + files["emit"]) * HASH_SECONDS,
        "certify": (n * rates.comparing + QUERIES * rates.ranking) / workers,
    }
    return {name: work_seconds.get(name, 0.0) + held * rates.writing for name, held in files.items()}


def _tried(source: VectorSource, shape: IvfShape, work: Path, writing: float) -> Rates:
    """Run the tasks on the first rows, each once to compile it."""
    p = shape.parameters
    begun = time.perf_counter()
    batch = next(iter(source.batches(min(_ROWS, max(512, _BYTES // (4 * source.dim))))))
    check_batch(batch, p.metric)
    reading = (time.perf_counter() - begun) / len(batch.vectors)
    rows = np.zeros((len(batch.vectors), shape.dim), shape.dtype)
    rows[:, : batch.vectors.shape[1]] = batch.vectors
    wide = rows.astype(np.float32)
    centroids = _stand_ins(wide, p.lists)
    _write_inputs(work, rows, wide, centroids, shape)
    few, labels, chunk, lists = (str(work / name) for name in ("few", "labels.npy", "0.chunk", "lists.imx"))
    mine, n = Batch(0, 0, len(rows), (labels,)), len(rows)
    n_few = max(1, p.lists * n // max(shape.n, n))  # lists as long as those of the index
    _write_inputs(Path(few), rows, wide, centroids[:n_few], shape)
    vectors, deadline = str(work / "vectors.npy"), time.perf_counter() + _SECONDS

    def assign() -> None:
        tasks.assign_task(vectors, str(work), p, 0, n, labels)

    def pack() -> None:
        tasks.pack_task(vectors, few, p.compute, mine, labels, 0, n, _CHUNK_BATCH, chunk)

    def sort() -> None:
        Path(lists).unlink(missing_ok=True)
        tasks.lists_task(mine, n_few, shape.list_row_bytes, False, [chunk], _BUFFER, lists)

    assign()
    assigning = fastest(assign, deadline) / n
    cells = np.load(labels)
    copies = np.count_nonzero(cells != NO_CELL) / n
    np.save(labels, cells[:, :1] % np.uint32(n_few))
    pack()
    packing = copies * fastest(pack, deadline) / n
    sort()
    sorting = copies * fastest(sort, deadline) / n
    asked = wide[: min(_ASKED, n)]
    comparing = exact_seconds(rows, deadline)
    nearest_cells(asked, centroids, len(centroids))
    ranking = fastest(lambda: nearest_cells(asked, centroids, len(centroids)), deadline) / len(asked)
    training = _training_seconds(wide, shape, deadline)
    coding = _coding_seconds(wide, centroids, shape, deadline)
    decomposing = _decomposing_seconds(shape.dim, deadline) if p.pq_rotation == "opq" else 0.0
    return Rates(
        reading, assigning, packing, sorting, training, comparing, ranking, writing, coding, decomposing
    )


def _stand_ins(rows: NDArray[np.float32], lists: int) -> NDArray[np.float32]:
    """Return stand-ins for centroids: different points among the rows, moved to the means of the rows nearest to them.

    Between plain rows, the bounds of rounded centroids leave half of all vectors undecided.
    """
    apart = np.random.default_rng(0).normal(size=(lists, rows.shape[1])) * (0.1 * rows.std() + 1e-3)
    points = np.ascontiguousarray(np.resize(rows, (lists, rows.shape[1])) + apart, np.float32)
    moved = MovedCentroids(points, rows[:1])
    moved.move(rows)
    return moved.centroids


def _write_inputs(
    work: Path, rows: NDArray[Any], wide: NDArray[np.float32], centroids: NDArray[np.float32], shape: IvfShape
) -> None:
    """Write the inputs of the tasks: vectors, centroids, and what the codec needs."""
    p = shape.parameters
    work.mkdir(exist_ok=True)
    np.save(work / "vectors.npy", rows)
    np.save(work / "centroids.npy", centroids)
    if p.codec == "sq8":
        span = np.maximum(wide.max(axis=0) - wide.min(axis=0), 1e-6) / 255
        np.save(work / "scale.npy", np.stack([wide.min(axis=0), span]).astype(np.float32))
    if p.codec == "pq":
        tasks.save_product_codec(work, _stand_in_codebook(wide, shape), centroids)
    if p.codec == "rabitq":
        tasks.save_rabitq(work, RabitQ(p.code_bits, np.eye(shape.dim, dtype=np.float32)), centroids)


def _stand_in_codebook(rows: NDArray[np.float32], shape: IvfShape) -> Codebook:
    """Return a codebook of the size that the job asks for; a rotation leaves all components as they are."""
    p = shape.parameters
    book = train_pq(rows[:512], p.pq_bytes, seed=p.seed)
    return replace(book, rotation=np.eye(shape.dim, dtype=np.float32)) if p.pq_rotation == "opq" else book


def _coding_seconds(
    rows: NDArray[np.float32], centroids: NDArray[np.float32], shape: IvfShape, deadline: float
) -> float:
    """Return the seconds of training a codebook of residuals of the sample, on one thread; 0 without codes."""
    p = shape.parameters
    if p.codec != "pq":
        return 0.0
    some = rows[:4096]
    finding = fastest(lambda: nearest_cells(some, centroids, 1), deadline) / len(some)
    book = _stand_in_codebook(rows, shape)
    encoding = fastest(lambda: encode_pq(some, book), deadline) / len(some)
    return shape.drawn * finding + min(shape.drawn, TRAINING_VECTORS) * TRAINING_ROUNDS * encoding


def _decomposing_seconds(dim: int, deadline: float) -> float:
    """Return the seconds of all decompositions of dim x dim matrices, which grow with the third power of `dim`."""
    tried = min(dim, _DECOMPOSED)
    matrix = np.random.default_rng(0).normal(size=(tried, tried))
    return DECOMPOSITIONS * (dim / tried) ** 3 * fastest(lambda: np.linalg.svd(matrix), deadline)


def _training_seconds(rows: NDArray[np.float32], shape: IvfShape, deadline: float) -> float:
    """Return the seconds of k-means over the sample, and of linking centroids, on one thread."""
    p = shape.parameters
    seconds = kmeans_seconds(rows, shape.drawn, p.lists, deadline)
    if p.codec == "rabitq":
        generator = np.random.default_rng(0)
        seconds += fastest(lambda: random_rotation(shape.dim, generator), deadline, times=1)
    if p.lists >= tasks.GRAPH_FROM:
        seconds += _graph_seconds(rows, p.lists)
    return seconds


def _graph_seconds(rows: NDArray[np.float32], lists: int) -> float:
    """Return the seconds of the graph over `lists` centroids on one thread; an insertion costs their logarithm."""
    some = rows[:_MOST_CENTROIDS]
    LeaderGraph(some[:64], seed=0, threads=1)
    begun = time.perf_counter()
    LeaderGraph(some, seed=0, threads=1)
    each = (time.perf_counter() - begun) / len(some)
    return lists * each * max(1.0, math.log(lists) / math.log(max(len(some), 2)))
