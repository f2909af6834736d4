"""The samples on which `tune` tries settings, each a prefix of the next, and queries with their truth.

Samples are drawn at random over the whole input: a sample of m vectors is what the input would be with fewer of them,
so that what grows from one sample to the next goes on growing to the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.formats.errors import InputError
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.formats.sources.source import VectorBatch, VectorSource, open_source
from indexmill.formats.sources.validate import check_batch
from indexmill.pipeline.draws import TUNING, generator
from indexmill.pipeline.kinds.common.ingest import ingest
from indexmill.pipeline.kinds.common.judge import TuningQueries
from indexmill.pipeline.kinds.common.shape import stored_vectors
from indexmill.pipeline.mill.progress import Progress, Silent, stage_progress
from indexmill.pipeline.tune.queries import as_compared, check_count, check_queries, spread
from indexmill.pipeline.tune.request import TuneRequest

#: Vectors of a sample at least; below twice that times `RATIO` there is nothing to extrapolate from.
LEAST_SAMPLE = 800
#: Each sample has so many times the vectors of the one before, and there are so many of them at most.
RATIO, LEVELS = 4, 3
#: Vectors that an input must have: two samples, and queries beside them.
LEAST_VECTORS = 5 * LEAST_SAMPLE
#: The share of a small input that queries are taken from.
_QUERY_SHARE = 10
#: Neighbours wanted, of the vectors of the smallest sample: at most one in so many.
_VECTORS_A_NEIGHBOUR = 10
#: Rows read at a time.
_BLOCK = 16_384


@dataclass(frozen=True)
class Drawn:
    """Vectors of an input in random order, and queries.

    Attributes
    ----------
    rows : array, shape (m, dim)
        A mapped file; the first of them are a sample, too.
    queries : array, shape (q, dim)
        Beside them, or the caller's.
    """

    rows: NDArray[Any]
    queries: NDArray[Any]


@dataclass(frozen=True)
class Level:
    """One sample.

    Attributes
    ----------
    size : int
    path : Path
        Its .npy file.
    points : array, shape (size, stored dim)
        The same as *ingest* stores them, mapped.
    queries : TuningQueries
        With the distance of the k-th true neighbour in it.
    nearest : float32 array, shape (q, k)
        Squared distances of the true neighbours of the queries, ascending.
    """

    size: int
    path: Path
    points: NDArray[Any]
    queries: TuningQueries
    nearest: NDArray[np.float32]


def check_enough(n: int) -> None:
    """Refuse an input of `n` vectors that is too small to see how page reads grow.

    Raises
    ------
    InputError
    """
    if n < LEAST_VECTORS:
        raise InputError(
            f"input: {n:,} vectors; expected at least {LEAST_VECTORS:,} to tell by samples how page reads grow. So few "
            "need no tuning: build them with the defaults, and measure list sizes with `indexmill score --sweep`"
        )


def sample_sizes(n: int, most: int, queries: int, given: int | None) -> tuple[tuple[int, ...], int]:
    """Return the sizes of the samples, ascending, and how many queries.

    Parameters
    ----------
    most : int
        Vectors of the largest sample at most.
    queries : int
        Wanted.
    given : int, optional
        Queries that the caller has; by default they are taken from the input, at most a tenth of it.

    Raises
    ------
    InputError
        If there are too few queries.
    """
    if given is not None:
        check_count(given, ", or leave --queries out to take some from the input")
    count = min(queries, n // _QUERY_SHARE if given is None else given) // 2 * 2
    largest = min(most, n - (count if given is None else 0))
    sizes = [largest]
    while len(sizes) < LEVELS and sizes[-1] // RATIO >= LEAST_SAMPLE:
        sizes.append(sizes[-1] // RATIO)
    return tuple(reversed(sizes)), count


def check_k(k: int, sizes: tuple[int, ...], hint: str = "") -> None:
    """Refuse more neighbours than the smallest sample can have; `hint` says what else would help.

    Raises
    ------
    InputError
    """
    most = sizes[0] // _VECTORS_A_NEIGHBOUR
    if not 1 <= k <= most:
        raise InputError(
            f"k: {k:,} neighbours wanted; expected 1 to {most:,}, a tenth of the smallest sample of {sizes[0]:,} "
            f"vectors; use a smaller -k{hint}"
        )


def samples_bytes(source: VectorSource, metric: str, sizes: Sequence[int], queries: int) -> int:
    """Return the bytes of samples: drawn in one file, with `queries`, and then each as drawn and as stored."""
    drawn = source.dim * source.dtype.itemsize
    _, dim, dtype = stored_vectors(source, metric)
    return (sizes[-1] + queries) * drawn + sum(sizes) * (drawn + dim * dtype.itemsize)


def levels_of(
    request: TuneRequest,
    source: VectorSource,
    sizes: Sequence[int],
    n_queries: int,
    workers: int,
    directory: Path,
    progress: Progress,
) -> list[Level]:
    """Draw the samples, and find the true neighbours of the queries in each.

    Raises
    ------
    InputError
        As `draw`.
    """
    p = request.spec.parameters
    drawn = draw(source, request.queries, sizes[-1], n_queries, p.metric, p.seed, directory, progress)
    levels = []
    with stage_progress(progress, "truth", len(sizes), "samples"):
        for size in sizes:
            levels.append(level_of(drawn, size, p.metric, request.k, workers, directory))
            progress.advance(1)
    return levels


def draw(
    source: VectorSource,
    given: NDArray[Any] | None,
    size: int,
    queries: int,
    metric: str,
    seed: int,
    directory: Path,
    progress: Progress,
) -> Drawn:
    """Draw `size` vectors, and `queries` others unless they are `given`.

    Memory: 16 bytes a vector of the sample, those of the input once if the sample is more than 2% of it.

    Raises
    ------
    InputError
        If a vector that was drawn is unusable, naming it, or queries do not suit the vectors.
    """
    asked = None
    if given is not None:
        check_queries(given, source.dim, metric, "as the vectors have it", "them")
        asked = spread(given, queries)
    rng = generator(seed, TUNING)
    drawn = rng.choice(source.n_vectors, size + (queries if asked is None else 0), replace=False)
    rows = create_npy(directory / "drawn.npy", source.dtype, (len(drawn), source.dim))
    order = np.argsort(drawn)
    with stage_progress(progress, "sample", len(drawn), "vectors"):
        for first in range(0, len(drawn), _BLOCK):
            places = order[first : first + _BLOCK]
            block = source.read(drawn[places])
            _check_rows(source, block, drawn[places], metric)
            rows[places] = block
            progress.advance(len(places))
    rows.flush()
    return Drawn(rows[:size], np.array(rows[size:]) if asked is None else asked)


def level_of(drawn: Drawn, size: int, metric: str, k: int, threads: int, directory: Path) -> Level:
    """Return the sample of the first `size` vectors: written, and with truth for the queries."""
    path, stored = directory / f"sample-{size}.npy", directory / f"stored-{size}"
    np.save(path, drawn.rows[:size])
    stored.mkdir()
    ingest(open_source(str(path)), metric, stored, Silent())
    points = np.load(stored / "vectors.npy", mmap_mode="r")
    asked = as_compared(drawn.queries, metric, points.dtype)
    _, distances = exact_neighbours(points, asked, k, threads)
    kth = distances[:, -1].astype(np.float64)
    queries = TuningQueries(drawn.queries, asked.astype(np.float32), kth, k, None)
    return Level(size, path, points, queries, distances)


def _check_rows(source: VectorSource, rows: NDArray[Any], ids: NDArray[np.int64], metric: str) -> None:
    """Refuse a vector by its place in the input."""
    name = source.paths[0] if len(source.paths) == 1 else f"{len(source.paths)} files, all rows in order"
    try:
        check_batch(VectorBatch(0, rows, None, None, name, 0), metric)
    except InputError:
        for i, row in zip(ids.tolist(), rows, strict=True):
            check_batch(VectorBatch(i, row[None], None, None, name, i), metric)
        raise
