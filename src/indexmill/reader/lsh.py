"""Python face of the native reader for indexes of kind ``lsh``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from indexmill.reader import _native
from indexmill.reader.choices import DEFAULT_INFLIGHT, DEFAULT_TABLES, DEFAULT_VECTORS
from indexmill.reader.index import SearchResult
from indexmill.reader.opened import Opened

if TYPE_CHECKING:
    from indexmill.reader.choices import Place


class LshIndex(Opened["_native.LshIndex"]):
    """An opened index of hash tables (E2LSH on storage); safe to search from several threads at once.

    Parameters
    ----------
    path : path
        The index directory.
    engine : str
        How tables and buckets are read: ``auto`` (io_uring where the system allows it, else pread), ``io_uring``,
        ``sqpoll``, ``pread``, ``mmap`` (one read after the other), ``simulated:PROFILE.json``; or ``memory``: all of
        them, and the vectors, are loaded.
    vectors : {"memory", "storage"}
        Whether vectors are loaded, or read where a distance is wanted.
    tables : {"memory", "storage"}
        Whether the pointers to buckets are loaded, 8 bytes each, or read before each bucket.

    Raises
    ------
    ForeignFile, CorruptFile, TooOld, TooNew
        If the directory does not hold an index that this reader can use.
    ConfigError
        If the engine is unknown or cannot be set up, memory is refused, or the index is of another kind.
    """

    kind = "lsh"

    def __init__(
        self,
        path: str | Path,
        engine: str = "auto",
        vectors: Place = DEFAULT_VECTORS,
        tables: Place = DEFAULT_TABLES,
    ) -> None:
        native = _native.LshIndex.open(str(path), engine, vectors == "memory", tables == "memory")
        super().__init__(path, native, engine)

    def __len__(self) -> int:
        return self.native.n_vectors

    def __repr__(self) -> str:
        n = self.native
        return (
            f"LshIndex({str(self.path)!r}, {n.n_vectors:,} x {n.dim} {n.dtype}, {n.metric}, L={n.n_tables},"
            f" m={n.n_functions}, {len(n.radii)} radii)"
        )

    @property
    def memory(self) -> dict[str, int]:
        """Bytes held between searches: ``vectors``, ``functions``, ``bitmap``, ``tables``, ``ids``, ``buckets``.

        The bitmap says which buckets hold anything; of ids, and of vectors on storage, checksums are held,
        and buckets with engine ``memory`` only.
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
        """Find k near vectors of each query: growing radii R, until k are within c R.

        Results and counters, times excepted, are the same for every engine, `threads` and `inflight`.

        Parameters
        ----------
        queries : array, shape (n_queries, dim) or (dim,)
            As for `Index.search`.
        k : int
            Neighbours wanted, at most the number of vectors.
        candidates : int, optional
            S: vectors that a radius measures at most, k - 1 more for k neighbours. Default: that of the index.
        probes : int, optional
            Buckets of each table that are looked up besides the query's own, the nearest first (multi-probe).
            Default: that of the index.
        threads, inflight : int
            Search threads, and queries each of them interleaves.

        Returns
        -------
        SearchResult
            -1 and NaN where fewer than k vectors were met. `counters`:

            ``table_reads``
                Sectors of pointers, unless these are in memory: one for each bucket that is not empty.
            ``block_reads``, ``blocks``
                Reads of blocks that lie together, and blocks in them; the paper counts each block as a read.
            ``vector_reads``, ``bytes_read``
                Reads of vectors, if they are on storage; bytes of all reads. With engine ``memory`` tables and
                buckets count as if they had been read.
            ``radii``, ``entries``, ``candidates``, ``distances``
                Radii searched, bucket entries looked at, those whose fingerprint fits, vectors measured.
            ``latency_us``, ``io_wait_us``
                As for `Index.search`.

        Raises
        ------
        InputError
            If the queries' shape, type or values do not fit, or k cannot be met.
        ConfigError
            If another parameter is out of range.
        CorruptFile
            If what was read differs from what was written.
        """
        options: _native.LshOptions = {
            "k": k,
            "candidates": candidates,
            "probes": probes,
            "threads": threads,
            "inflight": inflight,
        }
        found = self.native.search(self._as_queries(queries), options)
        slots, scores = found.pop("slots"), found.pop("scores")
        return SearchResult(self._user_ids(slots, slots), scores, slots, slots, found)
