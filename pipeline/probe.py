"""How fast this machine builds: the kernels of a build on a few thousand rows of its input, and what follows from it.

An insertion costs what its search computes in distances, and a search computes more the larger the graph is: about
linearly in its logarithm. The count is taken at two sizes of a small graph, the seconds of a distance at the larger
one, and once more for rows scattered over as much memory as the build will hold, which the caches do not.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from threadpoolctl import threadpool_limits

from indexmill.builders.distances import comparable, distances_from_first
from indexmill.builders.entries import n_entries
from indexmill.builders.insert import MAX_BATCH_SHARE, insert_vertices
from indexmill.builders.navigation import navigation_size
from indexmill.builders.parallel import map_blocks
from indexmill.builders.pq import TRAINING_VECTORS, encode_pq, train_pq
from indexmill.builders.vamana import VamanaParameters, list_capacity
from indexmill.formats.source import VectorSource
from indexmill.pipeline.budget import Shape
from indexmill.pipeline.needs import expected_shards
from indexmill.pipeline.spec import Parameters

#: Rows that are read, and their bytes, at most.
_ROWS, _BYTES = 16_384, 32 << 20
#: Seconds that inserting may take; a slow machine stops at a smaller graph.
_INSERT_SECONDS = 4.0
#: Memory that rows are scattered over at most, and distances computed there.
_SPREAD_BYTES, _SPREAD_ROWS = 256 << 20, 40_000
#: Bytes written to learn the speed of the disk.
_WRITE_BYTES = 32 << 20
#: Vertices that a thread takes at a time in `builders.insert`: smaller batches use one thread for their searches.
_BLOCK = 512
#: Share of an insertion that is the search and prune of the vertex itself; the rest prunes its neighbours.
_SEARCH_SHARE = 0.7
#: Lloyd iterations of PQ training, each a little more than an encoding of the training rows.
_TRAINING_ROUNDS = 18
#: Centroids that k-means is tried with at most, and the steps after which it settles on the data we know (44 and more).
_MOST_CENTROIDS, _KMEANS_STEPS = 1024, 140
#: Distances that a row of the sample costs for each level of balanced clustering.
_CLUSTER_ROUNDS = 300
#: Distances to rows anywhere that a vertex costs in the stages that stream the graph.
_WALKS = {"order": 360, "merge": 450, "unite": 600, "pack": 80, "emit": 190, "assign": 100, "certify": 370}


@dataclass(frozen=True)
class Rates:
    """What the probe measured, in seconds: of one vector or distance on one thread, of one byte.

    Attributes
    ----------
    threads : float
        Threads' worth of work that all workers do together.
    insertion : float
        Into a graph of `graph_size` vertices.
    distances, distances_per_doubling : float
        That the insertion computes there, and how many more a graph twice as large costs.
    scattered, gathered : float
        A distance to a row anywhere in the memory of the build, and to one of the probe's.
    encoding, centroids, reading, writing : float
        PQ code of a vector; all centroids of the entries; a vector of the input; a byte written and synced.
    """

    threads: float
    graph_size: int
    insertion: float
    distances: float
    distances_per_doubling: float
    scattered: float
    gathered: float
    encoding: float
    centroids: float
    reading: float
    writing: float


def probe(source: VectorSource, shape: Shape, workers: int, directory: Path) -> Rates:
    """Measure this machine, in at most about 10 seconds once its kernels are compiled.

    Parameters
    ----------
    directory : Path
        Where a file is written, and removed.
    """
    with threadpool_limits(1):  # as tasks run
        return _probe(source, shape, workers, directory)


def _probe(source: VectorSource, shape: Shape, workers: int, directory: Path) -> Rates:
    begun = time.perf_counter()
    wanted = min(_ROWS, max(512, _BYTES // shape.row_bytes))
    batch = next(iter(source.batches(wanted))).vectors[:wanted]
    reading = (time.perf_counter() - begun) / len(batch)
    given = np.ascontiguousarray(batch, dtype=shape.dtype)
    rows = comparable(given)
    p = shape.parameters
    _warm(rows[:64], p)
    size, insertion, distances, doubling = _insert(rows, p)
    spread = min(_SPREAD_BYTES, max(expected_shards(shape)[1] * shape.comparable_bytes, rows.nbytes))
    gathered = _distance_seconds(rows, 1)
    wide = np.empty((spread // (rows.shape[1] * rows.itemsize), rows.shape[1]), rows.dtype)
    wide[:] = rows[np.arange(len(wide)) % len(rows)]
    scattered = _distance_seconds(wide, 1)
    together = _distance_seconds(wide, workers)
    del wide
    return Rates(
        threads=workers * min(1.0, scattered / together),
        graph_size=size,
        insertion=insertion,
        distances=distances,
        distances_per_doubling=doubling,
        scattered=scattered,
        gathered=gathered,
        encoding=_encoding_seconds(given, p),
        centroids=_kmeans_seconds(given, shape),
        reading=reading,
        writing=_write_seconds(directory),
    )


def stage_seconds(rates: Rates, shape: Shape, files: dict[str, int], workers: int) -> dict[str, float]:
    """Return the predicted seconds of every stage in `files`, whose bytes it writes."""
    p, n = shape.parameters, shape.n
    cells, _ = expected_shards(shape)
    members = n if cells == 1 else int(n * (1 + p.overlap))
    sample = min(p.sample_vectors, n)
    trained = min(sample, TRAINING_VECTORS) * _TRAINING_ROUNDS
    work = {name: n * walks * rates.scattered for name, walks in _WALKS.items()}
    for name in ("unite", "pack", "assign", "certify"):
        work[name] /= rates.threads
    work |= {
        "ingest": n * rates.reading,
        "build": members * _insertion_seconds(rates, members // cells, workers),
        "encode": (n + trained) * rates.encoding / rates.threads,
        "entries": rates.centroids,
        "navigation": navigation_size(p.navigation, n) * rates.insertion,
    }
    if cells > 1:
        work["cluster"] = sample * _CLUSTER_ROUNDS * math.log2(2 * cells) * rates.gathered
    return {name: work.get(name, 0.0) + size * rates.writing for name, size in files.items()}


def _insertion_seconds(rates: Rates, n: int, workers: int) -> float:
    """Mean seconds of an insertion while a graph grows to `n` vertices, on all threads.

    Half of an insertion, in logarithms, waits for memory: the rest is the candidate list and the prune.
    """
    doublings = math.log2(
        max(n, 2) / math.e / rates.graph_size
    )  # the mean of log2 over the growth is less by log2(e)
    distances = max(rates.distances + rates.distances_per_doubling * doublings, rates.distances / 4)
    single = (
        rates.insertion * distances / rates.distances * math.sqrt(max(1.0, rates.scattered / rates.gathered))
    )
    batch = max(1, int(n * MAX_BATCH_SHARE))
    blocks = -(-batch // _BLOCK)
    at_once = min(batch / (_BLOCK * -(-blocks // workers)), workers) if blocks > 1 else 1.0
    searching = min(max(at_once, 1.0), rates.threads)
    return single * (_SEARCH_SHARE / searching + (1 - _SEARCH_SHARE) / rates.threads)


def _insert(rows: NDArray[Any], p: Parameters) -> tuple[int, float, float, float]:
    """Grow a graph; return the size it was timed at, seconds and distances of an insertion, distances a doubling."""
    neighbours = np.zeros((len(rows), list_capacity(p.max_degree)), np.uint32)
    degrees = np.zeros(len(rows), np.int32)
    vamana = VamanaParameters(p.max_degree, p.build_list_size, p.alpha)
    order = np.random.default_rng(p.seed).permutation(len(rows)).astype(np.uint32)
    done = 0
    measured: list[tuple[float, float, float]] = []
    begun = time.perf_counter()
    for last in _doubling(len(rows)):
        some = order[done:last]
        clock = _BatchClock()
        distances = insert_vertices(
            rows, neighbours, degrees, some, int(order[0]), vamana, present=done, advance=clock
        )
        measured.append((math.sqrt(max(done, 1) * last), clock.median(), distances / len(some)))
        done = last
        if time.perf_counter() - begun > _INSERT_SECONDS / 3:  # the next takes more than twice as long
            break
    size, seconds, mean_distances = measured[-1]
    before = measured[-2] if len(measured) > 1 else measured[-1]
    span = math.log2(size / before[0]) if size > before[0] else 1.0
    return int(size), seconds, mean_distances, max(0.0, (mean_distances - before[2]) / span)


class _BatchClock:
    """Seconds of a vertex in each batch; the median of them is that of an undisturbed machine."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._seconds: list[float] = []

    def __call__(self, vertices: int) -> None:
        now = time.perf_counter()
        self._seconds.append((now - self._last) / vertices)
        self._last = now

    def median(self) -> float:
        return float(np.median(self._seconds))


def _doubling(n: int) -> list[int]:
    sizes = [min(1024, n)]
    while sizes[-1] < n:
        sizes.append(min(2 * sizes[-1], n))
    return sizes


def _warm(rows: NDArray[Any], p: Parameters) -> None:
    """Compile what is timed."""
    _insert(rows, p)
    _distance_seconds(rows, 1)
    train_pq(rows, min(p.pq_bytes, rows.shape[1]), seed=p.seed)


def _distance_seconds(rows: NDArray[Any], threads: int) -> float:
    """Seconds of a distance to a random row, with as many threads at it at once."""
    ids = np.random.default_rng(0).integers(0, len(rows), (threads, _SPREAD_ROWS)).astype(np.uint32)
    out = np.empty((threads, _SPREAD_ROWS), np.float32)

    def block(first: int, last: int) -> None:
        for i in range(first, last):
            distances_from_first(rows, ids[i], out[i])

    return _least(lambda: list(map_blocks(block, threads, 1, threads))) / _SPREAD_ROWS


def _encoding_seconds(rows: NDArray[Any], p: Parameters) -> float:
    some = rows[:4096]
    codebook = train_pq(some[:512], p.pq_bytes, seed=p.seed)
    return _least(lambda: encode_pq(some, codebook)) / len(some)


def _kmeans_seconds(rows: NDArray[Any], shape: Shape) -> float:
    """Seconds of mini-batch k-means over the sample, from its beginning and one of its steps."""
    wanted = n_entries(shape.parameters.entries, shape.n)
    centroids = max(1, min(wanted, len(rows) // 4, _MOST_CENTROIDS))
    some = np.asarray(rows[: 2 * max(512, centroids)], np.float32)
    if len(some) <= centroids:
        return 0.0
    model = MiniBatchKMeans(centroids, batch_size=len(some), n_init=1, random_state=0)
    begun = time.perf_counter()
    model.partial_fit(some)
    middle = time.perf_counter()
    model.partial_fit(some)
    step = time.perf_counter() - middle
    drawn = min(shape.parameters.sample_vectors, shape.n)
    steps = min(_KMEANS_STEPS, 20 * drawn / len(some))
    return (middle - begun + steps * step) * (wanted / centroids) ** 2


def _write_seconds(directory: Path) -> float:
    """Seconds of a byte that is written and synced."""
    block = np.random.default_rng(0).bytes(1 << 20)
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".indexmill-probe-") as file:
        start = time.perf_counter()
        for _ in range(_WRITE_BYTES >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return (time.perf_counter() - start) / _WRITE_BYTES


def _least(run: Callable[[], Any], times: int = 3) -> float:
    """Seconds of the fastest of a few runs: others use the machine too."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
