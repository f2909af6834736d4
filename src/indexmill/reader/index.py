"""Python face of the native reader: numpy in, numpy out."""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexmill.formats.errors import ConfigError
from indexmill.reader import _native
from indexmill.reader.choices import (
    DEFAULT_BEAM_WIDTH,
    DEFAULT_ENTRY,
    DEFAULT_INFLIGHT,
    DEFAULT_POLICY,
    DEFAULT_SEARCH_LIST_SIZE,
    Entry,
    Policy,
)
from indexmill.reader.filters import as_mask
from indexmill.reader.opened import Opened
from indexmill.reader.orders import as_order
from indexmill.reader.trace import trace_table

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class SearchResult:
    """Neighbours of a block of queries.

    Attributes
    ----------
    ids : int64, uint64 or object array, shape (n_queries, k)
        User ids; the vector id where the input had no id column. Object arrays hold str or bytes, and None
        where fewer than k vertices were reachable; int64 arrays hold -1 there, uint64 arrays 2^64 - 1: where it
        matters, look at `vector_ids`.
    scores : float32 array, shape (n_queries, k)
        Squared distance (l2, smaller is better), cosine or inner product (larger is better); NaN if missing.
    vector_ids : int64 array, shape (n_queries, k)
        Positions in the input; -1 if missing.
    slots : int64 array, shape (n_queries, k)
        Positions in the layout; -1 if missing.
    counters : dict of 1-D arrays, shape (n_queries,)
        What each query cost: pages_read, bytes_read, bytes_used, hops, distances, latency_us and more.
    trace : pyarrow.Table, optional
        What was asked for with ``trace``: a row for each event, query after query, in the order
        of events, but sorted by slot where it would depend on which of a round's reads arrived first.

        ``query`` : uint32
        ``kind`` : string
            ``read``, a page was asked for; ``cached``, it was taken from the cache for a vertex that was chosen;
            ``measure``, the exact distance of a vertex was computed; ``expand``, its neighbours were followed.
        ``hop`` : uint32
            The round, from 1; under ``pipeline`` a read's place in its chain of reads, and otherwise the longest chain
            so far. The largest is the query's ``hops``.
        ``page`` : uint64
            The page, counted from that of slot 0; where a node takes several pages, the node's slot.
        ``vertex`` : uint32
            Slot; null for reads and cached pages.
        ``distance`` : float32
            Exact distance of the vertex: the squared Euclidean distance of stored vectors, or the negated inner
            product; null where there is no vertex.
    """

    ids: NDArray[Any]
    scores: NDArray[np.float32]
    vector_ids: NDArray[np.int64]
    slots: NDArray[np.int64]
    counters: dict[str, NDArray[Any]]
    trace: pa.Table | None = None


@dataclass(frozen=True)
class RangeResult:
    """Vectors within a radius of each query of a block; those of query i are at ``starts[i]:starts[i + 1]``.

    Attributes
    ----------
    starts : int64 array, shape (n_queries + 1,)
    ids : int64, uint64 or object array, shape (starts[-1],)
        User ids, nearest first within a query; the vector id where the input had no id column.
    scores : float32 array, shape (starts[-1],)
        In the index's metric, as in `SearchResult`.
    vector_ids, slots : int64 array, shape (starts[-1],)
    counters : dict of 1-D arrays, shape (n_queries,)
    """

    starts: NDArray[np.int64]
    ids: NDArray[Any]
    scores: NDArray[np.float32]
    vector_ids: NDArray[np.int64]
    slots: NDArray[np.int64]
    counters: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class CacheInfo:
    """What a cache of hot vertices holds: `n_pages` pages of graph.imx in `n_bytes` bytes of memory."""

    n_pages: int
    n_bytes: int


class Index(Opened["_native.Index"]):
    """An opened index; safe to search from several threads at once.

    Parameters
    ----------
    path : path
        The index directory.
    engine : str
        How pages are read: ``auto`` (io_uring where the system allows it, else pread), ``io_uring``, ``sqpoll``,
        ``pread``, ``mmap`` or ``simulated:PROFILE.json``.

    Raises
    ------
    ForeignFile, CorruptFile, TooOld, TooNew
        If the directory does not hold an index that this reader can use.
    ConfigError
        If the engine is unknown or cannot be set up.
    """

    kind = "graph"

    def __init__(self, path: str | Path, engine: str = "auto") -> None:
        super().__init__(path, _native.Index.open(str(path), engine), engine)
        self._cached = CacheInfo(0, 0)

    def __len__(self) -> int:
        return self.native.n_vertices

    def __repr__(self) -> str:
        n = self.native
        return (
            f"Index({str(self.path)!r}, {n.n_vertices:,} x {n.dim} {n.dtype}, {n.metric}, R={n.max_degree})"
        )

    @property
    def default_entry(self) -> Entry:
        """What ``auto`` stands for: ``navigation`` where the index has such a graph, else ``centroids``."""
        return "navigation" if self.native.n_navigation else "centroids"

    def search(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        L: int | None = None,
        beam_width: int = DEFAULT_BEAM_WIDTH,
        policy: Policy = DEFAULT_POLICY,
        entry: Entry = DEFAULT_ENTRY,
        threads: int = 1,
        inflight: int = DEFAULT_INFLIGHT,
        deterministic: bool = True,
        allow: ArrayLike | _native.Filter | None = None,
        trace: bool = False,
    ) -> SearchResult:
        """Find the k nearest vectors of each query.

        Parameters
        ----------
        queries : array, shape (n_queries, dim) or (dim,)
            In the index's input type; integers are accepted by float indexes, and whole numbers in range
            by integer indexes. numpy, anything with ``__array__``, or an Arrow array or column of lists.
        k : int
            Neighbours wanted, at most the number of vectors.
        L : int, optional
            Candidates kept; larger is slower and finds more. Default: the larger of 64 and 2k.
        beam_width : int
            Page reads a query has in flight at most.
        policy : {"pipeline", "page", "completion", "beam"}
            Page search without a barrier between reads; DiskANN++ Algorithm 5; AIO-ANN Algorithm 1; DiskANN++
            Algorithm 1 (DiskANN's search).
        entry : {"auto", "navigation", "centroids", "medoid", "previous"}
            Where to start: a graph over a sample of the vectors; the nearest centroid (DiskANN++ section III); the
            medoid; the results of the query answered before (AIO-ANN). ``auto``: see `default_entry`.
        threads, inflight : int
            Search threads, and queries each of them interleaves.
        deterministic : bool
            Take reads up in the order in which they were chosen, so that results and counters repeat bit for
            bit. Otherwise as they arrive, which makes a difference under ``pipeline`` and for ``previous`` only.
        allow : Filter, bool array of shape (n_vectors,), or int array of vector ids, optional
            Vectors that may be returned. Make a filter that is used more than once with `filter`. With few
            allowed vectors all of them are scored by their codes and the nearest L are read; with many the graph
            is searched with a list that is longer by the share of the others.
        trace : bool
            Note every read, distance and expansion, in `SearchResult.trace`: about 500 rows a query.

        Raises
        ------
        InputError
            If the queries' shape, type or values do not fit, or k or L cannot be met.
        ConfigError
            If another parameter is out of range.
        CorruptFile
            If a page that was read differs from what was written.
        """
        options = self._options(k, L, beam_width, policy, entry, threads, inflight, deterministic, allow)
        found = self.native.search(self._as_queries(queries), options, trace)
        slots, vector_ids, scores = found.pop("slots"), found.pop("vector_ids"), found.pop("scores")
        events = trace_table(found.pop("trace")) if trace else None
        return SearchResult(self._user_ids(slots, vector_ids), scores, vector_ids, slots, found, events)

    def range_search(
        self,
        queries: ArrayLike,
        radius: float,
        *,
        L: int | None = None,
        beam_width: int = DEFAULT_BEAM_WIDTH,
        policy: Policy = DEFAULT_POLICY,
        entry: Entry = DEFAULT_ENTRY,
        threads: int = 1,
        inflight: int = DEFAULT_INFLIGHT,
        deterministic: bool = True,
        allow: ArrayLike | _native.Filter | None = None,
    ) -> RangeResult:
        """Find the vectors of each query whose score is at least as good as `radius`.

        Parameters
        ----------
        radius : float
            The largest squared distance (l2), or the smallest cosine or inner product.
        L : int, optional
            Candidates kept at first; doubled while more than half of them turn out to be within the radius.
        queries, beam_width, policy, entry, threads, inflight, deterministic, allow
            As for `search`.

        Raises
        ------
        InputError, ConfigError, CorruptFile
            As for `search`.
        """
        options = self._options(1, L, beam_width, policy, entry, threads, inflight, deterministic, allow)
        found = self.native.range_search(self._as_queries(queries), radius, options)
        names = ("starts", "slots", "vector_ids", "scores")
        starts, slots, vector_ids, scores = (found.pop(name) for name in names)
        return RangeResult(starts, self._user_ids(slots, vector_ids), scores, vector_ids, slots, found)

    def filter(self, allow: ArrayLike) -> _native.Filter:
        """Make a filter for `search` from a bool array of shape (n_vectors,) or an array of vector ids.

        Takes one pass over ids.imx (4 bytes a vector) and n / 8 bytes of memory.

        Raises
        ------
        InputError
            If the array has another shape or type, or an id is out of range.
        """
        return self.native.filter(np.packbits(as_mask(allow, len(self)), bitorder="little"))

    def remapped(self, order: ArrayLike) -> Index:
        """Return the same index as if the vertex in slot ``order[s]`` lived in slot s: the judge of a layout.

        It is searched by the reader's own code, on pages that are composed in memory: results and, with
        ``deterministic``, all counters but the times are those of the index written in that order. It is as good an
        index as any, with filters and a cache of its own, and may be remapped again.

        The first call reads all nodes into memory, as much as ``graph.imx`` takes, which the index and all of its views
        share. A view takes 8 bytes a vertex, and codes, entry vertices and navigation graph of its own.

        Parameters
        ----------
        order : integer array, shape (n_vectors,)
            A permutation of the slots.

        Raises
        ------
        InputError
            If `order` is no permutation, naming the position, or the index was replaced since it was opened.
        ConfigError
            If the memory is refused.
        CorruptFile
            If ``graph.imx`` is damaged.
        """
        view = copy.copy(self)
        view.native = self.native.remapped(as_order(order, len(self)))
        view._cached = CacheInfo(0, 0)
        return view

    def cache(
        self,
        n_bytes: int,
        queries: ArrayLike | None = None,
        *,
        L: int | None = None,
        beam_width: int = DEFAULT_BEAM_WIDTH,
        policy: Policy = DEFAULT_POLICY,
        entry: Entry = DEFAULT_ENTRY,
    ) -> CacheInfo:
        """Keep pages of hot vertices in memory for all later searches; replaces the cache there was.

        Parameters
        ----------
        n_bytes : int
            Memory of the cache at most: pages and 8 bytes for each read unit of them; 0 drops it. Searches that run
            go on with what they had.
        queries : array, optional
            A sample of the queries to expect: the pages that a search for them reads most often are kept. Without
            it those that a breadth-first walk from the medoid and the centroids' vertices meets first; a search
            that starts from the navigation graph does not begin there.
        L, beam_width, policy, entry
            How the training queries are searched, as for `search`.

        Raises
        ------
        InputError, ConfigError, CorruptFile
            As for `search`.
        """
        if n_bytes < 0:
            raise ConfigError(f"n_bytes: expected 0 or more bytes, got {n_bytes}; pass 0 for no cache")
        n_bytes = min(n_bytes, sys.maxsize)
        if queries is None:
            n_blocks, used = self.native.cache_around_entries(n_bytes)
        else:
            inflight = (
                1 if entry == "previous" else DEFAULT_INFLIGHT
            )  # which query is the one before must be certain
            options = self._options(1, L, beam_width, policy, entry, 1, inflight, True, None)
            n_blocks, used = self.native.cache_from_queries(self._as_queries(queries), options, n_bytes)
        self._cached = CacheInfo(n_blocks * self.native.pages_per_node, used)
        return self._cached

    @property
    def cached(self) -> CacheInfo:
        """What the last call of `cache` kept."""
        return self._cached

    def _options(
        self,
        k: int,
        L: int | None,
        beam_width: int,
        policy: Policy,
        entry: Entry,
        threads: int,
        inflight: int,
        deterministic: bool,
        allow: ArrayLike | _native.Filter | None,
    ) -> _native.Options:
        """Arguments as the native reader takes them."""
        if L is None:
            L = min(max(DEFAULT_SEARCH_LIST_SIZE, 2 * k), max(len(self), k))
        if entry == "auto":
            entry = self.default_entry
        if allow is not None and not isinstance(allow, _native.Filter):
            allow = self.filter(allow)
        return {
            "k": k,
            "search_list_size": L,
            "beam_width": beam_width,
            "policy": policy,
            "entry": entry,
            "threads": threads,
            "inflight": inflight,
            "deterministic": deterministic,
            "allow": allow,
        }
