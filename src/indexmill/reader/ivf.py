"""Python face of the native reader for indexes of kind ``ivf``."""

from __future__ import annotations

from pathlib import Path

from numpy.typing import ArrayLike

from indexmill.reader import _native
from indexmill.reader.choices import DEFAULT_INFLIGHT, DEFAULT_NPROBE, DEFAULT_RERANK
from indexmill.reader.index import SearchResult
from indexmill.reader.opened import Opened


class IvfIndex(Opened["_native.IvfIndex"]):
    """An opened index of inverted lists; safe to search from several threads at once.

    Centroids, and the graph over them where there are many, are in memory; lists are read where a query probes them.

    Parameters
    ----------
    path : path
        The index directory.
    engine : str
        How lists are read: ``auto`` (io_uring where the system allows it, else pread), ``io_uring``, ``sqpoll``,
        ``pread``, ``mmap`` (one read after the other), ``simulated:PROFILE.json``; or ``memory``: all of them, and
        exact vectors, are loaded.

    Raises
    ------
    ForeignFile, CorruptFile, TooOld, TooNew
        If the directory does not hold an index that this reader can use; a batch that is missing is named.
    ConfigError
        If the engine is unknown or cannot be set up, memory is refused, or the index is of another kind.
    """

    kind = "ivf"

    def __init__(self, path: str | Path, engine: str = "auto") -> None:
        super().__init__(path, _native.IvfIndex.open(str(path), engine), engine)

    def __len__(self) -> int:
        return self.native.n_vectors

    def __repr__(self) -> str:
        n = self.native
        return (
            f"IvfIndex({str(self.path)!r}, {n.n_vectors:,} x {n.dim} {n.dtype}, {n.metric}, {n.n_lists:,} lists,"
            f" {n.codec})"
        )

    @property
    def memory(self) -> dict[str, int]:
        """Bytes held between searches: ``centroids``, ``graph``, ``directories``, ``vectors``, ``ids``, ``lists``.

        Directories say where lists are and hold the checksums of their pages. Of ids and exact vectors checksums are
        held; lists, and the vectors themselves, with engine ``memory`` only.
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

        Results and counters, times excepted, are the same for every engine, `threads` and `inflight`. Without a graph
        over the centroids the lists are those that `join` probes; all lists make an exact search, but for codes.

        Parameters
        ----------
        queries : array, shape (n_queries, dim) or (dim,)
            As for `Index.search`; codes (sq8, pq) are compared with floats, also those of integers.
        k : int
            Neighbours wanted, at most the number of vectors.
        nprobe : int, optional
            Lists probed, at most those there are; each has a part in every batch. Default: 16, or all if fewer.
        prune : float, optional
            Of these leave out the lists whose centroid is farther than 1 + `prune` times the nearest one (SPANN's
            query-aware pruning). Default: none.
        rerank : int, optional
            Candidates that are measured by their exact vectors, at least k; 0 for none. Default: ten times k where
            lists hold codes and the index keeps exact vectors, else 0.
        threads, inflight : int
            Search threads, and queries each of them interleaves.

        Returns
        -------
        SearchResult
            -1 and NaN where the lists held fewer than k vectors. `counters`:

            ``lists``, ``reads``
                Lists probed that hold anything, those of each batch counted; reads of them: one, or for a list of more
                than 256 KiB one for each 256 KiB.
            ``vector_reads``, ``bytes_read``
                Reads of exact vectors; bytes of all reads. With engine ``memory`` lists count as if they were read.
            ``centroid_distances``, ``distances``, ``reranked``
                Centroids, rows of lists, and candidates that were measured.
            ``latency_us``, ``io_wait_us``
                As for `Index.search`.

        Raises
        ------
        InputError
            If the queries' shape, type or values do not fit, or k cannot be met.
        ConfigError
            If another parameter is out of range, or `rerank` finds no exact vectors.
        CorruptFile
            If what was read differs from what was written.
        """
        native = self.native
        if rerank is None:
            rerank = min(DEFAULT_RERANK * k, len(self)) if native.has_vectors else 0
        options: _native.IvfOptions = {
            "k": k,
            "nprobe": min(DEFAULT_NPROBE, native.n_lists) if nprobe is None else nprobe,
            "prune": prune,
            "rerank": rerank,
            "threads": threads,
            "inflight": inflight,
        }
        found = native.search(self._as_queries(queries), options)
        slots, scores = found.pop("slots"), found.pop("scores")
        return SearchResult(self._user_ids(slots, slots), scores, slots, slots, found)
