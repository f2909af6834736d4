"""The margin of a set: how far beyond the border of a part queries must ask it to find nearly all true neighbours.

A sample of queries is compared with all vectors while these are divided, so that it is known in which parts the nearest
of each lie. The margin is the smallest with which the parts that are asked hold `SHARE` of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.nearest.products import augment, keep_nearest, with_one
from indexmill.formats.index.setmanifest import Margin
from indexmill.formats.sources.joined import VectorSource
from indexmill.pipeline.kinds.common.cluster import sampled
from indexmill.pipeline.kinds.common.metric import as_asked, usable
from indexmill.reader.queries import as_queries
from indexmill.reader.router import Router
from indexmill.reader.threads import run_blocks

#: Queries of a sample: more tell the share of all queries more closely, and cost as much more.
QUERIES = 512
#: Nearest neighbours of each, as many as a search finds by default.
NEIGHBOURS = 10
#: Of the neighbours, the share that lies in the parts which are asked: more than the 99% that queries to come are to
#: find there, since a sample may be lucky.
SHARE = 0.995
#: Margins are whole multiples of 1 / `_STEPS`, and at most `MOST`, where centroids are all but equal.
_STEPS, MOST = 100, 100.0
#: Vectors of a task, and so of a product. They affect its last bits, so they must not depend on the number of threads.
_ROWS = 1024
#: Fills the end of lists that are not full.
_NOTHING = 0xFFFFFFFF


class NeighbourParts:
    """Keeper of the parts in which the nearest vectors of each query lie, given all vectors batch by batch.

    Distances are computed by float32 products, and equal ones are ordered by part. Memory: `margin_bytes`.

    Parameters
    ----------
    queries : array, shape (n_queries, dim)
        As vectors are compared: of unit length under cosine.
    origin : float32 array, shape (dim,)
        A place among the vectors, near which products are precise.
    rows : int64 array, shape (n_queries,), optional
        The vector that each query is, which is none of its own neighbours; by default queries are no vectors.
    threads : int
        Does not change the result.
    """

    def __init__(
        self,
        queries: NDArray[Any],
        origin: NDArray[np.float32],
        rows: NDArray[np.int64] | None = None,
        threads: int = 1,
    ) -> None:
        self._queries, self._origin, self._rows, self._threads = queries, origin, rows, threads
        self._asked = with_one(queries - origin)
        self._kept: list[tuple[NDArray[np.float32], NDArray[np.uint32]]] = []

    def add(self, start: int, vectors: NDArray[Any], parts: NDArray[np.uint32]) -> None:
        """Add vectors, shape (m, dim), the first of which is vector `start` of the input, and the part of each."""
        numbers, spare = np.arange(len(self._asked)), list(self._kept)

        def block(first: int, last: int) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # such scores are no neighbours
                scores = self._asked @ augment(vectors[first:last] - self._origin)
            if self._rows is not None:
                places = self._rows - (start + first)
                inside = np.flatnonzero((places >= 0) & (places < last - first))
                scores[inside, places[inside]] = np.nan
            try:
                kept = spare.pop()
            except IndexError:  # another thread
                kept = self._empty()
                self._kept.append(kept)
            keep_nearest(scores, numbers, parts[first:last], *kept)
            spare.append(kept)

        run_blocks(block, len(vectors), _ROWS, self._threads)

    def _empty(self) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
        """Return distances and parts of no neighbours."""
        shape = len(self._asked), NEIGHBOURS
        return np.full(shape, np.inf, np.float32), np.full(shape, _NOTHING, np.uint32)

    def margin(self, router: Router) -> Margin | None:
        """Return the margin by which the parts asked hold `SHARE` of all neighbours; None where there are none."""
        distances, parts = (
            np.concatenate(column, axis=1) for column in zip(self._empty(), *self._kept, strict=True)
        )
        nearest = np.lexsort((parts, distances), axis=1)[:, :NEIGHBOURS]
        there = np.isfinite(np.take_along_axis(distances, nearest, 1))
        owners = np.where(there, np.take_along_axis(parts, nearest, 1), 0)
        needed = np.take_along_axis(router.beyond(self._queries)[1], owners, 1)[there]
        if needed.size == 0:
            return None
        least = np.sort(needed)[math.ceil(SHARE * needed.size) - 1]
        # A part is asked where the query lies nearer than the margin: the next multiple, which is never 0.
        value = (math.floor(least * _STEPS) + 1) / _STEPS if least < MOST else MOST
        drawn_from = "query_sample" if self._rows is None else "vectors"
        return Margin(value, float(np.mean(needed < value)), NEIGHBOURS, len(self._queries), drawn_from)


def drawn_queries(sample: VectorSource, dtype: np.dtype[Any], metric: str, seed: int) -> NDArray[Any]:
    """Return queries drawn from a sample of them, as they are compared with vectors of type `dtype`.

    Raises
    ------
    InputError
        If a query does not fit integer vectors.
    """
    rows = usable(sample.read(sampled(sample.n_vectors, QUERIES, seed)), metric)
    return as_asked(as_queries(rows, dtype, sample.dim), metric)


def margin_bytes(dim: int, threads: int) -> int:
    """Return the memory of `NeighbourParts` and its queries: of each thread a block of vectors twice, and scores."""
    queries = QUERIES * (4 * dim + 4 * (dim + 1) + 8)
    return queries + threads * (
        _ROWS * (4 * dim + 4 * (dim + 1) + 8 + 4 * QUERIES) + QUERIES * NEIGHBOURS * 8
    )
