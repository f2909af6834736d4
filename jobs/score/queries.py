"""Queries whose true neighbours are known: from a truth file, or computed from the vectors of an index."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError, InputError

if TYPE_CHECKING:
    from indexmill.jobs.search.results import AnyIndex
    from indexmill.reader.index import Index

#: Rows read at once while the base is loaded.
_BATCH_ROWS = 65536


@dataclass(frozen=True)
class QuerySet:
    """Queries whose nearest neighbours are known.

    Attributes
    ----------
    vectors : array, shape (n_queries, dim)
    truth_ids : int64 array, shape (n_queries, >= k)
        Vector ids, nearest first.
    truth_distances : float32 array, shape (n_queries, >= k)
        Squared Euclidean distances of the metric's space: of normalised vectors under cosine.
    own : int64 array, shape (n_queries,), optional
        Vector id of the query itself, where queries are rows of the index: it counts neither in the truth nor
        in the results.
    """

    vectors: NDArray[Any]
    truth_ids: NDArray[np.int64]
    truth_distances: NDArray[np.float32]
    own: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def part(self, skip: int = 0, first: int | None = None) -> QuerySet:
        """Leave out the first `skip` queries, then keep the `first` next ones (None: all).

        Raises
        ------
        InputError
            If nothing is left.
        """
        chosen = slice(skip, None if first is None else skip + first)
        vectors = self.vectors[chosen]
        if len(vectors) == 0:
            raise InputError(f"--skip {skip}: only {len(self)} queries are there; skip fewer")
        own = None if self.own is None else self.own[chosen]
        ids, distances = self.truth_ids[chosen], self.truth_distances[chosen]
        return replace(self, vectors=vectors, truth_ids=ids, truth_distances=distances, own=own)


def load_queries(
    index: AnyIndex,
    queries: str | None,
    truth: Path | None,
    base: list[str],
    k: int,
    column: str | None = None,
    threads: int = 1,
    allowed: NDArray[np.bool_] | None = None,
) -> QuerySet:
    """Read queries and their truth; without a truth file it is computed from `base`, the index's own input.

    Parameters
    ----------
    allowed : bool array, shape (n_vectors,), optional
        Vectors that may be returned: the truth is theirs.

    Raises
    ------
    ConfigError
        If there are no queries, neither truth nor base, or both.
    InputError
        If the files do not fit each other or the index.
    """
    from indexmill.formats.sources.source import read_queries
    from indexmill.formats.sources.truth import read_truth

    if queries is None:
        raise ConfigError("--queries: missing; name a file of query vectors")
    if truth is None and not base:
        raise ConfigError(
            "--truth: missing; recall needs the true neighbours: pass --truth FILE (big-ann ground truth), or"
            " --base FILE with the vectors the index was built from to compute them"
        )
    if truth is not None and base:
        raise ConfigError("--base: the truth is given by --truth already; keep one of them")
    vectors = read_queries(queries, column=column)
    if vectors.shape[1] != index.dim:
        raise InputError(
            f"{queries}: {vectors.shape[1]} dimensions, but the index {index.path} has {index.dim}; pass the"
            " queries that belong to it"
        )
    if truth is None:
        return exact_queries(index, read_vectors(base, column), vectors, k, threads, allowed=allowed)
    known = read_truth(truth)
    ids = known.ids.astype(np.int64)
    if len(ids) != len(vectors):
        raise InputError(f"{truth}: neighbours of {len(ids)} queries, but {queries} holds {len(vectors)}")
    if ids.size and int(ids.max()) >= len(index):
        raise InputError(
            f"{truth}: names vector {int(ids.max())}, but the index holds {len(index):,} vectors; pass"
            " the truth of this index's input"
        )
    if allowed is not None and not allowed[ids[:, :k]].all():
        wrong = ids[:, :k][~allowed[ids[:, :k]]][0]
        raise InputError(
            f"{truth}: names vector {wrong}, which the filter leaves out; pass the truth of the allowed vectors, or"
            " --base FILE to compute it"
        )
    return QuerySet(vectors, ids, known.distances)


def sample_queries(
    index: Index,
    base: list[str],
    count: int,
    k: int,
    column: str | None = None,
    seed: int = 1,
    threads: int = 1,
) -> QuerySet:
    """Take `count` rows of `base` as queries, each left out of its own truth and results (leave-one-out).

    Raises
    ------
    ConfigError
        If there is no base.
    InputError
        If the base does not fit the index, or has fewer than k + 1 rows.
    """
    if not base:
        raise ConfigError("--sample-queries: needs --base FILE, the vectors the index was built from")
    vectors = read_vectors(base, column)
    rows = np.sort(np.random.default_rng(seed).choice(len(vectors), min(count, len(vectors)), replace=False))
    return exact_queries(index, vectors, vectors[rows], k, threads, own=rows.astype(np.int64))


def exact_queries(
    index: AnyIndex,
    base: NDArray[Any],
    queries: NDArray[Any],
    k: int,
    threads: int = 1,
    own: NDArray[np.int64] | None = None,
    allowed: NDArray[np.bool_] | None = None,
) -> QuerySet:
    """Compute the k true neighbours of `queries` among `base`, the vectors of `index` in input order.

    Parameters
    ----------
    base : array, shape (n_vectors, dim)
    queries : array, shape (n_queries, dim)
    own : int64 array, shape (n_queries,), optional
        Row of `base` that each query is.
    allowed : bool array, shape (n_vectors,), optional
        Rows of `base` that count; not with `own`.

    Raises
    ------
    InputError
        If `base` is not the index's input by its shape, or too small for k.
    """
    from indexmill.builders.lists.exact import exact_neighbours

    if base.shape != (len(index), index.dim):
        raise InputError(
            f"--base: {base.shape[0]:,} vectors of {base.shape[1]} dimensions, but the index {index.path} was"
            f" built from {len(index):,} of {index.dim}; pass the same input"
        )
    rows = None if allowed is None else np.flatnonzero(allowed)
    most = len(base) - (own is not None) if rows is None else len(rows)
    if k > most:
        raise InputError(f"-k: {k} neighbours wanted of {most} vectors; use a smaller k")
    points, probes = to_euclidean(base, queries, index.metric)
    if rows is not None:
        points = points[rows]
    ids, distances = exact_neighbours(points, probes, k, threads, skip=own)
    truth_ids = ids.astype(np.int64) if rows is None else rows[ids]
    return QuerySet(queries, truth_ids, distances, own)


def read_vectors(paths: list[str], column: str | None = None) -> NDArray[Any]:
    """Read all vectors of `paths` into memory; shape (n_vectors, dim), in the input's type."""
    from indexmill.formats.sources.source import open_source

    source = open_source(paths, column=column)
    vectors = np.empty((source.n_vectors, source.dim), source.dtype)
    for batch in source.batches(_BATCH_ROWS):
        vectors[batch.start : batch.start + len(batch.vectors)] = batch.vectors
    return vectors


def to_euclidean(base: NDArray[Any], queries: NDArray[Any], metric: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Map vectors and queries to where the nearest by Euclidean distance are the nearest by `metric`.

    See docs/formats/graph.md: cosine normalises both, inner product appends ``sqrt(M^2 - |x|^2)`` to the
    vectors and 0 to the queries.
    """
    from indexmill.pipeline.kinds.common.metric import added_component, unit

    if metric == "cosine":
        return unit(base), unit(queries)
    if metric == "ip":
        rest = added_component(np.einsum("ij,ij->i", base, base, dtype=np.float64))
        points = np.column_stack([base.astype(np.float32), rest])
        return points, np.column_stack([queries.astype(np.float32), np.zeros(len(queries), np.float32)])
    return base, queries
