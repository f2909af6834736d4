"""Search of graph indexes: the Python interface of the native reader, with numpy arrays in and out."""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexmill.formats.errors import ConfigError
from indexmill.formats.index.names import IDS_NAME
from indexmill.reader import _native
from indexmill.reader.awaiting import outcome
from indexmill.reader.choices import (
    DEFAULT_BEAM_WIDTH,
    DEFAULT_ENTRY,
    DEFAULT_IDS,
    DEFAULT_INFLIGHT,
    DEFAULT_POLICY,
    DEFAULT_SEARCH_LIST_SIZE,
    Entry,
    Place,
    Policy,
    stored_defaults,
)
from indexmill.reader.filters import Allowed, as_mask
from indexmill.reader.opened import Opened, options_of
from indexmill.reader.orders import as_order
from indexmill.reader.tables import Tabular
from indexmill.reader.trace import trace_table

if TYPE_CHECKING:
    from typing import Unpack

    import pyarrow as pa

    from indexmill.reader.choices import GraphChoices
    from indexmill.reader.stored import Stored


@dataclass(frozen=True)
class SearchResult(Tabular):
    """Neighbours of a block of queries; `to_arrow` lays them out as a table.

    Attributes
    ----------
    ids : int64, uint64 or object array, shape (n_queries, k)
        User ids, or vector ids if the input had no ids. If fewer than k vertices were reachable, the others are None in
        object arrays (of str or bytes), -1 in int64 arrays and 2^64 - 1 in uint64 arrays; `vector_ids` tells for
        certain.
    scores : float32 array, shape (n_queries, k)
        Squared distance (l2, smaller is better), cosine or inner product (larger is better); NaN if missing.
    vector_ids : int64 array, shape (n_queries, k)
        Positions in the input; -1 if missing.
    slots : int64 array, shape (n_queries, k)
        Positions in the layout; -1 if missing.
    counters : dict of 1-D arrays, shape (n_queries,)
        Cost of each query: pages_read, bytes_read, id_pages_read, bytes_used, hops, distances, latency_us and more.
    trace : pyarrow.Table, optional
        With ``trace=True``, a row for each event, query after query. Rows are in the order of events, except that they
        are sorted by slot if their order would depend on which of a round's reads arrived first. Columns:

        * ``query``, uint32.
        * ``kind``, string. ``read``: a page was requested; ``cached``: a page for a chosen vertex was in the cache;
          ``measure``: the exact distance of a vertex was computed; ``expand``: the neighbours of a vertex were
          followed.
        * ``hop``, uint32. The round, from 1 on. With policy ``pipeline``, a read's place in its chain of reads, and for
          other events the longest chain so far. The maximum is the query's ``hops``, less one where exact vectors were
          read at the end, which is no event.
        * ``page``, uint64. The page, counted from that of slot 0, or the slot of a node that takes several pages.
        * ``vertex``, uint32. Slot; null for reads and cached pages.
        * ``distance``, float32. Exact distance of the vertex: the squared Euclidean distance of stored vectors, or the
          negative inner product; null without a vertex.

    id_type : str
        ``"none"``, ``"int64"``, ``"uint64"``, ``"string"`` or ``"binary"``: of the index's user ids.
    """

    ids: NDArray[Any]
    scores: NDArray[np.float32]
    vector_ids: NDArray[np.int64]
    slots: NDArray[np.int64]
    counters: dict[str, NDArray[Any]]
    trace: pa.Table | None = None
    id_type: str = "none"


@dataclass(frozen=True)
class RangeResult(Tabular):
    """Vectors within a radius of each query of a block; query i has ``starts[i]:starts[i + 1]``.

    Attributes
    ----------
    starts : int64 array, shape (n_queries + 1,)
    ids : int64, uint64 or object array, shape (starts[-1],)
        User ids, nearest first within a query; vector ids if the input had no ids.
    scores : float32 array, shape (starts[-1],)
        In the index's metric, as in `SearchResult`.
    vector_ids, slots : int64 array, shape (starts[-1],)
    counters : dict of 1-D arrays, shape (n_queries,)
    id_type : str
        As in `SearchResult`.
    """

    starts: NDArray[np.int64]
    ids: NDArray[Any]
    scores: NDArray[np.float32]
    vector_ids: NDArray[np.int64]
    slots: NDArray[np.int64]
    counters: dict[str, NDArray[Any]]
    id_type: str = "none"

    def query_starts(self) -> NDArray[np.int64]:
        """Return `starts`."""
        return self.starts


@dataclass(frozen=True)
class CacheInfo:
    """Size of a cache of hot vertices: `n_pages` pages of graph.imx in `n_bytes` bytes of memory."""

    n_pages: int
    n_bytes: int


class Index(Opened["_native.Index"]):
    """An opened graph index; several threads may search it at once.

    Parameters
    ----------
    path : path
        The index directory.
    engine : str
        Method of reading pages: ``auto`` (io_uring if the system supports it, else pread), ``io_uring``, ``sqpoll``,
        ``pread``, ``mmap`` or ``simulated:PROFILE.json``.
    ids : {"memory", "storage"}
        Whether the ids that searches look up are loaded (4 bytes a vector, 8 more for whole numbers, or 8 and the
        text), or read with the results.
    stored : Stored, optional
        Where pages are, if not in the directory; `engine` is not used then.

    Raises
    ------
    ForeignFile, CorruptFile, TooOld, TooNew
        If the directory is not an index that this reader supports.
    ConfigError
        If the engine is unknown or unavailable, or `ids` is neither place.
    OtherKind
        If the index is of another kind.
    """

    kind = "graph"

    def __init__(
        self,
        path: str | Path,
        engine: str = "auto",
        ids: Place = DEFAULT_IDS,
        stored: Stored | None = None,
    ) -> None:
        super().__init__(path, _native.Index.open(str(path), engine, options_of(stored)), engine, ids, stored)
        self._cached = CacheInfo(0, 0)

    def __len__(self) -> int:
        return self.native.n_vertices

    def _facts(self) -> str:
        return f"R={self.native.max_degree}"

    @property
    def search_defaults(self) -> dict[str, Any]:
        """Policy and beam width of a search that names none."""
        if self._stored is None:
            return {"policy": DEFAULT_POLICY, "beam_width": DEFAULT_BEAM_WIDTH}
        return stored_defaults()

    @property
    def default_entry(self) -> Entry:
        """Meaning of ``auto``: ``navigation`` if the index has such a graph, else ``centroids``."""
        return "navigation" if self.native.n_navigation else "centroids"

    def search(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        L: int | None = None,
        beam_width: int | None = None,
        policy: Policy | None = None,
        entry: Entry = DEFAULT_ENTRY,
        threads: int = 1,
        inflight: int = DEFAULT_INFLIGHT,
        deterministic: bool = True,
        allow: ArrayLike | str | _native.Filter | None = None,
        trace: bool = False,
    ) -> SearchResult:
        """Find the k nearest vectors of each query.

        Parameters
        ----------
        queries : array, shape (n_queries, dim) or (dim,)
            In the index's input type; float indexes also accept integers, and integer indexes whole numbers in range.
            A numpy array, an object with ``__array__``, or an Arrow array or column of lists.
        k : int
            Number of neighbours, at most the number of vectors.
        L : int, optional
            Number of candidates; more are slower and find more. By default the larger of 64 and 2k.
        beam_width : int, optional
            Most page reads in flight of a query. By default 8, and 32 of an index at a URL.
        policy : {"pipeline", "page", "completion", "beam", "rounds"}, optional
            Page search without a barrier between reads; DiskANN++ Algorithm 5; AIO-ANN Algorithm 1; DiskANN++
            Algorithm 1 (DiskANN's search); page search in few rounds of reads. By default ``pipeline``, and ``rounds``
            for an index at a URL.
        entry : {"auto", "navigation", "centroids", "medoid", "previous"}
            Start of the search, by a graph over a sample of the vectors; the nearest centroid (DiskANN++ section III);
            the medoid; the results of the query before (AIO-ANN). ``auto``: see `default_entry`. Policy ``rounds``
            starts at several centroids, one for every four reads in flight.
        threads, inflight : int
            Search threads, and queries interleaved by each of them.
        deterministic : bool
            Process reads in the order of their requests, so that results and counters repeat bit for bit. Otherwise
            reads are processed as they arrive, which makes a difference only for ``pipeline`` and ``previous``.
        allow : Filter, condition, bool array of shape (n_vectors,), or int array of vector ids, optional
            Vectors that may be returned. Use `filter` to make a filter for several searches. If few vectors are
            allowed, all of them are scored by their codes, and the nearest L are read. If many are allowed, edges lead
            to the nearest L of them through other vectors.
        trace : bool
            Record every read, distance and expansion in `SearchResult.trace`: approximately 500 rows a query.

        Raises
        ------
        InputError
            If the shape, type or values of the queries are invalid, or k or L is too large.
        ConfigError
            If another parameter is out of range.
        CorruptFile
            If a page differs from the one written.
        """
        options = self._options(k, L, beam_width, policy, entry, threads, inflight, deterministic, allow)
        return self._result(self.native.search(self._as_queries(queries), options, trace))

    async def search_async(
        self, queries: ArrayLike, k: int = 10, **choices: Unpack[GraphChoices]
    ) -> SearchResult:
        """Find the k nearest vectors of each query, while the event loop of asyncio goes on.

        Any number of searches may be awaited at once: the search threads of the index interleave their queries, and no
        thread waits for a search. A task that is cancelled cancels its search.

        Parameters
        ----------
        queries, k
            See `search`; the queries are copied.
        **choices
            The keywords of `search`, except ``trace``. A filter is best made beforehand: of anything else that
            ``allow`` takes, one is made on another thread for each search.

        Raises
        ------
        InputError, ConfigError, CorruptFile
            As for `search`.
        """
        await self._filter_apart(choices)
        options, converted = self._options(k, **choices), self._as_queries(queries)
        return self._result(
            await outcome(lambda box, token: self.native.search_later(box, token, converted, options))
        )

    def range_search(
        self,
        queries: ArrayLike,
        radius: float,
        *,
        L: int | None = None,
        beam_width: int | None = None,
        policy: Policy | None = None,
        entry: Entry = DEFAULT_ENTRY,
        threads: int = 1,
        inflight: int = DEFAULT_INFLIGHT,
        deterministic: bool = True,
        allow: ArrayLike | str | _native.Filter | None = None,
    ) -> RangeResult:
        """Find the vectors of each query whose score is at least as good as `radius`.

        Parameters
        ----------
        radius : float
            The largest squared distance (l2), or the smallest cosine or inner product.
        L : int, optional
            Number of candidates at first; doubled while more than half of them are within the radius.
        queries, beam_width, policy, entry, threads, inflight, deterministic, allow
            See `search`.

        Raises
        ------
        InputError, ConfigError, CorruptFile
            As for `search`.
        """
        options = self._options(1, L, beam_width, policy, entry, threads, inflight, deterministic, allow)
        return self._range_result(self.native.range_search(self._as_queries(queries), radius, options))

    async def range_search_async(
        self, queries: ArrayLike, radius: float, **choices: Unpack[GraphChoices]
    ) -> RangeResult:
        """As `range_search`, while the event loop of asyncio goes on. See `search_async`."""
        await self._filter_apart(choices)
        options, converted = self._options(1, **choices), self._as_queries(queries)

        def begin(box: _native.Mailbox, token: int) -> _native.Ticket:
            return self.native.range_search_later(box, token, converted, radius, options)

        return self._range_result(await outcome(begin))

    def filter(self, allow: ArrayLike | str | Allowed) -> _native.Filter:
        """Return a filter for `search` from a bool array of shape (n_vectors,), vector ids, or a condition.

        Time: one pass over ids.imx (4 bytes a vector), after that of `where` for a condition. Memory: n / 8 bytes; as
        much again for a label within which edges lead.

        Parameters
        ----------
        allow : bool array of shape (n_vectors,), int array of vector ids, str, or what `allowed` returns
            A condition is as in `where`. If it allows the vectors of one label, and the index was built with their
            column as `label_column`, then searches stay within the label. With the mask that `where` returns they are
            as with any other.

        Raises
        ------
        InputError
            If the array has another shape or type, an id is out of range, or the condition does not fit.
        """
        if isinstance(allow, str):
            allow = self.allowed(allow)
        elif not isinstance(allow, Allowed):
            allow = Allowed(as_mask(allow, len(self)))
        self._fill(IDS_NAME)
        return self.native.filter(np.packbits(allow.mask, bitorder="little"), allow.is_label)

    def allowed(self, condition: str) -> Allowed:
        """Evaluate a condition once for a caller that needs both its vectors and a filter.

        ``index.filter(index.allowed(condition))`` is ``index.filter(condition)``; arguments and errors are as of
        `where`.
        """
        if self.native.labels is None:
            return Allowed(self.where(condition))
        column, least, most = self.native.labels
        chosen = self._chosen(condition, column)
        return Allowed(chosen.mask, chosen.are_label and least <= int(chosen.mask.sum()) <= most)

    async def _filter_apart(self, choices: GraphChoices) -> None:
        """Put a filter into `choices` in place of what one is made of: files are read on another thread."""
        allow = choices.get("allow")
        if allow is not None and not isinstance(allow, _native.Filter):
            import asyncio  # see `awaiting`

            choices["allow"] = await asyncio.to_thread(self.filter, allow)

    def remapped(self, order: ArrayLike) -> Index:
        """Return a view of the index with the vertex of slot ``order[s]`` in slot s, to evaluate a layout.

        The reader searches it on pages that are composed in memory. Results and, with ``deterministic``, all counters
        except times and ``id_pages_read`` are those of the index written in that order; ids are looked up where the
        index has them. A view has its own filters and cache, and may be remapped again.

        Memory: the first call reads all nodes, the size of ``graph.imx``; the index and all its views share them. A
        view takes 8 bytes a vertex, and has its own codes, entry vertices and navigation graph.

        Parameters
        ----------
        order : integer array, shape (n_vectors,)
            A permutation of the slots.

        Raises
        ------
        InputError
            If `order` is not a permutation (the message names the position), or the index was replaced after it was
            opened.
        ConfigError
            If there is too little memory, or the pages are at a URL.
        CorruptFile
            If ``graph.imx`` is damaged.
        """
        if self._stored is not None:
            raise ConfigError(
                f"remapped: the pages of {self.path} are at a URL; copy the index to a local directory"
            )
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
        beam_width: int | None = None,
        policy: Policy | None = None,
        entry: Entry = DEFAULT_ENTRY,
    ) -> CacheInfo:
        """Keep pages of hot vertices in memory for all later searches, in place of an earlier cache.

        Parameters
        ----------
        n_bytes : int
            Most memory of the cache: the pages, and 8 bytes for each of their read units; 0 drops the cache. Running
            searches keep the earlier cache.
        queries : array, optional
            A sample of the expected queries: the pages that searches for them read most often are kept. Without
            queries, the first pages of a breadth-first walk from the medoid and the centroids' vertices are kept, where
            a search that starts from the navigation graph does not begin.
        L, beam_width, policy, entry
            Options of the searches for the sample, see `search`.

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
            # With `previous`, the order of queries must be fixed.
            inflight = 1 if entry == "previous" else DEFAULT_INFLIGHT
            options = self._options(1, L, beam_width, policy, entry, 1, inflight, True, None)
            n_blocks, used = self.native.cache_from_queries(self._as_queries(queries), options, n_bytes)
        self._cached = CacheInfo(n_blocks * self.native.pages_per_node, used)
        return self._cached

    @property
    def cached(self) -> CacheInfo:
        """Size of the cache after the last call of `cache`."""
        return self._cached

    def _result(self, found: dict[str, Any]) -> SearchResult:
        slots, vector_ids, scores = found.pop("slots"), found.pop("vector_ids"), found.pop("scores")
        events = found.pop("trace", None)
        trace = None if events is None else trace_table(events)
        ids = self._take_ids(found, vector_ids)
        return SearchResult(ids, scores, vector_ids, slots, found, trace, self.native.id_type)

    def _range_result(self, found: dict[str, Any]) -> RangeResult:
        names = ("starts", "slots", "vector_ids", "scores")
        starts, slots, vector_ids, scores = (found.pop(name) for name in names)
        ids = self._take_ids(found, vector_ids)
        return RangeResult(starts, ids, scores, vector_ids, slots, found, self.native.id_type)

    def _options(
        self,
        k: int,
        L: int | None = None,
        beam_width: int | None = None,
        policy: Policy | None = None,
        entry: Entry = DEFAULT_ENTRY,
        threads: int = 1,
        inflight: int = DEFAULT_INFLIGHT,
        deterministic: bool = True,
        allow: ArrayLike | str | _native.Filter | None = None,
    ) -> _native.Options:
        """Return the options in the form of the native reader."""
        if entry == "auto":
            entry = self.default_entry
        if allow is not None and not isinstance(allow, _native.Filter):
            allow = self.filter(allow)
        policy = policy or self.search_defaults["policy"]
        if beam_width is None:
            is_stored = self._stored is not None
            beam_width = stored_defaults(policy)["beam_width"] if is_stored else DEFAULT_BEAM_WIDTH
        return {
            "k": k,
            "search_list_size": list_size_for(k, len(self), L),
            "beam_width": beam_width,
            "policy": policy,
            "entry": entry,
            "threads": threads,
            "inflight": inflight,
            "deterministic": deterministic,
            "allow": allow,
        }


def list_size_for(k: int, n: int, given: int | None) -> int:
    """Return L of a search for k of n vectors: as given, or by default the larger of 64 and 2k."""
    return min(max(DEFAULT_SEARCH_LIST_SIZE, 2 * k), max(n, k)) if given is None else given
