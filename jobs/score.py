"""Recall and cost of searches over a query set with known answers.

A result counts as found if it is one of the k true neighbours, or lies no farther than the k-th of them:
about one query in a hundred ties there, and then either answer is right.
"""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.pipeline.recall import mean_recall
from indexmill.reader.choices import DEFAULT_ENTRY, DEFAULT_POLICY

if TYPE_CHECKING:
    from indexmill.formats.device import DeviceProfile
    from indexmill.reader._native import Filter
    from indexmill.reader.index import Index, SearchResult

#: Two float32 sums of a few hundred squares in a different order differ by less than this fraction.
DISTANCE_TOLERANCE = 2e-6
#: Deepest queue that device profiles tell of.
MAX_DEPTH = 128


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
        return replace(
            self,
            vectors=vectors,
            truth_ids=self.truth_ids[chosen],
            truth_distances=self.truth_distances[chosen],
            own=own,
        )


@dataclass(frozen=True)
class Setting:
    """How to search: what one row of a score or of a sweep has in common.

    `None` leaves a value to the reader's default.
    """

    k: int = 10
    policy: str = DEFAULT_POLICY
    entry: str = DEFAULT_ENTRY
    threads: int = 1
    beam_width: int | None = None
    inflight: int | None = None
    deterministic: bool = True
    allow: Filter | None = None

    @property
    def width(self) -> int:
        """Page reads a query has in flight at most."""
        return _reader_default("beam_width") if self.beam_width is None else self.beam_width

    @property
    def in_flight(self) -> int:
        """Queries a thread interleaves."""
        return _reader_default("inflight") if self.inflight is None else self.inflight

    def options(self) -> dict[str, Any]:
        """Keyword arguments of `Index.search`, without k and L."""
        given = {"beam_width": self.beam_width, "inflight": self.inflight}
        chosen = {name: value for name, value in given.items() if value is not None}
        return {
            "policy": self.policy,
            "entry": self.entry,
            "threads": self.threads,
            "deterministic": self.deterministic,
            "allow": self.allow,
            **chosen,
        }


def score(index: Index, queries: QuerySet, L: int, setting: Setting, repeat: int = 1) -> dict[str, Any]:
    """Search all `queries` with list size `L` and return one row of numbers: of several runs, the medians.

    Returns
    -------
    dict
        ``recall`` with its 95% interval over queries, ``qps`` (queries a second, wall clock, all threads),
        ``reads_per_second`` (pages), latency over all queries (``latency_us_mean``, ``_p50``, ``_p99``), and the
        mean of every other counter of the reader: a query's pages_read, bytes_read, bytes_used, hops,
        distances and more.

    Raises
    ------
    InputError
        If the truth holds fewer than k neighbours a query, or the queries do not fit the index.
    """
    if queries.truth_ids.shape[1] < setting.k:
        raise InputError(
            f"truth: {queries.truth_ids.shape[1]} neighbours a query, but k is {setting.k}; use a smaller -k"
        )
    runs = [_run(index, queries, L, setting) for _ in range(repeat)]
    middle = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
    row: dict[str, Any] = {
        "L": L,
        "policy": setting.policy,
        "entry": index.default_entry if setting.entry == "auto" else setting.entry,
        "beam_width": setting.width,
        "k": setting.k,
        "n_queries": len(queries),
        "threads": setting.threads,
        "inflight": setting.in_flight,
        "repeat": repeat,
        "deterministic": setting.deterministic,
        "n_allowed": None if setting.allow is None else setting.allow.n_allowed,
        "cache_bytes": index.cached.n_bytes,
        **middle,
    }
    return row | {"reads_per_second": row["pages_read"] * row["qps"]}


def _run(index: Index, queries: QuerySet, L: int, setting: Setting) -> dict[str, float]:
    """Search all `queries` once."""
    k = setting.k
    extra = 0 if queries.own is None else 1
    began = time.perf_counter()
    found = index.search(queries.vectors, k + extra, L=L, **setting.options())
    seconds = time.perf_counter() - began
    hits = count_hits(index, found, queries, k)
    recall = mean_recall(hits / k)
    return {
        "recall": recall.mean,
        "recall_low": recall.low,
        "recall_high": recall.high,
        "qps": len(queries) / seconds,
        **summarise_counters(found.counters),
    }


def summarise_counters(counters: dict[str, NDArray[Any]]) -> dict[str, float]:
    """Mean of each counter over queries; latency also at the 50th and 99th percentile."""
    means: dict[str, float] = {}
    for name, values in counters.items():
        if name == "latency_us":
            means["latency_us_mean"] = float(np.mean(values))
            means["latency_us_p50"] = float(np.percentile(values, 50))
            means["latency_us_p99"] = float(np.percentile(values, 99))
        else:
            means[name] = float(np.mean(values))
    return means


def with_device(row: dict[str, Any], profile: DeviceProfile | None) -> dict[str, Any]:
    """Add what the device reached when it was measured with as many 4 KiB reads in flight, and the share of it.

    Returns
    -------
    dict
        `row` with ``device_iops`` (reads a second) and ``device_fraction``, None where they are not known.
    """
    depth = min(row["threads"] * row["inflight"] * row["beam_width"], MAX_DEPTH)
    iops = None if profile is None else profile.iops_at(depth)
    return row | {
        "device_iops": iops,
        "device_fraction": None if iops is None else row["reads_per_second"] / iops,
    }


def _reader_default(name: str) -> int:
    """Return the reader's value of a search option that is not given."""
    from indexmill.reader.index import Index

    return int(inspect.signature(Index.search).parameters[name].default)


def count_hits(index: Index, found: SearchResult, queries: QuerySet, k: int) -> NDArray[np.int64]:
    """Count the right answers among each query's first k results; int64 array, shape (n_queries,).

    Vectors that the index stores rounded (sq8, sq16, float16 of float32) have rounded distances: there only
    the ids count, which can miss a tie but never takes a wrong answer for a right one. The same holds under
    inner product, and for a truth file whose distances are not squared Euclidean ones.
    """
    ids, scores = found.vector_ids, found.scores
    if queries.own is not None:
        ids, scores = drop_own(ids, scores, queries.own)
    ids, scores = ids[:, :k], scores[:, :k]
    truth = queries.truth_ids[:, :k]
    same = ids[:, :, None] == truth[:, None, :]
    right = same.any(axis=2)
    distances = squared_distances(scores, index.metric)
    truth_distances = queries.truth_distances[:, :k]
    if distances is not None and stores_exact_vectors(index) and agree(distances, truth_distances, same):
        limit = queries.truth_distances[:, k - 1 : k] * (1 + DISTANCE_TOLERANCE)
        right |= distances <= limit  # NaN, a missing result, compares false
    right &= ids >= 0
    hits: NDArray[np.int64] = np.sum(right, axis=1, dtype=np.int64)
    return hits


def agree(found: NDArray[np.float64], truth: NDArray[np.float32], same: NDArray[np.bool_]) -> bool:
    """Whether measured and true distances, shapes (n, k) and (n, k), are alike where ids are the same, (n, k, k)."""
    query, i, j = np.nonzero(same)
    ours, theirs = found[query, i], truth[query, j].astype(np.float64)
    alike = np.abs(ours - theirs) <= 1e-3 * np.maximum(np.abs(ours), np.abs(theirs)) + 1e-6
    return bool(alike.mean() > 0.9) if len(alike) else False


def squared_distances(scores: NDArray[np.float32], metric: str) -> NDArray[np.float64] | None:
    """Turn scores back into squared distances; None where the metric's scores do not tell them."""
    if metric == "l2":
        return scores.astype(np.float64)
    if metric == "cosine":
        return 2.0 * (1.0 - scores.astype(np.float64))
    return None


def stores_exact_vectors(index: Index) -> bool:
    """Whether the index keeps its vectors as they were read, by its manifest."""
    from indexmill.jobs.opening import load_manifest

    return bool(load_manifest(index.path)["parameters"]["node_dtype"] == "same")


def drop_own(
    ids: NDArray[np.int64], scores: NDArray[np.float32], own: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Remove each query's own row from its k + 1 results, or the last one where it is not among them."""
    mine = ids == own[:, None]
    mine[~mine.any(axis=1), -1] = True
    shape = (ids.shape[0], ids.shape[1] - 1)
    return ids[~mine].reshape(shape), scores[~mine].reshape(shape)
