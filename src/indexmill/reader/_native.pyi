"""The Rust extension module (reader/py)."""

from os import PathLike
from typing import Any, Literal, TypedDict, final, type_check_only

import numpy as np
from numpy.typing import NDArray

@type_check_only
class Unit(TypedDict):
    """The instructions that the kernels of this process use."""

    name: str
    """As in ``INDEXMILL_ISA``: ``scalar``, ``avx2``, ``avx512``, ``amx``, ``neon`` or ``dotprod``."""
    distances: str
    """Distances of single vectors: ``scalar``, ``avx2``, ``avx512`` or ``neon``."""
    products: str
    """Products of many vectors with many: ``scalar``, ``avx2``, ``avx512vnni``, ``amx``, ``neon`` or ``dotprod``."""
    note: str | None
    """Why the widest unit of the CPU is not in use, if the system refuses it."""

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
class Mailbox:
    """Outcomes of searches for one event loop."""

    def __new__(cls) -> Mailbox: ...
    def fileno(self) -> int:
        """Descriptor that can be read while outcomes are there."""

    def take(self) -> list[tuple[int, Any, BaseException | None]]:
        """Take out all outcomes: the number of each search, what it found, its error or None."""

@final
class Ticket:
    """A search that was begun."""

    def cancel(self) -> None:
        """Make the search end soon."""

@final
class Errands:
    """Requests of an index to its store, for threads of Python. No method gives up the interpreter's lock."""

    def begin(self) -> int | None:
        """Begin in this process: return a descriptor, to be closed, that can be read once errands wait or none will.

        None if the index is closed by now.
        """

    def take(self) -> list[tuple[int, str | None, int, int]] | None:
        """Take what waits; None once the index is closed.

        An errand is its number, and the file, offset and bytes to read; without a file, to tell whether the index was
        replaced.
        """

    def starts(self, number: int) -> bool:
        """Say that an errand begins; False if nobody waits for its answer any more."""

    def deliver(self, number: int, data: bytes) -> None:
        """Answer a read."""

    def tell(self, number: int, is_replaced: bool) -> None:
        """Answer whether the index was replaced."""

    def refuse(self, number: int, message: str, passes: bool) -> None:
        """Say why an errand failed, and whether it may succeed later."""

@type_check_only
class _Opened:
    """What opened indexes of all kinds have in common."""

    @property
    def dim(self) -> int:
        """Dimensions of a query: for inner product, one less than stored."""

    @property
    def query_dtype(self) -> Literal["float32", "uint8", "int8"]: ...
    @property
    def metric(self) -> Literal["l2", "ip", "cosine"]: ...
    @property
    def n_deleted(self) -> int: ...
    @property
    def id_type(self) -> Literal["none", "int64", "uint64", "string", "binary"]: ...
    @property
    def engine_note(self) -> str | None:
        """Difference from the best engine, and its reason; None if there is none. A search may add to it."""

    @property
    def metadata_sha256(self) -> str | None:
        """Digest of metadata.parquet in the manifest; None if the index has no metadata."""

    @property
    def build_id(self) -> str:
        """64 hex digits."""

    def open_metadata(self) -> int | None:
        """Return a descriptor of metadata.parquet, which the caller closes; None if the index has no metadata.

        The file is the one that was there when the index was opened; its content was not read.

        Raises
        ------
        OSError
            If there are too many open files.
        """

    def hold_ids(self) -> None:
        """Read the ids that searches look up into memory, where they stay.

        4 bytes a vector of a graph; 8 more for whole numbers, or 8 and the text. Releases the GIL; Ctrl-C ends it.

        Raises
        ------
        CorruptFile
            If a page is damaged.
        ConfigError
            If there is too little memory.
        """

    def find_ids(
        self, ids: NDArray[np.int64] | NDArray[np.uint64] | list[str] | list[bytes]
    ) -> NDArray[np.int64]:
        """Return the vector ids of user ids of the index's type, -1 for ids that no vector has.

        Reads user ids, each page once, until all are found. Releases the GIL; Ctrl-C ends it.

        Raises
        ------
        InputError
            If the index has no user ids.
        CorruptFile
            If a page is damaged.
        """

    def user_ids(self, slots: NDArray[np.int64]) -> list[int | str | bytes]:
        """Return the user ids of `slots` (int64, shape (m,), each in [0, n)); vector ids if the input had none.

        Raises
        ------
        InputError
            If a slot is out of range or a read fails.
        CorruptFile
            If a page is damaged.
        """

@type_check_only
class _OpenedById(_Opened):
    """What opened indexes have in common whose slots are vector ids."""

    @property
    def n_vectors(self) -> int: ...
    @property
    def engine(self) -> Literal["io_uring", "sqpoll", "pread", "mmap", "simulated", "memory"]: ...

@final
class Index(_Opened):
    """An opened index; several threads may search it at once."""

    @property
    def traffic(self) -> dict[str, int] | None:
        """``requests``, ``bytes``, ``retries``, ``timeouts`` of the store so far; None of files of this machine.

        Also blocks found in memory (``cached``), on ``disk``, and there ``damaged``.
        """

    @staticmethod
    def open(path: str | PathLike[str], engine: str = "auto", stored: dict[str, Any] | None = None) -> Index:
        """Open the index in directory `path`, its blocks read from `stored` (`options_of`), if given.

        `engine` is ``auto``, ``io_uring``, ``sqpoll``, ``pread``, ``mmap``, or ``simulated:`` and the path of a
        device profile. Releases the GIL; Ctrl-C ends it.

        Raises
        ------
        ForeignFile, CorruptFile, TooOld, TooNew
            If the directory is not an index that this reader supports.
        ConfigError
            If the engine is unknown or unavailable, or its device profile is malformed.
        OtherKind
            If the index is of another kind.
        InputError
            If the operating system refuses to read a file.
        """

    @property
    def n_vertices(self) -> int: ...
    @property
    def dtype(self) -> Literal["float32", "float16", "uint8", "int8", "sq16", "sq8"]: ...
    @property
    def max_degree(self) -> int: ...
    @property
    def node_bytes(self) -> int: ...
    @property
    def nodes_per_page(self) -> int:
        """0 if a node is larger than a page."""

    @property
    def pages_per_node(self) -> int: ...
    @property
    def n_entries(self) -> int: ...
    @property
    def n_navigation(self) -> int:
        """Vertices of the navigation graph; 0 if the index has none."""

    @property
    def memory_bytes(self) -> int:
        """Bytes held between searches.

        Codebook, entry vertices and centroids, navigation graph, scale; codes and checksums of graph.imx, unless nodes
        hold codes; ids after `hold_ids`; after a call of `remapped` also all nodes, which an index and its views share.
        """

    @property
    def labels(self) -> tuple[str, int, int] | None:
        """Column of the labels that edges stay within, and the least and most vectors of such a label; None without."""

    @property
    def n_chunks(self) -> int:
        """Bytes of a PQ code."""

    @property
    def engine(self) -> Literal["io_uring", "sqpoll", "pread", "mmap", "simulated", "remapped"]:
        """The engine in use; ``remapped`` for the result of `remapped`."""

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
            ``slots`` and ``vector_ids``: int64 (n_queries, k), -1 if fewer than k vertices were reachable.
            ``user_ids``: int64, uint64 or object (n_queries * k,), -1, 2^64 - 1 or None if missing; or None if the
            input had no ids.
            ``scores``: float32 (n_queries, k) in the user's metric, NaN if missing.
            A uint64 (n_queries,) array each: ``pages_read``, ``bytes_read``, ``id_pages_read`` (pages of ids.imx, from
            the page cache or from disk, which the others do not count), ``bytes_used`` (nodes expanded),
            ``hops`` (reads that had to wait for each other), ``distances`` (exact), ``code_distances`` (PQ),
            ``expansions``, ``page_heap_hits``, ``cache_hits``.
            A float32 (n_queries,) array each: ``latency_us``, ``io_wait_us``.
            With `trace` ``trace``, a dict of arrays of one length: uint32 ``query``, ``hop`` and ``vertex`` (2^32 - 1
            for none), uint64 ``page``, float32 ``distance``, int8 ``kind`` (0 read, 1 cached, 2 measure, 3 expand).

        Raises
        ------
        InputError
            If the queries, k or search_list_size are invalid for the index, or a read fails.
        ConfigError
            If another parameter is out of range.
        CorruptFile
            If a page is damaged.
        """

    def range_search(
        self,
        queries: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int8],
        radius: float,
        options: Options,
    ) -> dict[str, Any]:
        """Find all vertices of each query with a score at least as good as `radius`; k is ignored.

        Returns
        -------
        dict
            ``starts``: int64 (n_queries + 1,); ``slots``, ``vector_ids``: int64, ``user_ids`` as from `search`,
            ``scores``: float32, all of length starts[-1]; the counters of `search`.
        """

    def search_later(
        self,
        mailbox: Mailbox,
        token: int,
        queries: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int8],
        options: Options,
    ) -> Ticket:
        """Begin a `search`: its dict gets to `mailbox` under the number `token`, from a search thread.

        Raises
        ------
        InputError, ConfigError
            If the queries or a parameter are invalid; the mailbox gets other errors.
        """

    def range_search_later(
        self,
        mailbox: Mailbox,
        token: int,
        queries: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int8],
        radius: float,
        options: Options,
    ) -> Ticket:
        """Begin a `range_search` as `search_later` begins a `search`."""

    def filter(self, bitmap: NDArray[np.uint8], is_label: bool = False) -> Filter:
        """Return a filter from n bits over vector ids, lowest bit first.

        Parameters
        ----------
        is_label : bool
            Whether these are all vectors of one label with edges of its own (`labels`): searches stay among them.

        Raises
        ------
        InputError
            If the number of bytes is not n / 8, rounded up.
        """

    def remapped(self, order: NDArray[np.uint32]) -> Index:
        """Return a view of the index, in memory, with the vertex of slot ``order[s]`` in slot s.

        Parameters
        ----------
        order : uint32 array, shape (n_vertices,), C-contiguous
            A permutation of the slots.

        Raises
        ------
        InputError
            If it is not a permutation (the message names the position), or a read fails.
        ConfigError
            If there is too little memory.
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

class LshOptions(TypedDict):
    """Arguments of a search besides the queries.

    1 <= k <= `n_vectors`, candidates at least 1, probes in 0 .. 65535, threads in 1 .. 1024, inflight (queries that
    each thread interleaves) in 1 .. 256. None: the index's default.
    """

    k: int
    candidates: int | None
    probes: int | None
    threads: int
    inflight: int

@final
class LshIndex(_OpenedById):
    """An opened index of kind ``lsh``; several threads may search it at once."""

    @staticmethod
    def open(
        path: str | PathLike[str],
        engine: str = "auto",
        vectors_in_memory: bool = True,
        tables_in_memory: bool = False,
    ) -> LshIndex:
        """Open the index in directory `path`.

        `engine` is one that `Index.open` takes, or ``memory``, which loads everything. Ctrl-C ends it.

        Raises
        ------
        ForeignFile, CorruptFile, TooOld, TooNew
            If the directory is not an index that this reader supports.
        ConfigError
            If the engine is unknown or unavailable, or there is too little memory.
        OtherKind
            If the index is of another kind.
        InputError
            If the operating system refuses to read a file.
        """

    @property
    def dtype(self) -> Literal["float32", "float16", "uint8", "int8"]: ...
    @property
    def n_functions(self) -> int:
        """Hash functions of a table, m."""

    @property
    def n_tables(self) -> int:
        """Number of tables, L."""

    @property
    def candidates(self) -> int:
        """Default of S, candidates for each radius."""

    @property
    def probes(self) -> int:
        """Default of T, further buckets of each table."""

    @property
    def ratio(self) -> float:
        """Approximation ratio, c."""

    @property
    def radii(self) -> NDArray[np.float64]:
        """R of each radius, ascending; shape (r,)."""

    @property
    def block_bytes(self) -> int: ...
    @property
    def memory(self) -> dict[str, int]:
        """Bytes held between searches: vectors, functions, bitmap, tables, ids, buckets."""

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
            ``slots``: int64 (n_queries, k), -1 if fewer than k vectors were found; a slot is a vector id.
            ``user_ids``: as from `Index.search`.
            ``scores``: float32 (n_queries, k) in the user's metric, NaN if missing.
            A uint64 (n_queries,) array each: ``table_reads``, ``block_reads``, ``blocks``, ``vector_reads``,
            ``bytes_read``, ``id_pages_read``, ``radii``, ``entries``, ``candidates``, ``distances``.
            A float32 (n_queries,) array each: ``latency_us``, ``io_wait_us``.

        Raises
        ------
        InputError
            If the queries or k are invalid for the index, or a read fails.
        ConfigError
            If another parameter is out of range.
        CorruptFile
            If data is damaged.
        """

    def search_later(
        self,
        mailbox: Mailbox,
        token: int,
        queries: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int8],
        options: LshOptions,
    ) -> Ticket:
        """Begin a `search`: its dict gets to `mailbox` under the number `token`, from a search thread.

        Raises
        ------
        InputError, ConfigError
            If the queries or a parameter are invalid; the mailbox gets other errors.
        """

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
class IvfIndex(_OpenedById):
    """An opened index of kind ``ivf``; several threads may search it at once."""

    @property
    def traffic(self) -> dict[str, int] | None:
        """``requests``, ``bytes``, ``retries``, ``timeouts`` of the store so far; None of files of this machine.

        Also blocks found in memory (``cached``), on ``disk``, and there ``damaged``.
        """

    @staticmethod
    def open(
        path: str | PathLike[str], engine: str = "auto", stored: dict[str, Any] | None = None
    ) -> IvfIndex:
        """Open the index in directory `path`, its blocks read from `stored` (`options_of`), if given.

        `engine` is one that `Index.open` takes, or ``memory``, which loads everything. Ctrl-C ends it.

        Raises
        ------
        ForeignFile, CorruptFile, TooOld, TooNew
            If the directory is not an index that this reader supports.
        ConfigError
            If the engine is unknown or unavailable, or there is too little memory.
        OtherKind
            If the index is of another kind.
        InputError
            If the operating system refuses to read a file.
        """

    @property
    def dtype(self) -> Literal["float32", "float16", "uint8", "int8"]:
        """Component type of the vectors, before the codec."""

    @property
    def codec(self) -> Literal["flat", "sq8", "pq", "rabitq"]: ...
    @property
    def n_lists(self) -> int: ...
    @property
    def n_batches(self) -> int: ...
    @property
    def copies(self) -> int:
        """Most lists of a vector."""

    @property
    def has_graph(self) -> bool:
        """Whether there is a graph over the centroids."""

    @property
    def has_vectors(self) -> bool:
        """Whether the index has exact vectors besides codes."""

    @property
    def memory(self) -> dict[str, int]:
        """Bytes held between searches: centroids, graph, directories, vectors, ids, lists."""

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
            ``slots``: int64 (n_queries, k), -1 if the lists have fewer than k vectors; a slot is a vector id.
            ``user_ids``: as from `Index.search`.
            ``scores``: float32 (n_queries, k) in the user's metric, NaN if missing.
            A uint64 (n_queries,) array each: ``lists``, ``reads``, ``vector_reads``, ``bytes_read``, ``id_pages_read``,
            ``centroid_distances``, ``distances``, ``reranked``.
            A float32 (n_queries,) array each: ``latency_us``, ``io_wait_us``.

        Raises
        ------
        InputError
            If the queries or k are invalid for the index, or a read fails.
        ConfigError
            If another parameter is out of range.
        CorruptFile
            If data is damaged.
        """

    def search_later(
        self,
        mailbox: Mailbox,
        token: int,
        queries: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int8],
        options: IvfOptions,
    ) -> Ticket:
        """Begin a `search`: its dict gets to `mailbox` under the number `token`, from a search thread.

        Raises
        ------
        InputError, ConfigError
            If the queries or a parameter are invalid; the mailbox gets other errors.
        """

def unit() -> Unit:
    """Return the unit in use, which the first import chose: the widest, or the one that ``INDEXMILL_ISA`` names.

    Every unit computes the same bits. Importing this module raises `ConfigError` if there is no such unit here.
    """

def index_kind(path: str | PathLike[str]) -> Literal["graph", "lsh", "ivf"]:
    """Return the kind of the index at `path`, from its manifest.

    Raises
    ------
    ForeignFile, CorruptFile, TooOld, TooNew
        If there is no manifest that this reader can use.
    """

def verify(path: str | PathLike[str]) -> list[str]:
    """Read the whole index at `path`, and return one message for each damage.

    Checks the manifest's digest, every SHA-256, the build id, every header, footer and page checksum, and that
    every neighbour, code, entry vertex and id is in range; for kind ``lsh``, that every vector is in the
    bucket of its hash, once in each table. An unreadable file is a damage, too. Ctrl-C ends it.
    """

def measure_device(
    path: str | PathLike[str], block_bytes: int, depth: int, threads: int, seconds: float, seed: int
) -> dict[str, Any]:
    """Read random blocks of the file or block device at `path`, with `depth` reads in flight.

    Reads are direct and by io_uring if the system supports both. The file must not have holes, which the file system
    reads without the device. Releases the GIL; Ctrl-C is noticed within about 20 ms.

    Parameters
    ----------
    block_bytes : int, a power of two in 512 .. 16777216
        Bytes of a read, and its alignment.
    depth : int, 1 .. 4096
        Reads in flight, over all threads.
    threads : int, 1 .. 256
        Threads; at most as many as reads in flight.
    seconds : float, more than 0 and at most 3600
    seed : int, 0 .. 2**64 - 1
        Decides the offsets.

    Returns
    -------
    dict
        ``reads``: int, reads completed. ``elapsed_s``: float, from the first submission to the last completion.
        ``direct``: bool, whether reads bypassed the page cache. ``engine``: ``io_uring`` or ``pread``.
        ``latencies_us``: float32 (reads,), each from just before the submission of a read until it was processed.

    Raises
    ------
    ConfigError
        If a parameter is out of range, the file has no whole block, or the device's blocks are larger.
    InputError
        If the operating system refuses a read.
    """
