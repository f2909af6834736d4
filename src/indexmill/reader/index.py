"""Python face of the native reader: numpy in, numpy out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexmill.formats.errors import CorruptFile, InputError
from indexmill.reader import _native

if TYPE_CHECKING:
    import pyarrow as pa

Policy = Literal["beam", "page"]
Entry = Literal["medoid", "centroids"]
#: The same words for those who check or list them; the command line reads both tuples from this text.
POLICIES: tuple[Policy, ...] = ("beam", "page")
ENTRIES: tuple[Entry, ...] = ("medoid", "centroids")

_METADATA = "metadata.parquet"  # formats.metadata has the name, but importing it would load Arrow
#: Candidates kept while searching; enough for recall@10 of about 0.95 on SIFT-like data.
DEFAULT_SEARCH_LIST_SIZE = 64
#: Reads a query sends to the device at once; DiskANN's setting.
DEFAULT_BEAM_WIDTH = 4


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
    """

    ids: NDArray[Any]
    scores: NDArray[np.float32]
    vector_ids: NDArray[np.int64]
    slots: NDArray[np.int64]
    counters: dict[str, NDArray[Any]]


class Index:
    """An opened index; safe to search from several threads at once."""

    def __init__(self, path: str | Path, engine: str = "auto") -> None:
        self.path = Path(path)
        self.native = _native.Index.open(str(path), engine)
        # Held open, so that the metadata of this build is at hand when a new one takes its place.
        metadata = self.path / _METADATA
        self._metadata_file = open(metadata, "rb") if metadata.exists() else None  # noqa: SIM115
        self._metadata: pa.Table | None = None

    def __len__(self) -> int:
        return self.native.n_vertices

    def __repr__(self) -> str:
        n = self.native
        return (
            f"Index({str(self.path)!r}, {n.n_vertices:,} x {n.dim} {n.dtype}, {n.metric}, R={n.max_degree})"
        )

    @property
    def dim(self) -> int:
        """Dimensions of a query."""
        return self.native.dim

    @property
    def metric(self) -> str:
        """``l2``, ``cosine`` or ``ip``."""
        return self.native.metric

    def search(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        L: int | None = None,
        beam_width: int = DEFAULT_BEAM_WIDTH,
        policy: Policy = "page",
        entry: Entry = "centroids",
        threads: int = 1,
        inflight: int = 8,
    ) -> SearchResult:
        """Find the k nearest vectors of each query.

        Parameters
        ----------
        queries : array, shape (n_queries, dim) or (dim,)
            In the index's input type; integers are accepted by float indexes, and whole numbers in range
            by integer indexes.
        k : int
            Neighbours wanted, at most the number of vectors.
        L : int, optional
            Candidates kept; larger is slower and finds more. Default: the larger of 64 and 2k.
        beam_width : int
            Page reads a query sends at once.
        policy : {"page", "beam"}
            DiskANN++ Algorithm 5 or Algorithm 1.
        entry : {"centroids", "medoid"}
            Query-sensitive entry vertices (DiskANN++ section III) or the medoid.
        threads, inflight : int
            Search threads, and queries each of them interleaves.

        Raises
        ------
        InputError
            If the queries' shape, type or values do not fit, or k or L cannot be met.
        CorruptFile
            If a page that was read differs from what was written.
        """
        if L is None:
            L = min(max(DEFAULT_SEARCH_LIST_SIZE, 2 * k), max(len(self), k))
        found = self.native.search(
            self._as_queries(queries), k, L, beam_width, policy, entry, threads, inflight
        )
        slots, vector_ids, scores = found.pop("slots"), found.pop("vector_ids"), found.pop("scores")
        return SearchResult(self._user_ids(slots, vector_ids), scores, vector_ids, slots, found)

    def metadata(self, vector_ids: ArrayLike) -> pa.Table:
        """Return the metadata rows of `vector_ids`, int64 (m,), in that order; no columns if the input had none.

        The file is read and checked against the manifest on first use, and kept.

        Raises
        ------
        CorruptFile
            If the file differs from what was written.
        """
        import pyarrow as pa

        if self._metadata is None:
            self._metadata = self._read_metadata()
        if self._metadata.num_columns == 0:
            return self._metadata
        return self._metadata.take(pa.array(np.asarray(vector_ids, dtype=np.int64)))

    def _read_metadata(self) -> pa.Table:
        import pyarrow as pa

        from indexmill.formats.metadata import read_metadata

        expected = self.native.metadata_sha256
        if expected is None:
            return pa.table({})
        path = self.path / _METADATA
        if self._metadata_file is None:
            raise CorruptFile(f"{path}: expected a file, got none; copy the index again or rebuild it")
        return read_metadata(self._metadata_file, path, expected)

    def _as_queries(self, queries: ArrayLike) -> NDArray[Any]:
        array = np.atleast_2d(np.asarray(queries))
        want = np.dtype(self.native.query_dtype)
        if array.dtype.kind not in "fiu":
            raise InputError(
                f"queries: dtype {array.dtype} is not numeric; pass {want} vectors of {self.dim} dimensions"
            )
        cast = array.astype(want, order="C", copy=False)
        if want.kind in "iu" and array.dtype != want and not np.array_equal(cast, array):
            raise InputError(
                f"queries: values do not fit the index's {want}; "
                f"round them to {np.iinfo(want).min}..{np.iinfo(want).max}"
            )
        return np.ascontiguousarray(cast)

    def _user_ids(self, slots: NDArray[np.int64], vector_ids: NDArray[np.int64]) -> NDArray[Any]:
        kind = self.native.id_type
        if kind == "none":
            return vector_ids
        missing = slots < 0
        ids = np.empty(slots.shape, dtype=np.dtype(kind) if kind in ("int64", "uint64") else object)
        ids[~missing] = self.native.user_ids(slots[~missing])
        if missing.any():
            ids[missing] = None if ids.dtype == object else np.array(-1).astype(ids.dtype)
        return ids
