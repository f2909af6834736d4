"""Seconds of an LSH build: its tasks are tried on the first rows of the input."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from indexmill.formats.lsh.blocks import seal_blocks
from indexmill.formats.lsh.shape import LshShape
from indexmill.formats.sources.source import VectorSource
from indexmill.formats.sources.validate import check_batch
from indexmill.pipeline.kinds.common.certify import QUERIES
from indexmill.pipeline.kinds.common.memory import lanes
from indexmill.pipeline.kinds.common.seconds import HASH_SECONDS, TRIAL_PREFIX, exact_seconds, write_seconds
from indexmill.pipeline.kinds.lsh import tasks
from indexmill.pipeline.kinds.lsh.shape import SolvedShape, groups, parts

#: Rows and tables that are tried; seconds after which no comparison is repeated.
_ROWS, _TABLES, _SECONDS = 16_384, 4, 1.0
_BATCH, _BUFFER = 256 << 10, 32 << 20
#: Reads of tables and buckets by a search of the certificate for each table, about; and seconds of one, many in flight.
READS, _READ_SECONDS = 2, 1e-5
#: Seconds of comparing a vector that the page cache holds.
_MAPPED_SECONDS = 2e-6


class Rates(NamedTuple):
    """Seconds on one thread.

    Of reading a vector; of comparing it with the sample, or with the queries of a certificate; of an entry; of a byte
    written.
    """

    reading: float
    comparing: float
    certifying: float
    hashing: float
    chaining: float
    sealing: float
    writing: float


def timed_tasks(source: VectorSource, shape: SolvedShape, directory: Path) -> Rates:
    """Time the tasks of a build on the first rows.

    Parameters
    ----------
    directory : Path
        Where files are written, and removed.
    """
    begun = time.perf_counter()
    batch = next(iter(source.batches(_ROWS)))
    check_batch(batch, shape.parameters.metric)
    reading = (time.perf_counter() - begun) / len(batch.vectors)
    rows = np.zeros((min(_ROWS, len(batch.vectors)), shape.dim), np.float32)
    rows[:, : batch.vectors.shape[1]] = batch.vectors[: len(rows)]
    with threadpool_limits(1), tempfile.TemporaryDirectory(dir=directory, prefix=TRIAL_PREFIX) as work:
        hashing, chaining, sealing = _tried(rows, shape, Path(work))
        stored, deadline = rows.astype(shape.dtype, copy=False), time.perf_counter() + _SECONDS
        comparing = exact_seconds(stored, deadline, tasks.SAMPLED)
        certifying = exact_seconds(stored, deadline)
    return Rates(reading, comparing, certifying, hashing, chaining, sealing, write_seconds(directory))


def stage_seconds(
    rates: Rates, shape: SolvedShape, memory: int, workers: int, files: dict[str, int]
) -> dict[str, float]:
    """Return the predicted seconds of every stage in `files`, whose bytes it writes."""
    tables = shape.tables
    entries, a_table = tables.n_entries, tables.n_entries // tables.n_tables
    chained = sum(  # a group is chained before the next one is hashed
        (last - first) * a_table / lanes(workers, len(parts(tables, (first, last), memory)))
        for first, last in groups(tables)
    )
    work_seconds: dict[str, float] = {
        "ingest": shape.n * rates.reading,
        "sample": shape.n * rates.comparing / workers,
        "hash": entries * rates.hashing / lanes(workers, len(shape.spans(memory)) - 1),
        "chain": chained * rates.chaining,
        "certify": shape.n * rates.certifying / workers + QUERIES * READS * tables.n_tables * _READ_SECONDS,
        "emit": entries * rates.sealing + files["emit"] * HASH_SECONDS,
    }
    return {name: work_seconds.get(name, 0.0) + held * rates.writing for name, held in files.items()}


def search_seconds(queries: int, distances: float, reads: float, workers: int) -> float:
    """Return the seconds of searches of an index that the page cache holds.

    Parameters
    ----------
    distances, reads : float
        Vectors that a search compares, and its reads of tables and buckets.
    """
    return queries * (distances * _MAPPED_SECONDS + reads * _READ_SECONDS) / workers


def _tried(rows: np.ndarray[Any, Any], shape: SolvedShape, work: Path) -> tuple[float, float, float]:
    """Run the tasks; return the seconds of an entry in *hash*, *chain* and *emit*, on one thread."""
    tables = min(_TABLES, shape.solved.n_tables)
    load = max(1, shape.n // shape.tables.buckets_per_table)
    bits = max(0, (len(rows) // load).bit_length() - 1)  # buckets as full as those of the index
    tried = LshShape(len(rows), tables, shape.tables.n_radii, bits, shape.tables.block_bytes)
    plan = replace(shape, n=len(rows), solved=replace(shape.solved, n_tables=tables, hash_bits=bits)).plan
    np.save(work / "vectors.npy", rows)
    chunk, part = str(work / "0.chunk"), str(work / "0.part")
    keys = tables * tried.n_radii << bits
    for _ in range(2):  # the first time compiles
        times = [time.perf_counter()]
        tasks.hash_task(str(work / "vectors.npy"), plan, (0, tables), 0, len(rows), _BATCH, chunk)
        times.append(time.perf_counter())
        tasks.chain_task([chunk], tried, 0, keys, _BUFFER, part)
        times.append(time.perf_counter())
        blocks = np.zeros((tried.n_entries // tried.capacity + 1, tried.block_bytes), np.uint8)
        nothing = np.zeros(len(blocks), np.uint64)
        seal_blocks(blocks, nothing, nothing)
        times.append(time.perf_counter())
    hashing, chaining, sealing = (np.diff(times) / tried.n_entries).tolist()
    return hashing, chaining, sealing
