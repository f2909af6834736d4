"""Search of LSH indexes: the Python interface of the native reader."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from indexmill.reader import _native
from indexmill.reader.awaiting import outcome
from indexmill.reader.choices import DEFAULT_IDS, DEFAULT_INFLIGHT, DEFAULT_TABLES, DEFAULT_VECTORS
from indexmill.reader.index import SearchResult
from indexmill.reader.opened import Opened

if TYPE_CHECKING:
    from typing import Unpack

    from indexmill.reader.choices import LshChoices, Place


class LshIndex(Opened["_native.LshIndex"]):
    """An opened index of hash tables (E2LSH on storage); several threads may search it at once.

    Parameters
    ----------
    path : path
        The index directory.
    engine : str
        Method of reading tables and buckets: ``auto`` (io_uring if the system supports it, else pread), ``io_uring``,
        ``sqpoll``, ``pread``, ``mmap`` (one read after the other), ``simulated:PROFILE.json``; or ``memory``, which
        loads all of them, the vectors and the ids.
    vectors : {"memory", "storage"}
        Whether vectors are loaded, or read for each distance.
    tables : {"memory", "storage"}
        Whether the pointers to buckets, 8 bytes each, are loaded, or read before each bucket.
    ids : {"memory", "storage"}
        Whether user ids are loaded (8 bytes a vector, and text), or read with the results.

    Raises
    ------
    ForeignFile, CorruptFile, TooOld, TooNew
        If the directory is not an index that this reader supports.
    ConfigError
        If the engine is unknown or unavailable, or there is too little memory.
    OtherKind
        If the index is of another kind.
    """

    kind = "lsh"

    def __init__(
        self,
        path: str | Path,
        engine: str = "auto",
        vectors: Place = DEFAULT_VECTORS,
        tables: Place = DEFAULT_TABLES,
        ids: Place = DEFAULT_IDS,
    ) -> None:
        native = _native.LshIndex.open(str(path), engine, vectors == "memory", tables == "memory")
        super().__init__(path, native, engine, ids)

    def __len__(self) -> int:
        return self.native.n_vectors

    def _facts(self) -> str:
        return f"L={self.native.n_tables}, m={self.native.n_functions}, {len(self.native.radii)} radii"

    @property
    def memory(self) -> dict[str, int]:
        """Bytes held between searches: ``vectors``, ``functions``, ``bitmap``, ``tables``, ``ids``, ``buckets``.

        The bitmap marks the buckets that are not empty. ``vectors`` on storage are checksums; ids on storage take no
        memory. Buckets are loaded only with engine ``memory``.
        """
        return self.native.memory

    def search(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        candidates: int | None = None,
        probes: int | None = None,
        threads: int = 1,
        inflight: int = DEFAULT_INFLIGHT,
    ) -> SearchResult:
        """Find k near vectors of each query, searching growing radii R until k vectors are within c R.

        Results and counters, except times, are the same for every engine, `threads` and `inflight`.

        Parameters
        ----------
        queries : array, shape (n_queries, dim) or (dim,)
            See `Index.search`.
        k : int
            Number of neighbours, at most the number of vectors.
        candidates : int, optional
            S; a radius measures at most S + k - 1 vectors. By default that of the index.
        probes : int, optional
            Buckets of each table that are visited besides the query's own, nearest first (multi-probe). By default that
            of the index.
        threads, inflight : int
            Search threads, and queries interleaved by each of them.

        Returns
        -------
        SearchResult
            -1 and NaN if fewer than k vectors were found. `counters`:

            ``table_reads``
                Sectors of pointers read, one for each bucket that is not empty, unless tables are in memory.
            ``block_reads``, ``blocks``
                Reads of consecutive blocks, and blocks in them; the paper counts each block as a read.
            ``vector_reads``, ``bytes_read``
                Reads of vectors, if they are on storage; bytes of all reads. With engine ``memory``, tables and buckets
                count as if they were read.
            ``id_pages_read``
                Pages of user ids read, from the page cache or from disk.
            ``radii``, ``entries``, ``candidates``, ``distances``
                Number of radii searched, bucket entries visited, entries with a matching fingerprint, vectors measured.
            ``latency_us``, ``io_wait_us``
                See `Index.search`.

        Raises
        ------
        InputError
            If the shape, type or values of the queries are invalid, or k is too large.
        ConfigError
            If another parameter is out of range.
        CorruptFile
            If data differs from that written.
        """
        options = self._options(k, candidates, probes, threads, inflight)
        return self._result(self.native.search(self._as_queries(queries), options))

    async def search_async(
        self, queries: ArrayLike, k: int = 10, **choices: Unpack[LshChoices]
    ) -> SearchResult:
        """As `search`, while the event loop of asyncio goes on. See `Index.search_async`."""
        options, converted = self._options(k, **choices), self._as_queries(queries)
        return self._result(
            await outcome(lambda box, token: self.native.search_later(box, token, converted, options))
        )

    def _options(
        self,
        k: int,
        candidates: int | None = None,
        probes: int | None = None,
        threads: int = 1,
        inflight: int = DEFAULT_INFLIGHT,
    ) -> _native.LshOptions:
        """Return the options in the form of the native reader."""
        return {
            "k": k,
            "candidates": candidates,
            "probes": probes,
            "threads": threads,
            "inflight": inflight,
        }

    def _result(self, found: dict[str, Any]) -> SearchResult:
        slots, scores = found.pop("slots"), found.pop("scores")
        ids = self._take_ids(found, slots)
        return SearchResult(ids, scores, slots, slots, found, id_type=self.native.id_type)
