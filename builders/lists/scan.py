"""Nearest vectors to many queries among inverted lists in memory, each list scanned once for all its queries.

This is the search of one batch in the Batch Similarity Search paper (section 4.2, Equation 7), but list by list instead
of query by query, so that a list enters a core's cache once. Bytes are compared in integers. Plain floats with many
queries are found by byte codes, whose bounds prove that nothing is missed. Other vectors are found by float32 products
with a margin. Both are ranked by distances computed in float64 from the rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg  # noqa: F401 - numba's products call the BLAS it loads, which must be there to be told its threads
from numpy.typing import NDArray

from indexmill.builders.lists.coded import can_be_coded, merge_coded
from indexmill.builders.lists.coding import code_queries
from indexmill.builders.lists.rows import INT8, PQ, RABITQ, SQ8, UINT8, Lists, RowFormat, exact_keys
from indexmill.builders.lists.scan_lists import scan_bytes, scan_floats
from indexmill.builders.nearest.pairs import Pairs
from indexmill.builders.nearest.panels import MAX_DIM, NO_SCORE, NOTHING
from indexmill.reader.threads import BlockPool

#: Candidates kept beyond k, because float32 products round.
MARGIN = 16
#: Queries of a row, in the mean, from which codes of floats are faster than products.
CODED_QUERIES = 256
#: Lists of a task, and queries of a task that computes exact distances.
_LISTS, _QUERIES = 8, 256


class Nearest(NamedTuple):
    """The k nearest vectors to each query.

    Attributes
    ----------
    keys : float64 array, shape (n_queries, k)
        Squared distances, or negative inner products: ascending, ties by the smaller id; infinity for no vector.
    ids : uint32 array, shape (n_queries, k)
        Vector ids; `NOTHING` for no vector.
    """

    keys: NDArray[np.float64]
    ids: NDArray[np.uint32]


def compares_bytes(form: RowFormat) -> bool:
    """Return whether rows of a format are compared in integers, so that queries must have their type."""
    return form.kind in (UINT8, INT8) and form.dim <= MAX_DIM


def nothing(n_queries: int, k: int) -> Nearest:
    """Return a result without vectors."""
    return Nearest(np.full((n_queries, k), np.inf), np.full((n_queries, k), NOTHING, np.uint32))


def united(parts: list[Nearest], k: int) -> Nearest:
    """Merge the nearest vectors of several sets into the nearest of their union: the paper's k-MinDistSort."""
    if len(parts) == 1 and parts[0].keys.shape[1] == k:
        return parts[0]
    keys = np.concatenate([part.keys for part in parts], axis=1)
    ids = np.concatenate([part.ids for part in parts], axis=1)
    return Nearest(*_least(keys, ids, k))


def once(found: Nearest, k: int) -> Nearest:
    """Return the k nearest distinct vectors, each with the key of its nearest copy.

    Parameters
    ----------
    found : Nearest
        With at least k times the number of copies of a vector, so that it holds k distinct vectors.
    """
    order = np.lexsort((found.keys, found.ids), axis=1)
    ids, keys = np.take_along_axis(found.ids, order, 1), np.take_along_axis(found.keys, order, 1)
    repeated = np.zeros(ids.shape, np.bool_)
    repeated[:, 1:] = ids[:, 1:] == ids[:, :-1]
    ids[repeated], keys[repeated] = NOTHING, np.inf
    return Nearest(*_least(keys, ids, k))


def _least(keys: NDArray[Any], ids: NDArray[np.uint32], k: int) -> tuple[NDArray[Any], NDArray[np.uint32]]:
    """Return the k least keys of each row, ascending, ties by the smaller id, and their ids."""
    best = np.lexsort((ids, keys), axis=1)[:, :k]
    return np.take_along_axis(keys, best, 1), np.take_along_axis(ids, best, 1)


def scan(
    lists: Lists,
    form: RowFormat,
    centroids: NDArray[np.float32],
    queries: NDArray[Any],
    pairs: Pairs,
    k: int,
    threads: int,
    *,
    by_product: bool = False,
) -> Nearest:
    """Return the k nearest vectors to each query in the lists that it probes.

    Memory of each thread: 8 bytes for each query and candidate (k, or k + `MARGIN` for floats), and 2 MiB; by codes,
    `coded.coded_bytes`.

    Parameters
    ----------
    form : RowFormat
    centroids : float32 array, shape (n_lists, dim)
        Centroid of each list, by its number.
    queries : array, shape (n_queries, dim)
        Of the lists' type if `compares_bytes`, else float32.
    pairs : Pairs
        Queries that probe each list.
    threads : int
        Does not change the result.
    by_product : bool
        Rank by inner product. Plain vectors have one length, so candidates are found by distance, which loses fewer
        digits. Decoded vectors differ in length and are compared by inner product from the start.
    """
    # Read-only arrays are types of their own, for which numba would compile the kernels again.
    columns: list[Any] = [np.require(column, requirements=["C", "W"]) for column in lists]
    lists = Lists(*columns)
    centroids = np.require(centroids, np.float32, ["C", "W"])
    with BlockPool(threads) as pool:
        if compares_bytes(form):
            return _scan_bytes(lists, form, queries, pairs, k, pool)
        if can_be_coded(form) and _queries_of_row(lists, pairs) >= CODED_QUERIES:
            found, asked = nothing(len(queries), k), code_queries(queries, pool)
            merge_coded(lists, form, asked, pairs, *found, pool, threads, by_product=by_product)
            return found
        return _scan_floats(lists, form, centroids, queries, pairs, k, pool, by_product)


def _queries_of_row(lists: Lists, pairs: Pairs) -> float:
    """Return the number of queries that a row is compared with, in the mean."""
    return float(np.diff(pairs.starts)[lists.names] @ lists.sizes) / max(1, int(lists.sizes.sum()))


def _scan_bytes(
    lists: Lists, form: RowFormat, queries: NDArray[Any], pairs: Pairs, k: int, pool: BlockPool
) -> Nearest:
    flip = 0x80 if form.kind == INT8 else 0
    asked = np.ascontiguousarray(queries).view(np.uint8) ^ np.uint8(flip)
    starts = lists.starts

    def run(first: int, last: int, scores: NDArray[Any], found: NDArray[Any]) -> None:
        scan_bytes(asked, *pairs, lists, starts, first, last, form.dim, flip, scores, found)

    scores, ids = _by_lists(run, len(lists.sizes), (len(queries), k), NO_SCORE, np.int32, pool)
    keys = scores + np.einsum("ij,ij->i", asked, asked, dtype=np.int64)[:, None].astype(np.float64)
    keys[ids == NOTHING] = np.inf
    return Nearest(keys, ids)


def _scan_floats(
    lists: Lists,
    form: RowFormat,
    centroids: NDArray[np.float32],
    queries: NDArray[Any],
    pairs: Pairs,
    k: int,
    pool: BlockPool,
    by_product: bool,
) -> Nearest:
    asked, starts = np.require(queries, np.float32, ["C", "W"]), lists.starts
    of_codes = by_product and form.kind in (SQ8, PQ, RABITQ)

    def run(first: int, last: int, scores: NDArray[Any], found: NDArray[Any]) -> None:
        scan_floats(asked, *pairs, lists, starts, first, last, form, centroids, of_codes, scores, found)

    shape = len(queries), k + MARGIN
    _, places = _by_lists(run, len(lists.sizes), shape, np.inf, np.float32, pool)
    keys = np.empty(shape, np.float64)

    def rank(first: int, last: int) -> None:
        exact_keys(asked, first, last, places, lists, starts, form, centroids, by_product, keys)

    pool.run(rank, len(queries), _QUERIES)
    there = np.minimum(places, max(len(lists.ids) - 1, 0))
    ids = np.where(np.isinf(keys), np.uint32(NOTHING), lists.ids[there] if len(lists.ids) else NOTHING)
    return Nearest(*_least(keys, ids.astype(np.uint32), k))


def _by_lists(
    run: Callable[[int, int, NDArray[Any], NDArray[Any]], None],
    n_lists: int,
    shape: tuple[int, int],
    none: float,
    dtype: Any,
    pool: BlockPool,
) -> tuple[NDArray[Any], NDArray[np.uint32]]:
    """Run lists on threads with separate candidates, and merge these.

    The distribution of lists over threads does not matter: (score, name) is a total order, and no list is divided.
    """
    spare: list[tuple[NDArray[Any], NDArray[np.uint32]]] = []
    made: list[tuple[NDArray[Any], NDArray[np.uint32]]] = []

    def block(first: int, last: int) -> None:
        try:
            candidates = spare.pop()
        except IndexError:
            candidates = np.full(shape, none, dtype), np.full(shape, NOTHING, np.uint32)
            made.append(candidates)
        run(first, last, *candidates)
        spare.append(candidates)

    pool.run(block, n_lists, _LISTS)
    scores, names = (np.concatenate([each[i] for each in made], axis=1) for i in (0, 1))
    return (scores, names) if len(made) == 1 else _least(scores, names, shape[1])
