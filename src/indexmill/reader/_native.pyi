"""The Rust extension module (reader/py)."""

from os import PathLike
from typing import Any, Literal, TypedDict, final

import numpy as np
from numpy.typing import NDArray

simd: str
"""Instruction set of the distance kernels on this CPU: ``scalar``, ``avx2``, ``avx512`` or ``neon``."""

class Options(TypedDict):
    """Arguments of a search besides the queries.

    1 <= k <= search_list_size, k at most `n_vertices`, beam_width in 1 .. 64, threads in 1 .. 1024, inflight
    (queries that each thread interleaves) in 1 .. 256.
    """

    k: int
    search_list_size: int
    beam_width: int
    policy: str
    entry: str
    threads: int
    inflight: int
    deterministic: bool
    allow: Filter | None

@final
class Filter:
    """Vertices that a search may return."""

    @property
    def n_allowed(self) -> int: ...

@final
class Index:
    """An opened index; safe to search from several threads at once."""

    @staticmethod
    def open(path: str | PathLike[str], engine: str = "auto") -> Index:
        """Open the index in directory `path`.

        `engine` is ``auto``, ``io_uring``, ``sqpoll``, ``pread``, ``mmap``, or ``simulated:`` and the path of a
        device profile.

        Raises
        ------
        ForeignFile, CorruptFile, TooOld, TooNew
            If the directory does not hold an index that this reader can use.
        ConfigError
            If the engine is unknown or cannot be set up, or its device profile is malformed.
        InputError
            If the operating system refuses to read a file.
        """

    @property
    def n_vertices(self) -> int: ...
    @property
    def dim(self) -> int:
        """Dimensions of a query: those stored, less one under inner product."""

    @property
    def dtype(self) -> Literal["float32", "float16", "uint8", "int8", "sq16", "sq8"]: ...
    @property
    def query_dtype(self) -> Literal["float32", "uint8", "int8"]: ...
    @property
    def metric(self) -> Literal["l2", "ip", "cosine"]: ...
    @property
    def max_degree(self) -> int: ...
    @property
    def node_bytes(self) -> int: ...
    @property
    def nodes_per_page(self) -> int:
        """0 when a node is larger than a page."""

    @property
    def pages_per_node(self) -> int: ...
    @property
    def n_entries(self) -> int: ...
    @property
    def n_navigation(self) -> int:
        """Vertices of the navigation graph; 0 if the index has none."""

    @property
    def memory_bytes(self) -> int:
        """What the index holds between searches, each of which takes more.

        Codes and codebook, entry vertices and centroids, navigation graph, scale, checksums of graph.imx and ids.imx;
        once `remapped` was called, all nodes, which an index and its views share.
        """

    @property
    def n_chunks(self) -> int:
        """Bytes of a PQ code."""

    @property
    def id_type(self) -> Literal["none", "int64", "uint64", "string", "binary"]: ...
    @property
    def engine(self) -> Literal["io_uring", "sqpoll", "pread", "mmap", "simulated", "remapped"]:
        """The engine asked for, or the one that ``auto`` became; ``remapped`` of what `remapped` returns."""

    @property
    def engine_note(self) -> str | None:
        """What differs from the best way of reading, and why; None if nothing does. A search may add to it."""

    @property
    def metadata_sha256(self) -> str | None:
        """What the manifest says of metadata.parquet; None if the index has no metadata."""

    @property
    def build_id(self) -> str:
        """64 hex digits."""

    def search(
        self,
        queries: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int8],
        options: Options,
        trace: bool = False,
    ) -> dict[str, Any]:
        """Find the k nearest vertices of each query, sorted by (distance, slot).

        Releases the GIL; Ctrl-C is noticed within about 50 ms.

        Parameters
        ----------
        queries : array of `query_dtype`, shape (n_queries, dim), C-contiguous

        Returns
        -------
        dict
            ``slots`` and ``vector_ids``: int64 (n_queries, k), -1 where fewer than k vertices were reachable.
            ``scores``: float32 (n_queries, k) in the user's metric, NaN where missing.
            A uint64 (n_queries,) array each: ``pages_read``, ``bytes_read``, ``bytes_used`` (nodes expanded),
            ``hops`` (reads that had to wait for one another), ``distances`` (exact), ``code_distances`` (PQ),
            ``expansions``, ``page_heap_hits``, ``cache_hits``.
            A float32 (n_queries,) array each: ``latency_us``, ``io_wait_us``.
            With `trace` ``trace``, a dict of arrays of one length: uint32 ``query``, ``hop`` and ``vertex`` (2^32 - 1
            for none), uint64 ``page``, float32 ``distance``, int8 ``kind`` (0 read, 1 cached, 2 measure, 3 expand).

        Raises
        ------
        InputError
            If the queries, k or search_list_size do not fit the index, or a read fails.
        ConfigError
            If another parameter is out of range.
        CorruptFile
            If a page that was read is damaged.
        """

    def range_search(
        self,
        queries: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int8],
        radius: float,
        options: Options,
    ) -> dict[str, NDArray[Any]]:
        """Find all vertices of each query with a score at least as good as `radius`; k plays no part.

        Returns
        -------
        dict
            ``starts``: int64 (n_queries + 1,); ``slots``, ``vector_ids``: int64, ``scores``: float32, all of
            length starts[-1]; the counters of `search`.
        """

    def filter(self, bitmap: NDArray[np.uint8]) -> Filter:
        """Make a filter from n bits over vector ids, least significant first.

        Raises
        ------
        InputError
            If the number of bytes is not n / 8, rounded up.
        """

    def remapped(self, order: NDArray[np.uint32]) -> Index:
        """Return the same index as if the vertex in slot ``order[s]`` lived in slot s, in memory.

        Parameters
        ----------
        order : uint32 array, shape (n_vertices,), C-contiguous
            A permutation of the slots.

        Raises
        ------
        InputError
            If it is none, naming the position; or if a read fails.
        ConfigError
            If memory is refused.
        CorruptFile
            If graph.imx is damaged.
        """

    def cache_around_entries(self, bytes: int) -> tuple[int, int]:
        """Cache the blocks around the entry vertices; return the number of blocks and their bytes."""

    def cache_from_queries(
        self,
        queries: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int8],
        options: Options,
        bytes: int,
    ) -> tuple[int, int]:
        """Cache the blocks that a search reads most often; return the number of blocks and their bytes."""

    def user_ids(self, slots: NDArray[np.int64]) -> list[int | str | bytes]:
        """User ids of `slots` (int64, shape (m,), each in [0, n)); vector ids where the input had none.

        Raises
        ------
        InputError
            If a slot is out of range or a read fails.
        CorruptFile
            If a page that was read is damaged.
        """

class LshOptions(TypedDict):
    """Arguments of a search besides the queries.

    1 <= k <= `n_vectors`, candidates at least 1, probes in 0 .. 65535, threads in 1 .. 1024, inflight (queries that
    each thread interleaves) in 1 .. 256. None: what the index says.
    """

    k: int
    candidates: int | None
    probes: int | None
    threads: int
    inflight: int

@final
class LshIndex:
    """An opened index of kind ``lsh``; safe to search from several threads at once."""

    @staticmethod
    def open(
        path: str | PathLike[str],
        engine: str = "auto",
        vectors_in_memory: bool = True,
        tables_in_memory: bool = False,
    ) -> LshIndex:
        """Open the index in directory `path`.

        `engine` is one that `Index.open` takes, or ``memory``, which loads everything.

        Raises
        ------
        ForeignFile, CorruptFile, TooOld, TooNew
            If the directory does not hold an index that this reader can use.
        ConfigError
            If the engine is unknown or cannot be set up, memory is refused, or the index is of another kind.
        InputError
            If the operating system refuses to read a file.
        """

    @property
    def n_vectors(self) -> int: ...
    @property
    def dim(self) -> int:
        """Dimensions of a query: those stored, less one under inner product."""

    @property
    def dtype(self) -> Literal["float32", "float16", "uint8", "int8"]: ...
    @property
    def query_dtype(self) -> Literal["float32", "uint8", "int8"]: ...
    @property
    def metric(self) -> Literal["l2", "ip", "cosine"]: ...
    @property
    def n_functions(self) -> int:
        """M."""

    @property
    def n_tables(self) -> int:
        """L."""

    @property
    def candidates(self) -> int:
        """S."""

    @property
    def probes(self) -> int:
        """T."""

    @property
    def ratio(self) -> float:
        """C."""

    @property
    def radii(self) -> NDArray[np.float64]:
        """R of each radius, ascending; shape (r,)."""

    @property
    def block_bytes(self) -> int: ...
    @property
    def memory(self) -> dict[str, int]:
        """Bytes held between searches: vectors, functions, bitmap, tables, ids, buckets."""

    @property
    def id_type(self) -> Literal["none", "int64", "uint64", "string", "binary"]: ...
    @property
    def engine(self) -> Literal["io_uring", "sqpoll", "pread", "mmap", "simulated", "memory"]: ...
    @property
    def engine_note(self) -> str | None:
        """What differs from the best way of reading, and why; None if nothing does. A search may add to it."""

    @property
    def metadata_sha256(self) -> str | None: ...
    @property
    def build_id(self) -> str:
        """64 hex digits."""

    def search(
        self,
        queries: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int8],
        options: LshOptions,
    ) -> dict[str, Any]:
        """Find k near vectors of each query, sorted by (distance, slot).

        Releases the GIL; Ctrl-C is noticed within about 50 ms.

        Parameters
        ----------
        queries : array of `query_dtype`, shape (n_queries, dim), C-contiguous

        Returns
        -------
        dict
            ``slots``: int64 (n_queries, k), -1 where fewer than k vectors were met; a slot is a vector id.
            ``scores``: float32 (n_queries, k) in the user's metric, NaN where missing.
            A uint64 (n_queries,) array each: ``table_reads``, ``block_reads``, ``blocks``, ``vector_reads``,
            ``bytes_read``, ``radii``, ``entries``, ``candidates``, ``distances``.
            A float32 (n_queries,) array each: ``latency_us``, ``io_wait_us``.

        Raises
        ------
        InputError
            If the queries or k do not fit the index, or a read fails.
        ConfigError
            If another parameter is out of range.
        CorruptFile
            If what was read is damaged.
        """

    def user_ids(self, slots: NDArray[np.int64]) -> list[int | str | bytes]:
        """User ids of `slots`, as `Index.user_ids`."""

class IvfOptions(TypedDict):
    """Arguments of a search besides the queries.

    1 <= k <= `n_vectors`, nprobe in 1 .. `n_lists`, prune at least 0 (None: no list is left out), rerank 0 or in k ..
    `n_vectors`, threads in 1 .. 1024, inflight (queries that each thread interleaves) in 1 .. 256.
    """

    k: int
    nprobe: int
    prune: float | None
    rerank: int
    threads: int
    inflight: int

@final
class IvfIndex:
    """An opened index of kind ``ivf``; safe to search from several threads at once."""

    @staticmethod
    def open(path: str | PathLike[str], engine: str = "auto") -> IvfIndex:
        """Open the index in directory `path`.

        `engine` is one that `Index.open` takes, or ``memory``, which loads everything.

        Raises
        ------
        ForeignFile, CorruptFile, TooOld, TooNew
            If the directory does not hold an index that this reader can use.
        ConfigError
            If the engine is unknown or cannot be set up, memory is refused, or the index is of another kind.
        InputError
            If the operating system refuses to read a file.
        """

    @property
    def n_vectors(self) -> int: ...
    @property
    def dim(self) -> int:
        """Dimensions of a query: those stored, less one under inner product."""

    @property
    def dtype(self) -> Literal["float32", "float16", "uint8", "int8"]:
        """Component type of the vectors, before the codec."""

    @property
    def query_dtype(self) -> Literal["float32", "uint8", "int8"]: ...
    @property
    def metric(self) -> Literal["l2", "ip", "cosine"]: ...
    @property
    def codec(self) -> Literal["flat", "sq8", "pq"]: ...
    @property
    def n_lists(self) -> int: ...
    @property
    def n_batches(self) -> int: ...
    @property
    def copies(self) -> int:
        """Lists that a vector lies in at most."""

    @property
    def has_graph(self) -> bool:
        """Whether there is a graph over the centroids."""

    @property
    def has_vectors(self) -> bool:
        """Whether exact vectors are kept beside lists of codes."""

    @property
    def memory(self) -> dict[str, int]:
        """Bytes held between searches: centroids, graph, directories, vectors, ids, lists."""

    @property
    def id_type(self) -> Literal["none", "int64", "uint64", "string", "binary"]: ...
    @property
    def engine(self) -> Literal["io_uring", "sqpoll", "pread", "mmap", "simulated", "memory"]: ...
    @property
    def engine_note(self) -> str | None:
        """What differs from the best way of reading, and why; None if nothing does. A search may add to it."""

    @property
    def metadata_sha256(self) -> str | None: ...
    @property
    def build_id(self) -> str:
        """64 hex digits."""

    def search(
        self,
        queries: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int8],
        options: IvfOptions,
    ) -> dict[str, Any]:
        """Find k near vectors of each query, sorted by (distance, slot).

        Releases the GIL; Ctrl-C is noticed within about 50 ms.

        Parameters
        ----------
        queries : array of `query_dtype`, shape (n_queries, dim), C-contiguous

        Returns
        -------
        dict
            ``slots``: int64 (n_queries, k), -1 where the lists held fewer than k; a slot is a vector id.
            ``scores``: float32 (n_queries, k) in the user's metric, NaN where missing.
            A uint64 (n_queries,) array each: ``lists``, ``reads``, ``vector_reads``, ``bytes_read``,
            ``centroid_distances``, ``distances``, ``reranked``.
            A float32 (n_queries,) array each: ``latency_us``, ``io_wait_us``.

        Raises
        ------
        InputError
            If the queries or k do not fit the index, or a read fails.
        ConfigError
            If another parameter is out of range.
        CorruptFile
            If what was read is damaged.
        """

    def user_ids(self, slots: NDArray[np.int64]) -> list[int | str | bytes]:
        """User ids of `slots`, as `Index.user_ids`."""

def index_kind(path: str | PathLike[str]) -> Literal["graph", "lsh", "ivf"]:
    """What the index at `path` is made of, by its manifest.

    Raises
    ------
    ForeignFile, CorruptFile, TooOld, TooNew
        If there is no manifest that this reader can use.
    """

def verify(path: str | PathLike[str]) -> list[str]:
    """Read everything of the index at `path`; one message for each damage found, none if it is sound.

    Checks the manifest's digest, every SHA-256, the build id, every header, footer and page checksum, and that
    every neighbour, code, entry vertex and id is in range; of kind ``lsh`` that every vector is in the bucket that its
    hash says, once in each table. Files that cannot be read are damages, too.
    """

def measure_device(
    path: str | PathLike[str], block_bytes: int, depth: int, threads: int, seconds: float, seed: int
) -> dict[str, Any]:
    """Read random blocks of the file or block device at `path`, as many at a time as `depth` says.

    Direct reads by io_uring where the system allows both. The file must have been written throughout: for holes
    the file system answers without the device. Releases the GIL; Ctrl-C is noticed within about 20 ms.

    Parameters
    ----------
    block_bytes : int, a power of two in 512 .. 16777216
        Bytes of a read, and its alignment.
    depth : int, 1 .. 4096
        Reads in flight, over all threads.
    threads : int, 1 .. 256
        No more are used than there are reads in flight.
    seconds : float, more than 0 and at most 3600
    seed : int, 0 .. 2**64 - 1
        Of the offsets.

    Returns
    -------
    dict
        ``reads``: int, reads completed. ``elapsed_s``: float, from the first submission to the last completion.
        ``direct``: bool, whether reads went past the page cache. ``engine``: ``io_uring`` or ``pread``.
        ``latencies_us``: float32 (reads,), each from just before the read's submission until it was taken up.

    Raises
    ------
    ConfigError
        If a parameter is out of range, the file has no whole block, or the device's blocks are larger.
    InputError
        If the operating system refuses a read.
    """
