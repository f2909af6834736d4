"""Search of IVF indexes: the Python interface of the native reader."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from indexmill.reader import _native
from indexmill.reader.awaiting import outcome
from indexmill.reader.choices import DEFAULT_IDS, DEFAULT_INFLIGHT, DEFAULT_NPROBE, DEFAULT_RERANK, Place
from indexmill.reader.index import SearchResult
from indexmill.reader.opened import Opened, options_of

if TYPE_CHECKING:
    from typing import Unpack

    from indexmill.reader.choices import IvfChoices
    from indexmill.reader.stored import Stored


class IvfIndex(Opened["_native.IvfIndex"]):
    """An opened index of inverted lists; several threads may search it at once.

    Centroids, and the graph over them if there is one, are in memory; lists are read when a query probes them.

    Parameters
    ----------
    path : path
        The index directory.
    engine : str
        Method of reading lists: ``auto`` (io_uring if the system supports it, else pread), ``io_uring``, ``sqpoll``,
        ``pread``, ``mmap`` (one read after the other), ``simulated:PROFILE.json``; or ``memory``, which loads all
        lists, exact vectors and ids.
    ids : {"memory", "storage"}
        Whether user ids are loaded (8 bytes a vector, and text), or read with the results.
    stored : Stored, optional
        Where lists are, if not in the directory; `engine` is not used then.

    Raises
    ------
    ForeignFile, CorruptFile, TooOld, TooNew
        If the directory is not an index that this reader supports; the message names a missing batch.
    ConfigError
        If the engine is unknown or unavailable, or there is too little memory.
    OtherKind
        If the index is of another kind.
    """

    kind = "ivf"

    def __init__(
        self,
        path: str | Path,
        engine: str = "auto",
        ids: Place = DEFAULT_IDS,
        stored: Stored | None = None,
    ) -> None:
        super().__init__(
            path, _native.IvfIndex.open(str(path), engine, options_of(stored)), engine, ids, stored
        )

    def __len__(self) -> int:
        return self.native.n_vectors

    def _facts(self) -> str:
        return f"{self.native.n_lists:,} lists, {self.native.codec}"

    @property
    def memory(self) -> dict[str, int]:
        """Bytes held between searches: ``centroids``, ``graph``, ``directories``, ``vectors``, ``ids``, ``lists``.

        Directories have the places of lists and the checksums of their pages. ``vectors`` are checksums; ids on storage
        take no memory. With engine ``memory``, ids, lists and exact vectors are loaded.
        """
        return self.native.memory

    def search(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        nprobe: int | None = None,
        prune: float | None = None,
        rerank: int | None = None,
        threads: int = 1,
        inflight: int = DEFAULT_INFLIGHT,
    ) -> SearchResult:
        """Find the k nearest vectors of each query in the lists of the nearest centroids.

        Results and counters, except times, are the same for every engine, `threads` and `inflight`. Without a graph
        over the centroids, the lists are those that `join` probes. A search of all lists is exact, except for codes.

        Parameters
        ----------
        queries : array, shape (n_queries, dim) or (dim,)
            See `Index.search`; of codes (all codecs except flat), queries may be floats if the vectors are integers.
        k : int
            Number of neighbours, at most the number of vectors.
        nprobe : int, optional
            Number of lists, each with a part in every batch. By default 16, or all lists if there are fewer.
        prune : float, optional
            Leave out the lists whose centroid is farther than 1 + `prune` times the nearest one (SPANN's query-aware
            pruning). By default none is left out.
        rerank : int, optional
            Candidates measured by their exact vectors, at least k; 0 for none. By default ten times k if lists have
            codes and the index has exact vectors, else 0.
        threads, inflight : int
            Search threads, and queries interleaved by each of them.

        Returns
        -------
        SearchResult
            -1 and NaN if the lists have fewer than k vectors. `counters`:

            ``lists``, ``reads``
                Probed lists that are not empty, counted in each batch; their reads, one for each 256 KiB.
            ``vector_reads``, ``bytes_read``
                Reads of exact vectors; bytes of all reads. With engine ``memory``, lists count as if they were read.
            ``id_pages_read``
                Pages of user ids read, from the page cache or from disk.
            ``centroid_distances``, ``distances``, ``reranked``
                Number of centroids, rows of lists, and candidates measured.
            ``rounds``
                With lists at a URL: rounds of requests, each made after the one before was answered; else 0.
            ``latency_us``, ``io_wait_us``
                See `Index.search`.

        Raises
        ------
        InputError
            If the shape, type or values of the queries are invalid, or k is too large.
        ConfigError
            If another parameter is out of range, or `rerank` is given without exact vectors.
        CorruptFile
            If data differs from that written.
        """
        options = self._options(k, nprobe, prune, rerank, threads, inflight)
        return self._result(self.native.search(self._as_queries(queries), options))

    async def search_async(
        self, queries: ArrayLike, k: int = 10, **choices: Unpack[IvfChoices]
    ) -> SearchResult:
        """As `search`, while the event loop of asyncio goes on. See `Index.search_async`."""
        options, converted = self._options(k, **choices), self._as_queries(queries)
        return self._result(
            await outcome(lambda box, token: self.native.search_later(box, token, converted, options))
        )

    def _options(
        self,
        k: int,
        nprobe: int | None = None,
        prune: float | None = None,
        rerank: int | None = None,
        threads: int = 1,
        inflight: int = DEFAULT_INFLIGHT,
    ) -> _native.IvfOptions:
        """Return the options in the form of the native reader."""
        native = self.native
        if rerank is None:
            rerank = min(DEFAULT_RERANK * k, len(self)) if native.has_vectors else 0
        return {
            "k": k,
            "nprobe": min(DEFAULT_NPROBE, native.n_lists) if nprobe is None else nprobe,
            "prune": prune,
            "rerank": rerank,
            "threads": threads,
            "inflight": inflight,
        }

    def _result(self, found: dict[str, Any]) -> SearchResult:
        slots, scores = found.pop("slots"), found.pop("scores")
        ids = self._take_ids(found, slots)
        return SearchResult(ids, scores, slots, slots, found, id_type=self.native.id_type)
