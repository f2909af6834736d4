"""Queries for judging layouts: the caller's, or vectors of the index, each left out of its own results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.formats.errors import InputError
from indexmill.formats.sources.bfloat16 import numeric
from indexmill.pipeline.draws import REGION_QUERIES, drawn_rows
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common.judge import TuningQueries, distances_to
from indexmill.pipeline.kinds.common.metric import as_asked
from indexmill.pipeline.relayout.region import Region

K = 10
#: Largest squared length of a query whose distances are float32 numbers, and queries that are checked at a time.
_MOST_SQUARE, _CHECKED = float(np.finfo(np.float32).max) / 4, 4096
#: Queries in the region at least, where there are as many: the nearest to its centre, if fewer lie in it.
_LEAST_QUERIES = 50


@dataclass(frozen=True)
class GivenQueries:
    """Queries of the caller.

    Attributes
    ----------
    vectors : array, shape (q, dim)
        In the type the index takes.
    truth : int64 array, shape (q, at least 10), or None
        Vector ids of their true neighbours in the whole index, nearest first; computed if it is not given.
    """

    vectors: NDArray[Any]
    truth: NDArray[np.int64] | None = None


def as_given(vectors: NDArray[Any] | None, truth: NDArray[Any] | None) -> GivenQueries | None:
    """Check queries and their truth as arrays.

    Raises
    ------
    InputError
        If there are no queries, or one is not finite, or there is a truth without queries or for another number of
        them.
    """
    if vectors is None:
        if truth is not None:
            raise InputError("truth: goes with queries; pass those it belongs to")
        return None
    vectors = checked(vectors, "queries")
    if truth is None:
        return GivenQueries(vectors)
    truth = np.asarray(truth)
    if truth.ndim != 2 or truth.dtype.kind not in "iu" or len(truth) != len(vectors):
        raise InputError(
            f"truth: expected integers of shape ({len(vectors)}, k), got {truth.dtype} of shape {truth.shape}"
        )
    return GivenQueries(vectors, truth.astype(np.int64))


def checked(queries: NDArray[Any], name: str) -> NDArray[Any]:
    """Return queries that were given as `name`, as numbers.

    Raises
    ------
    InputError
        If there are none, or one is not finite.
    """
    queries = numeric(np.asarray(queries))
    if not queries.size or queries.dtype.kind not in "fiu":
        raise InputError(
            f"{name}: expected numbers, of one query at least, got {queries.dtype} of shape {queries.shape}"
        )
    wrong = np.argwhere(~np.isfinite(queries))
    if len(wrong):
        value = queries[tuple(wrong[0])]
        raise InputError(f"{name}: row {wrong[0][0]}: expected finite numbers, got {value}; leave it out")
    return queries


def tuning_queries(
    index: OpenedIndex,
    given: GivenQueries | None,
    region: Region,
    rows: NDArray[Any],
    count: int,
    threads: int,
) -> TuningQueries:
    """Return at most `count` queries for a sample of an index; its seed draws those that are vectors.

    Parameters
    ----------
    given : GivenQueries, optional
        Those that lie in the region; vectors of a sample make up for what is missing to `count`, for a few dozen
        queries do not tell one order from another.
    rows : uint8 or float32 array, shape (s, stored dim)
        Vectors of the region, as compared.

    Raises
    ------
    InputError
        If the queries do not fit the index.
    """
    n = len(rows)
    k = min(K, n - 1)
    if given is None:
        return _of_region(index, rows, min(count, n), k, threads)
    compared = as_compared(index, given.vectors)
    chosen = _inside(compared, region, count) if n < index.n else np.arange(min(count, len(compared)))
    compared = compared[chosen]
    if given.truth is None or n < index.n:
        kth = exact_neighbours(rows, compared, k, threads)[1][:, -1].astype(np.float64)
    else:
        kth = distances_to(rows, _kth_of_truth(index, given.truth[chosen], k), compared)[:, 0]
    chosen_queries = TuningQueries(given.vectors[chosen], compared, kth, k, None)
    missing = min(count - len(chosen), n)
    if n == index.n or missing <= 0:
        return chosen_queries
    return _joined(chosen_queries, _of_region(index, rows, missing, k, threads))


def _of_region(index: OpenedIndex, rows: NDArray[Any], count: int, k: int, threads: int) -> TuningQueries:
    """Draw `count` of `rows`, each left out of its own neighbours."""
    own, queries, vectors = drawn_queries(index, rows, count)
    _, distances = exact_neighbours(rows, queries, k, threads, skip=own)
    return TuningQueries(vectors, queries.astype(np.float32), distances[:, -1].astype(np.float64), k, own)


def drawn_queries(
    index: OpenedIndex, rows: NDArray[Any], count: int
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
    """Draw `count` of `rows`, vectors of `index` as they are compared, for queries.

    Returns
    -------
    own : int64 array, shape (s,)
        Their numbers, ascending.
    compared : array, shape (s, stored dim)
        As they are compared with `rows`.
    vectors : array, shape (s, dim)
        As a caller of `Index.search` has them.
    """
    own = drawn_rows(index.parameters.seed, REGION_QUERIES, len(rows), count)
    queries = np.array(rows[own])
    queries[:, index.dim :] = 0  # inner product: a query has nothing in the added dimension
    return own, queries, index.space.as_given(queries)[:, : index.dim]


def _joined(given: TuningQueries, drawn: TuningQueries) -> TuningQueries:
    """Return both; those that were given have no vector of their own."""
    assert drawn.own is not None
    own = np.concatenate([np.full(len(given), -1), drawn.own])
    vectors = np.concatenate([given.vectors, drawn.vectors.astype(given.vectors.dtype)])
    compared = np.concatenate([given.compared, drawn.compared])
    return TuningQueries(vectors, compared, np.concatenate([given.kth, drawn.kth]), given.k, own)


def _kth_of_truth(index: OpenedIndex, truth: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return column k, shape (q, 1), checked."""
    if truth.shape[1] < k:
        raise InputError(
            f"truth: {truth.shape[1]} neighbours a query; expected at least {k}: pass more, or leave the truth out"
        )
    wrong = np.argwhere((truth[:, :k] < 0) | (truth[:, :k] >= index.n))
    if len(wrong):
        row, column = wrong[0]
        raise InputError(
            f"truth: query {row} names vector {truth[row, column]}, but {index.path} holds {index.n:,}; pass the truth "
            "of this index's input"
        )
    return truth[:, k - 1 : k]


def check_queries(index: OpenedIndex, queries: NDArray[Any], name: str = "queries") -> None:
    """Refuse queries, finite numbers given as `name`, that searches of `index` would refuse later.

    Raises
    ------
    InputError
        If they have another dimension, values that do not fit, no direction under cosine, or distances that overflow.
    """
    if queries.ndim != 2 or queries.shape[1] != index.dim:
        raise InputError(
            f"{name}: expected shape (q, {index.dim}) for {index.path}, got {queries.shape}; pass the queries that "
            "belong to it"
        )
    stored = index.graph.node_format.dtype
    want = np.dtype(stored if stored in ("uint8", "int8") else np.float32)
    for first in range(0, len(queries), _CHECKED):
        rows = queries[first : first + _CHECKED]
        with np.errstate(over="ignore", invalid="ignore"):
            cast = rows.astype(want, copy=False)
        is_wrong, expected = _refused(rows, cast, index.graph.metric)
        if is_wrong.any():
            raise InputError(f"{name}: row {first + int(is_wrong.argmax())}: expected {expected}")


def _refused(rows: NDArray[Any], cast: NDArray[Any], metric: str) -> tuple[NDArray[np.bool_], str]:
    """Tell which queries a search refuses, bool (q,), and what it expects instead.

    The rules are those of `reader/core/src/search/queries.rs`.

    Parameters
    ----------
    rows, cast : arrays, shape (q, dim)
        Queries as given, and in the type of the index.
    """
    if cast.dtype.kind in "iu":
        bounds = np.iinfo(cast.dtype)
        fitting = f"whole numbers that fit the index's {cast.dtype}; round them to {bounds.min}..{bounds.max}"
        return (cast != rows).any(axis=1), fitting
    if metric == "cosine":
        is_wrong = ~np.isfinite(cast).all(axis=1) | ~cast.any(axis=1)
        return is_wrong, "a direction under cosine, in float32, and got none; leave it out"
    squares = np.einsum("ij,ij->i", cast, cast, dtype=np.float64)
    return (
        squares > _MOST_SQUARE,
        f"a squared length of at most {_MOST_SQUARE:.2e}, and got more; scale it down",
    )


def as_compared(index: OpenedIndex, queries: NDArray[Any]) -> NDArray[np.float32]:
    """Return queries (q, dim) as they are compared with the vectors of `index`, float32 (q, stored dim)."""
    rows = as_asked(queries, index.graph.metric).astype(np.float32)
    return rows + np.float32(128) if index.graph.node_format.dtype == "int8" else rows


def _inside(queries: NDArray[np.float32], region: Region, count: int) -> NDArray[np.int64]:
    """Rows of at most `count` queries within the region, evenly spaced, or else of the nearest to its centre."""
    differences = queries.astype(np.float64) - region.centre
    distances = np.einsum("ij,ij->i", differences, differences)
    inside = np.flatnonzero(distances <= region.radius)
    if len(inside) < min(_LEAST_QUERIES, len(queries)):
        inside = np.sort(np.argsort(distances, kind="stable")[:_LEAST_QUERIES])
    if len(inside) <= count:
        return inside
    return inside[np.linspace(0, len(inside) - 1, count).astype(np.int64)]
