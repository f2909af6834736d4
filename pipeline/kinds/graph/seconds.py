"""Seconds of a graph build: its kernels are timed on a few thousand rows of the input, and extrapolated.

What distances cost more where rows lie scattered over as much memory as the build will hold, which the caches do not,
is measured with all threads at it, for they share the way to memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.builders.cluster.balanced import balanced_centroids
from indexmill.builders.distances import as_bits, comparable, distances_from_first, read_anywhere
from indexmill.builders.quantize.asked import choose_codes
from indexmill.builders.quantize.pq import TRAINING_VECTORS, encode_pq, train_pq
from indexmill.builders.quantize.scalar import comparable_codes
from indexmill.builders.vamana.entries import n_entries
from indexmill.builders.vamana.navigation import navigation_size
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.sources.source import VectorSource
from indexmill.formats.sources.validate import check_batch
from indexmill.layout.districts.borders import sampled_rows
from indexmill.layout.star import star_order
from indexmill.pipeline.kinds.common.certify import QUERIES
from indexmill.pipeline.kinds.common.seconds import (
    HASH_SECONDS,
    TRAINING_ROUNDS,
    exact_seconds,
    kmeans_seconds,
    write_seconds,
)
from indexmill.pipeline.kinds.graph.districts.plan import left_over, n_districts
from indexmill.pipeline.kinds.graph.memory import expected_shards
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.kinds.graph.seconds_insertion import (
    SPREAD_BYTES,
    Insertions,
    stalling_seconds,
    timed_insertions,
)
from indexmill.pipeline.kinds.graph.seconds_partition import (
    PartitionRates,
    partition_rates,
    partition_seconds,
    region_seconds,
    warm_partition,
)
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.shaped.labels import label_places
from indexmill.pipeline.mill.clocks import fastest
from indexmill.reader.threads import BlockPool

#: Queries of a sample that the rows are compared with at most.
_ASKED = 1024
#: Rows that are read, and their bytes, at most.
_ROWS, _BYTES = 16_384, 32 << 20
#: Seconds that the trial may take, except compiling, and building a graph of them; a slow machine, or parameters that
#: make insertions slow, stop at a smaller graph. No part is interrupted, so that some time is left over.
TRIAL_SECONDS, GRAPH_SECONDS = 7.0, 3.5
#: The latter as multiplied for the trial of insertions: with `partition`, which inserts the navigation graph and labels
#: alone; and with `vamana`, whose small graph must be so large that each doubling adds fewer distances than the last.
_FEW_INSERTED, _ALL_INSERTED = 0.3, 1.5
#: Blocks of distances for each thread, which the threads take one by one, and distances of a block: enough that a
#: thread that wakes late finds work left.
_BLOCKS, _BLOCK_ROWS = 32, 50_000
#: Times that a row of the trial is read in the time of a row of the input, which is hashed, too; and of the sample,
#: whose rows lie apart. Both were measured with 768 floats.
_READ = {"ingest": 2, "sample": 4}
#: Distances to rows anywhere that a vertex costs in the stages that stream the graph.
_WALKS = {"link": 25, "unite": 150, "assign": 50}
#: Distances that a list costs where edges between vectors near to one query enter it, beside those to these vectors.
_BRIDGED = 100
#: Distances to rows anywhere that a list costs where edges within its label enter it. Those that lose their place are
#: compared with the list besides, three quarters of it on average.
_ENTERED, _COMPARED = 150, 0.75
#: Insertions that a query of the certificate costs: its list is longer, and it reads pages.
_QUERY_INSERTIONS = 4
#: Least rows of a cell that rows are clustered into.
_CELL_ROWS = 64
#: Rows that are coded.
_CODED = 4096
#: Vertices of a random graph that is ordered, and the power of the vertices that an edge of a larger one grows by,
#: measured from 1 to 10 million: the caches hold less and less of it.
_ORDERED, _ORDER_GROWTH = 65_536, 3 / 8
#: Distances to rows anywhere, and edges, that a vertex costs in the default order.
_ORDER_DISTANCES, _ORDER_EDGES = 30, 100
#: Of an order in districts: distances that a sampled vector costs for each halving; edges that a vertex costs while its
#: list is settled; and edges that cost as much as one that is packed, while the order is measured.
_HALVING_DISTANCES, _SETTLED_EDGES, _MEASURED_EDGES = 12, 6, 16


@dataclass(frozen=True)
class Rates:
    """The rates of this machine, in seconds: of one vector or distance on one thread, of one byte.

    Attributes
    ----------
    threads : float
        Threads' worth of work that all workers do together while none waits for memory.
    insertions : Insertions
        Into a small graph.
    scattered, gathered : float
        A distance on one thread: to a row anywhere in the memory of the build while all threads share the way there;
        and to a row of the trial, which the caches hold.
    stalling : float
        What the single reads of an insertion take longer there than into the small graph.
    encoding, choosing, centroids, ordering, certifying, reading, writing : float
        PQ code of a vector; another choice of it by a sample of queries, if there is one; all centroids of the entries;
        an edge that star packing follows; a vector that is compared with the queries of the certificate, all on one
        thread; a vector of the input; a byte written and synced.
    clustering : float
        A row of the sample that is clustered into shards, if there are any, on all threads.
    partition : PartitionRates, optional
        Of the builder `partition`, if it is wanted.
    asking : float
        A vector that is compared with one of many queries, where a sample of queries shapes the graph.
    """

    threads: float
    insertions: Insertions
    scattered: float
    gathered: float
    encoding: float
    centroids: float
    ordering: float
    certifying: float
    reading: float
    writing: float
    partition: PartitionRates | None
    clustering: float = 0.0
    choosing: float = 0.0
    stalling: float = 0.0
    asking: float = 0.0


def on_node(rates: Rates, workers: int, cores: int) -> Rates:
    """Return rates that were timed with `workers` threads as they are on a node of `cores`, which scale as these do."""
    partition = None if rates.partition is None else rates.partition._replace(workers=cores)
    return replace(rates, threads=rates.threads * cores / workers, partition=partition)


def timed_kernels(source: VectorSource, shape: GraphShape, workers: int, directory: Path) -> Rates:
    """Time the kernels of a build on this machine, in at most 10 seconds once they are compiled.

    Parameters
    ----------
    directory : Path
        Where a file is written, and removed.

    Raises
    ------
    InputError
        If one of the rows is unusable, naming it.
    """
    with threadpool_limits(1):  # as tasks run
        return _timed(source, shape, workers, directory)


def _timed(source: VectorSource, shape: GraphShape, workers: int, directory: Path) -> Rates:
    begun = time.perf_counter()
    wanted = min(_ROWS, max(512, _BYTES // shape.row_bytes))
    batch = next(iter(source.batches(wanted)))
    p = shape.parameters
    check_batch(batch, p.metric)
    vectors = batch.vectors[:wanted]
    read = time.perf_counter() - begun
    reading = read / len(vectors)
    given = np.ascontiguousarray(vectors, dtype=shape.dtype)
    rows = as_bits(given)
    taken = given if shape.is_taken else comparable(given)
    codes = comparable_codes(given) if p.build_codes == "sq8" else None
    _warm(given[:64], taken[:64], p)
    deadline = time.perf_counter() + TRIAL_SECONDS - read
    partitioned = p.builder == "partition"
    inserting = time.perf_counter()
    longest = GRAPH_SECONDS * (_FEW_INSERTED if partitioned else _ALL_INSERTED)
    insertions = timed_insertions(rows, codes, p, min(deadline, inserting + longest))
    graph_deadline = min(deadline, inserting + GRAPH_SECONDS)
    partition = partition_rates(taken, p, workers, graph_deadline) if partitioned else None
    searched = as_bits(taken) if codes is None else codes
    spread = min(SPREAD_BYTES, max(expected_shards(shape)[1] * shape.searched_bytes, searched.nbytes))
    gathered = _distance_seconds(searched, 1, deadline)
    together = _distance_seconds(searched, workers, deadline)
    wide = np.empty((spread // searched[0].nbytes, searched.shape[1]), searched.dtype)
    for first in range(0, len(wide), len(searched)):
        block = wide[first : first + len(searched)]
        block[:] = searched[: len(block)]
    threads = workers * min(1.0, gathered / together)
    # what threads take from each other while nothing waits for memory is counted in their number
    scattered = _distance_seconds(wide, workers, deadline) * threads / workers
    del wide
    cells, _ = expected_shards(shape)
    asked = min(shape.n_asked, _ASKED)
    return Rates(
        threads=threads,
        insertions=insertions,
        scattered=scattered,
        gathered=gathered,
        encoding=_encoding_seconds(given, p, deadline),
        ordering=_order_seconds(p, deadline),
        certifying=exact_seconds(given, deadline),
        centroids=kmeans_seconds(given, shape.drawn, n_entries(p.entries, shape.n), deadline),
        reading=reading,
        writing=write_seconds(directory),
        partition=partition,
        clustering=_clustering_seconds(given, cells, p.seed, workers) if cells > 1 else 0.0,
        choosing=_choosing_seconds(given, p, deadline) if shape.n_asked else 0.0,
        stalling=stalling_seconds(shape, insertions.vertices, deadline),
        asking=exact_seconds(given, deadline, asked) / asked if asked else 0.0,
    )


def stage_seconds(
    rates: Rates, shape: GraphShape, files: dict[str, int], narrow: Mapping[str, int]
) -> dict[str, float]:
    """Return the predicted seconds of every stage in `files`, whose bytes it writes.

    Parameters
    ----------
    narrow : mapping of str to int
        Tasks that run side by side in each stage of narrow tasks: threads beyond them wait.
    """
    p, n = shape.parameters, shape.n
    cells, _ = expected_shards(shape)
    members = n if cells == 1 else int(n * (1 + p.overlap))
    sample = min(p.sample_vectors, n)
    work = {name: n * walks * rates.scattered for name, walks in _WALKS.items()}
    threads = {name: min(lanes, rates.threads) for name, lanes in narrow.items()}
    for name in ("unite", "assign"):
        work[name] /= threads.get(name, rates.threads)
    packed = files.get("pack", 0)
    work |= {
        "ingest": n * _READ["ingest"] * rates.reading,
        "sample": sample * _READ["sample"] * rates.reading,
        "build": members * vertex_seconds(rates, members // cells, p.passes),
        "encode": n * rates.encoding / rates.threads + training_seconds(rates, shape),
        "entries": rates.centroids / rates.threads,
        "navigation": navigation_size(p.navigation, n) * rates.insertions.seconds / rates.threads,
        "order": order_seconds(rates, p, n),
        "pack": packed * HASH_SECONDS / threads.get("pack", rates.threads),
        "emit": (packed + files.get("emit", 0)) * HASH_SECONDS,
        "certify": certificate_seconds(rates, n),
    }
    if shape.n_asked:
        work["asked"] = shape.n_asked * rates.reading
        work["nearest"] = n * rates.asking * shape.n_asked / rates.threads
        distances = n * _BRIDGED + shape.n_asked * shape.asked_nearest**2
        work["bridge"] = distances * rates.scattered / rates.threads
        work["encode"] += n * rates.choosing / rates.threads
    if shape.label_column is not None:
        of_label = shape.label_share * n
        places = label_places(p.max_degree, int(of_label))
        compared = _COMPARED * places * p.max_degree
        entered = (_ENTERED * rates.scattered + compared * rates.gathered) / rates.threads
        # a search comes to as many lists, which are shorter
        inserted = insertion_seconds(rates, of_label / math.e) * places / p.max_degree
        work["labels"] = n * (inserted + entered)
    if (districts := n_districts(shape)) > 1:
        work |= _district_seconds(rates, shape, districts, files, threads)
    if shape.region_bytes is not None and rates.partition is not None:
        work |= region_seconds(rates.partition, n, rates.scattered, threads.get("carve", rates.threads))
    if cells > 1:
        work["cluster"] = sample * rates.clustering
    return {name: work.get(name, 0.0) + size * rates.writing for name, size in files.items()}


def training_seconds(rates: Rates, shape: GraphShape) -> float:
    """Return the seconds of training the codebook."""
    return min(shape.drawn, TRAINING_VECTORS) * TRAINING_ROUNDS * rates.encoding / rates.threads


def certificate_seconds(rates: Rates, n: int) -> float:
    """Return the seconds of comparing all of `n` vectors with the queries of the certificate, and of searching."""
    return (n * rates.certifying + _QUERY_INSERTIONS * QUERIES * rates.insertions.seconds) / rates.threads


def order_seconds(rates: Rates, p: Parameters, n: int) -> float:
    """Return the seconds of the order: of star packing, or of the work of the default order on all threads."""
    an_edge = _edge_seconds(rates, n)
    if p.order != Parameters.model_fields["order"].default:
        return n * p.max_degree * an_edge
    return n * (_ORDER_DISTANCES * rates.scattered + _ORDER_EDGES * an_edge) / rates.threads


def _edge_seconds(rates: Rates, n: float) -> float:
    """Return the seconds of an edge that star packing follows in a graph of `n` vertices."""
    seconds: float = rates.ordering * max(1.0, n / _ORDERED) ** _ORDER_GROWTH
    return seconds


def _district_seconds(
    rates: Rates, shape: GraphShape, districts: int, files: Mapping[str, int], threads: Mapping[str, float]
) -> dict[str, float]:
    """Return the seconds of the stages of an order in districts; `threads` of narrow stages are as of `stage_seconds`.

    *settle* finds the district of each vector and sorts lists, *districts* reads and packs them, *rests* packs again
    what is left over, and *order* looks up the pages of both ends of every edge.
    """
    n, degree, levels = shape.n, shape.parameters.max_degree, math.log2(districts)
    sample = len(sampled_rows(n, districts)) * _HALVING_DISTANCES
    sorting = files["settle"] * HASH_SECONDS
    settling = n * (levels * rates.gathered + _SETTLED_EDGES * rates.ordering) + sorting
    packing = n * degree * _edge_seconds(rates, n / districts) + sorting
    return {
        "borders": sample * levels * rates.gathered / rates.threads,
        "settle": settling / threads.get("settle", rates.threads),
        "districts": packing / threads.get("districts", rates.threads),
        "rests": packing * left_over(shape) / threads.get("rests", rates.threads),
        "order": n * degree * _edge_seconds(rates, n) / _MEASURED_EDGES / rates.threads,
    }


def vertex_seconds(rates: Rates, n: int, passes: int) -> float:
    """Return the mean seconds of a vertex of a graph of `n`, on all threads."""
    if rates.partition is not None:
        return partition_seconds(rates.partition, n, _waiting(rates))
    # Insertions while it grows: the mean of log2 over the growth is less than that of its end by log2(e). A second
    # pass finds it grown.
    return sum(insertion_seconds(rates, size) for size in (n / math.e, *(passes - 1) * (n,)))


def insertion_seconds(rates: Rates, n: float) -> float:
    """Return the seconds of inserting a vertex into a graph of `n`, on all threads."""
    return rates.insertions.seconds_at(n, _waiting(rates), rates.stalling) / rates.threads


def _waiting(rates: Rates) -> float:
    """Return the seconds by which a distance takes longer where rows lie scattered over memory."""
    return max(0.0, rates.scattered - rates.gathered)


def _warm(given: NDArray[Any], taken: NDArray[Any], p: Parameters) -> None:
    """Compile the kernels that will be timed."""
    codes = comparable_codes(given) if p.build_codes == "sq8" else None
    timed_insertions(as_bits(given), codes, p, math.inf)
    train_pq(given, min(p.pq_bytes, given.shape[1]), seed=p.seed)
    if p.builder == "partition":
        warm_partition(taken)
    _distance_seconds(as_bits(taken) if codes is None else codes, 1, 0)
    read_anywhere(np.ones(2, np.uint8), 1)
    balanced_centroids(given, 2, p.seed)


def _distance_seconds(rows: NDArray[Any], threads: int, deadline: float) -> float:
    """Return the seconds of a distance to a random row, with all `threads` at it."""
    ids = np.random.default_rng(0).integers(0, len(rows), (threads * _BLOCKS, _BLOCK_ROWS)).astype(np.uint32)
    out = np.empty(ids.shape, np.float32)

    def block(first: int, last: int) -> None:
        for i in range(first, last):
            distances_from_first(rows, ids[i], out[i])

    with BlockPool(threads) as pool:  # its threads are there from the second try on
        return fastest(lambda: pool.run(block, len(ids), 1), deadline) / (_BLOCKS * _BLOCK_ROWS)


def _encoding_seconds(rows: NDArray[Any], p: Parameters, deadline: float) -> float:
    """Return the seconds of a vector's code, with the product by a rotation where codes have one."""
    some = rows[:_CODED]
    codebook = _codebook(some, p)
    return fastest(lambda: encode_pq(some, codebook), deadline) / len(some)


def _clustering_seconds(rows: NDArray[Any], cells: int, seed: int, threads: int) -> float:
    """Return the seconds of a row that is clustered into so many cells, or as many as the trial has rows for."""
    cells = min(cells, max(2, len(rows) // _CELL_ROWS))
    begun = time.perf_counter()
    balanced_centroids(rows, cells, seed, threads)
    return (time.perf_counter() - begun) / len(rows)


def _choosing_seconds(rows: NDArray[Any], p: Parameters, deadline: float) -> float:
    """Return the seconds in which a vector's code is chosen anew by what queries compare."""
    some = rows[:_CODED]
    codebook = _codebook(some, p)
    codes, spread = encode_pq(some, codebook), np.eye(rows.shape[1])
    return fastest(lambda: choose_codes(some, codebook, spread, codes), deadline) / len(some)


def _codebook(rows: NDArray[Any], p: Parameters) -> Codebook:
    codebook = train_pq(rows[:512], p.pq_bytes, seed=p.seed)
    if p.pq_rotation == "opq":
        codebook = replace(codebook, rotation=np.eye(rows.shape[1], dtype=np.float32))
    return codebook


def _order_seconds(p: Parameters, deadline: float) -> float:
    """Return the seconds of an edge that star packing follows, on a graph without locality."""
    rng = np.random.default_rng(0)
    n = _ORDERED
    neighbours = rng.integers(0, n, (n, p.max_degree)).astype(np.uint32)
    degrees = np.full(n, p.max_degree, np.int32)
    star_order(neighbours[:64] % 64, degrees[:64], 4)
    return fastest(lambda: star_order(neighbours, degrees, 4), deadline, times=2) / neighbours.size
