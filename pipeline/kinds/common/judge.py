"""The judge of layouts: page reads a query at equal recall, counted by the reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.bisection import least
from indexmill.pipeline.kinds.common.recall import within

if TYPE_CHECKING:
    from indexmill.reader.index import Index, SearchResult

#: Recall@10 at which layouts are compared, if searches reach it.
TARGET_RECALL = 0.95
#: List sizes tried, until the recall is reached; then it is bisected for.
_LIST_SIZES = (12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
#: Distances at a time: 16 MiB of differences.
_BLOCK_BYTES = 16 << 20


@dataclass(frozen=True)
class TuningQueries:
    """Queries by which layouts are compared.

    Attributes
    ----------
    vectors : array, shape (q, dim)
        As a caller of `Index.search` has them.
    compared : float32 array, shape (q, stored dim)
        As they are compared with `rows`.
    kth : float64 array, shape (q,)
        Squared distance of the k-th true neighbour.
    k : int
    own : int64 array, shape (q,), or None
        Vector id of each query, where queries are vectors of the index: it does not count.
    """

    vectors: NDArray[Any]
    compared: NDArray[np.float32]
    kth: NDArray[np.float64]
    k: int
    own: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.vectors)


@dataclass(frozen=True)
class Cost:
    """Cost of the searches of a layout.

    Attributes
    ----------
    pages : float64 array, shape (q,)
        Page reads of each query, linear between the two list sizes whose recalls enclose the target.
    recall : float
        The target, or what was reached.
    list_size : float
        L at which it is reached, linear in the same way.
    reached : bool
        Whether the target was.
    """

    pages: NDArray[np.float64]
    recall: float
    list_size: float
    reached: bool

    @property
    def mean(self) -> float:
        """Mean page reads a query."""
        return float(self.pages.mean())


class Judge:
    """Searches views of one index for the same queries.

    Parameters
    ----------
    rows : uint8 or float32 array, shape (n, stored dim)
        Exact vectors by vector id.
    queries : TuningQueries
    threads : int
        Search threads; the counters do not depend on them.

    Attributes
    ----------
    k : int
    target : float
        Recall@k at which layouts are compared.
    """

    def __init__(self, rows: NDArray[Any], queries: TuningQueries, threads: int) -> None:
        self._rows, self._queries, self._threads = rows, queries, threads
        self.k, self.target = queries.k, TARGET_RECALL

    def aim(self, view: Index) -> None:
        """Lower the target to what searches of `view` reach with the largest list, if they do not reach it."""
        self.target = min(self.target, self.highest_recall(view))

    def highest_recall(self, view: Index) -> float:
        """Return the recall of searches with the largest list."""
        return self._search(view, self._list_sizes(view)[-1])[1]

    def cost(self, view: Index) -> Cost:
        """Return page reads at the target recall."""
        sizes = self._list_sizes(view)
        costs = {sizes[0]: self._search(view, sizes[0])}
        low = high = sizes[0]
        for size in sizes[1:]:
            if costs[high][1] >= self.target:
                break
            low, high = high, size
            costs[size] = self._search(view, size)
        pages, recall = costs[high]
        if low == high or recall < self.target:  # the shortest list is long enough, or the longest is not
            return Cost(pages, recall, high, recall >= self.target)

        def reaches(size: int) -> bool:
            costs[size] = self._search(view, size)
            return costs[size][1] >= self.target

        enough = least(reaches, low, high)
        (before, less), (after, more) = costs[enough - 1], costs[enough]
        share = (self.target - less) / (more - less)
        return Cost(before + share * (after - before), self.target, enough - 1 + share, True)

    def traced(self, view: Index, list_size: int) -> SearchResult:
        """Search `view` once more, with a trace."""
        q = self._queries
        return view.search(
            q.vectors, q.k, L=max(q.k, list_size), threads=self._threads, deterministic=True, trace=True
        )

    def hits(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a mask of `ids`, (q, m), -1 for none: true neighbours and rows as near, except for a query's own."""
        q = self._queries
        near = within(distances_to(self._rows, ids, q.compared), q.kth)
        return near if q.own is None else near & (ids != q.own[:, None])

    def _list_sizes(self, view: Index) -> list[int]:
        least = self._queries.k + (self._queries.own is not None)
        most = max(least, min(_LIST_SIZES[-1], len(view)))
        return sorted({max(least, min(size, most)) for size in _LIST_SIZES})

    def _search(self, view: Index, list_size: int) -> tuple[NDArray[np.float64], float]:
        """Page reads of each query, and mean recall."""
        q = self._queries
        wanted = min(q.k + (q.own is not None), len(view))
        result = view.search(q.vectors, wanted, L=list_size, threads=self._threads, deterministic=True)
        hits = np.minimum(self.hits(result.vector_ids).sum(axis=1), q.k)
        return result.counters["pages_read"].astype(np.float64), float(hits.mean() / q.k)


def distances_to(
    rows: NDArray[Any], ids: NDArray[np.integer[Any]], queries: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return squared distances, float64 (q, k), of rows `ids` (q, k) to `queries` (q, dim); NaN where an id is -1."""
    out = np.empty(ids.shape)
    step = max(1, _BLOCK_BYTES // (8 * ids.shape[1] * rows.shape[1]))
    for first in range(0, len(ids), step):
        block = slice(first, first + step)
        differences = rows[np.maximum(ids[block], 0)].astype(np.float64) - queries[block, None, :]
        out[block] = np.einsum("qkd,qkd->qk", differences, differences)
    out[ids < 0] = np.nan
    return out
