"""Search of a set of indexes: the router chooses parts, the parts are searched together, results are merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexmill.formats.errors import ConfigError, InputError
from indexmill.reader.choices import DEFAULT_NPROBE, UNMEASURED_MARGIN
from indexmill.reader.filters import as_mask
from indexmill.reader.index import SearchResult, list_size_for
from indexmill.reader.queries import as_queries
from indexmill.reader.router import Router

if TYPE_CHECKING:
    import pyarrow as pa

    from indexmill.formats.index.setmanifest import SetManifest

#: Counters that are the longest of the parts, which are searched side by side, and not their sum.
_LONGEST = ("latency_us", "io_wait_us")
#: Quarters of the effort of a search in the nearest part, in one nearer than half the margin, and in another.
QUARTERS = (4, 2, 1)
#: The option that is the effort of a search, by the kind of the parts: candidates of a graph, lists that are probed.
_EFFORTS = {"graph": "L", "ivf": "nprobe"}


class IndexSet:
    """A set of opened indexes; several threads may search it at once.

    Vector ids of a set count its vectors part after part; `ids` of results are the user ids, or positions in the input.

    Parameters
    ----------
    path : path
        The directory of the set.
    manifest : SetManifest
    parts : sequence of Index, LshIndex or IvfIndex
        All of one kind, in the order of the manifest.
    """

    def __init__(self, path: str | Path, manifest: SetManifest, parts: Sequence[Any]) -> None:
        self.path, self.manifest, self.parts = Path(path), manifest, tuple(parts)
        self.starts = np.cumsum([0, *(len(part) for part in self.parts)], dtype=np.int64)
        self._router = Router(manifest.centroids, manifest.weights, self.metric)

    def __len__(self) -> int:
        """Return the number of vectors, deleted ones included: vector ids are below it."""
        return int(self.starts[-1])

    def __repr__(self) -> str:
        kind = self.parts[0].kind
        return f"IndexSet({str(self.path)!r}, {len(self.parts)} parts of kind {kind}, {len(self):,} x {self.dim})"

    @property
    def kind(self) -> str:
        """Kind of every part."""
        return str(self.parts[0].kind)

    @property
    def dim(self) -> int:
        """Dimensions of a query."""
        return int(self.parts[0].dim)

    @property
    def metric(self) -> str:
        """``l2``, ``cosine`` or ``ip``."""
        return str(self.parts[0].metric)

    @property
    def n_deleted(self) -> int:
        """Number of vectors that were deleted: no search returns them."""
        return sum(part.n_deleted for part in self.parts)

    @property
    def margin(self) -> float:
        """The margin of searches that give none.

        It is the one that the build chose; under inner product ``inf``, since the largest product may lie in any part;
        and 0.3 in a set of an earlier version, whose build chose none.
        """
        if self.metric == "ip":
            return float("inf")
        return UNMEASURED_MARGIN if self.manifest.margin is None else self.manifest.margin.value

    def route(self, queries: ArrayLike, margin: float | None = None) -> NDArray[np.bool_]:
        """Return which parts each query needs: bool, shape (n_queries, n_parts).

        The part of the nearest centroid, by power distances, is always needed. Another is needed if the query lies
        nearer than `margin` to the plane between both, in units of the distance between their centroids: 0.5 is the
        way from a centroid to the plane.

        Parameters
        ----------
        margin : float, optional
            0 for one part alone, ``inf`` for all. By default that of the set, `IndexSet.margin`.

        Raises
        ------
        ConfigError
            If `margin` is below 0 or no number.
        """
        return self._quarters(self._queries(queries), margin) > 0

    def _quarters(self, queries: NDArray[Any], margin: float | None) -> NDArray[np.int8]:
        """Return the quarters of the effort that each query is worth in each part; 0: it does not need the part."""
        if margin is None:
            margin = self.margin
        if not margin >= 0:
            raise ConfigError(f"margin: expected 0 or more, got {margin}; inf searches all parts")
        whole, near, far = QUARTERS
        if margin == np.inf:
            return np.full((len(queries), len(self.parts)), whole, np.int8)
        first, beyond = self._router.beyond(queries)
        quarters = np.where(beyond < margin / 2, near, np.where(beyond < margin, far, 0)).astype(np.int8)
        # Also with a margin of 0, which no distance is below.
        quarters[np.arange(len(queries)), first] = whole
        return quarters

    def _lengthened(self, quarters: NDArray[np.int8], k: int, filtered: bool) -> NDArray[np.int8]:
        """Return `quarters` with whole effort where less may find too few.

        That is with a filter, in hash tables, and where the nearest part has fewer than k vectors left.
        """
        left = np.array([len(part) - part.n_deleted for part in self.parts])
        short = left[quarters.argmax(axis=1)] < k
        if filtered or self.kind not in _EFFORTS:
            short[:] = True
        return np.where(short[:, None] & (quarters > 0), np.int8(QUARTERS[0]), quarters)

    def _effort(self, part: Any, choices: Mapping[str, Any], share: int) -> int:
        """Return L or `nprobe` of a part for a share of the effort, in quarters; at least 1."""
        asked = choices.get(_EFFORTS[self.kind])
        if asked is None:  # of graphs it is known
            asked = min(DEFAULT_NPROBE, part.native.n_lists)
        return max(1, int(asked) * share // QUARTERS[0])

    def search(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        margin: float | None = None,
        threads: int = 1,
        allow: ArrayLike | str | None = None,
        **choices: Any,
    ) -> SearchResult:
        """Find the k nearest vectors of each query in the parts that it needs; equal scores are ordered by id.

        The nearest part is searched with the list of candidates L (of graphs), or with `nprobe` lists. Fewer neighbours
        lie in other parts, so there are half as many in those to whose plane the query is nearer than half the margin,
        and a quarter in the rest, at least one. There are as many as in the nearest part with ``margin=inf``, with a
        filter, whose vectors may lie anywhere, and where the nearest part has fewer than k vectors left.

        Parameters
        ----------
        queries : array, shape (n_queries, dim) or (dim,)
        k : int
            Number of neighbours, at most the number of vectors. Fewer are found if the parts have fewer.
        margin : float, optional
            See `route`.
        threads : int
            Search threads of all parts together; they do not change results.
        allow : bool array of shape (n_vectors,), int array of vector ids of the set, or condition, optional
            As of `Index.search`: vectors that may be returned, where the kind of the parts takes filters.
        **choices
            Further keywords of `search` of the parts' kind, such as ``L`` or ``nprobe``.

        Returns
        -------
        SearchResult
            ``slots`` count part after part, too. Counters are sums over parts, times the longest; ``parts`` is the
            number of parts that were searched.

        Raises
        ------
        InputError, ConfigError, CorruptFile
            As `search` of the parts.
        """
        if k > len(self):
            raise InputError(f"k: expected at most {len(self)}, the vectors of the set, got {k}")
        if threads < 1:
            raise ConfigError(f"threads: expected at least 1, got {threads}")
        if allow is not None and self.kind != "graph":
            raise ConfigError(
                f"allow: goes with parts of kind graph, and these are of kind {self.kind}; leave it out"
            )
        rows = self._queries(queries)
        masks = None
        if allow is not None and not isinstance(allow, str):
            masks = np.split(as_mask(allow, len(self)), self.starts[1:-1])
        quarters = self._lengthened(self._quarters(rows, margin), k, allow is not None)
        if self.kind == "graph" and allow is None:
            choices["L"] = list_size_for(k, len(self), choices.get("L"))
        tasks = [
            (number, share)
            for number in range(len(self.parts))
            if masks is None or masks[number].any()
            for share in np.unique(quarters[:, number]).tolist()
            if share
        ]
        at_once = min(threads, len(self.parts))
        each = max(1, threads // at_once)

        def one(task: tuple[int, int]) -> SearchResult:
            number, share = task
            part, most, own = self.parts[number], k, dict(choices)
            if share < QUARTERS[0]:
                own[_EFFORTS[self.kind]] = self._effort(part, choices, share)
                most = min(k, own.get("L", k))
            if allow is not None:  # each part reads a condition's columns of its own
                own["allow"] = allow if masks is None else masks[number]
            asked = rows[quarters[:, number] == share]
            found: SearchResult = part.search(asked, min(most, len(part)), threads=each, **own)
            return found

        with ThreadPoolExecutor(at_once) as pool:
            return self._merged(zip(tasks, pool.map(one, tasks), strict=True), quarters, k)

    def metadata(self, vector_ids: ArrayLike) -> pa.Table:
        """Return the metadata rows of vector ids of the set, int64 (m,), in that order.

        Raises
        ------
        CorruptFile
            If a part's file of metadata differs from the one written.
        """
        import pyarrow as pa

        wanted = np.asarray(vector_ids, dtype=np.int64)
        owners = np.searchsorted(self.starts, wanted, side="right") - 1
        order = np.argsort(owners, kind="stable")
        tables = [
            part.metadata(wanted[order][owners[order] == number] - self.starts[number])
            for number, part in enumerate(self.parts)
        ]
        together = pa.concat_tables(tables)
        if together.num_columns == 0:
            return together
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return together.take(pa.array(back))

    def where(self, condition: str) -> NDArray[np.bool_]:
        """Return which vectors have metadata that satisfy a condition, bool (n_vectors,), as `Index.where`."""
        return np.concatenate([part.where(condition) for part in self.parts])

    def vector_ids_of(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return the set's vector ids of user ids (or positions in the input), int64 (m,); -1 for unknown ones."""
        result: NDArray[np.int64] | None = None
        for start, part in zip(self.starts, self.parts, strict=False):
            found = part.vector_ids_of(ids)
            if result is None:
                result = np.full(len(found), -1, np.int64)
            result = np.where(found >= 0, found + start, result)
        assert result is not None
        return result

    def _queries(self, queries: ArrayLike) -> NDArray[Any]:
        return as_queries(queries, np.dtype(self.parts[0].native.query_dtype), self.dim)

    def _merged(
        self, found: Iterable[tuple[tuple[int, int], SearchResult]], quarters: NDArray[np.int8], k: int
    ) -> SearchResult:
        """Merge what parts found, each for the queries with such a list, nearest first and ties by id.

        Memory does not grow with the parts: of all that were merged, k are kept.
        """
        n, kind = len(quarters), self.parts[0].native.id_type
        numbers, fill = {
            "uint64": (np.uint64, 2**64 - 1),
            "string": (object, None),
            "binary": (object, None),
        }.get(kind, (np.int64, -1))
        ids: NDArray[Any] = np.full((n, k), fill, numbers)
        scores = np.full((n, k), np.nan, np.float32)
        vector_ids, slots = np.full((n, k), -1, np.int64), np.full((n, k), -1, np.int64)
        counters: dict[str, NDArray[Any]] = {"parts": (quarters > 0).sum(axis=1)}
        for (number, share), one in found:
            rows, start = np.flatnonzero(quarters[:, number] == share), self.starts[number]
            there = one.vector_ids >= 0
            kept: list[NDArray[Any]] = [ids, scores, vector_ids, slots]
            more: list[NDArray[Any]] = [
                one.ids.astype(ids.dtype, copy=False),
                one.scores,
                np.where(there, one.vector_ids + start, -1),
                np.where(there, one.slots + start, -1),
            ]
            both = [np.concatenate([own[rows], new], axis=1) for own, new in zip(kept, more, strict=True)]
            order = _nearest_first(both[0], both[1], both[2] >= 0, self.metric)[:, :k]
            for own, together in zip(kept, both, strict=True):
                own[rows] = np.take_along_axis(together, order, 1)
            _count(counters, one.counters, rows, n)
        return SearchResult(ids, scores, vector_ids, slots, counters, id_type=kind)


def _count(
    counters: dict[str, NDArray[Any]], more: dict[str, NDArray[Any]], rows: NDArray[np.int64], n: int
) -> None:
    """Add a part's counters of some queries to those of all."""
    for name, values in more.items():
        total = counters.setdefault(name, np.zeros(n, values.dtype))
        total[rows] = np.maximum(total[rows], values) if name in _LONGEST else total[rows] + values


def _nearest_first(
    ids: NDArray[Any], scores: NDArray[np.float32], there: NDArray[np.bool_], metric: str
) -> NDArray[np.int64]:
    """Return the order of each row: what is there first, then by score, then by id."""
    ranks = ids
    if ids.dtype == object:
        ranks = np.zeros(ids.shape, np.int64)
        ranks[there] = np.unique(ids[there], return_inverse=True)[1].ravel()
    keys = np.where(there, scores if metric == "l2" else -scores, 0)
    order: NDArray[np.int64] = np.lexsort((ranks, keys, ~there), axis=-1)
    return order
