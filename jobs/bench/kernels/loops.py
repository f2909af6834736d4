"""The reader's kernels as numba compiles them by itself: the other side of the benchmark.

numba cannot compute with float16 on a CPU; rows of it are looked up in a table of all 65,536 values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from indexmill.reader.kernels import (
    code_distances,
    inner_products,
    prune_sorted,
    sort_pairs,
    squared_distances,
)

with np.errstate(invalid="ignore"):
    #: Value of each float16 by its bits.
    HALVES = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
#: As in the reader: growth of the slack between rounds, and the mark of a chosen candidate.
_SLACK_STEP, _CHOSEN = np.float32(1.2), np.float32(-1)


@njit(nogil=True, cache=True)
def native_l2(queries: Any, vectors: Any, ids: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Distances of each query to the rows that `ids` (n_queries, m) names, to `out`, float32 of the same shape."""
    for q in range(len(queries)):
        squared_distances(queries, q, vectors, ids[q], ids.shape[1], out[q])


@njit(nogil=True, cache=True)
def native_ip(queries: Any, vectors: Any, ids: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Inner products likewise."""
    for q in range(len(queries)):
        inner_products(queries, q, vectors, ids[q], ids.shape[1], out[q])


#: The number type that sums have, and what turns a component into a number of it, by the type of the rows.
TYPES: dict[str, tuple[Any, Any]] = {
    "float32": (np.float32, njit(lambda component: component)),
    "float16": (np.float32, njit(lambda bits: HALVES[bits])),
    "uint8": (np.int32, njit(lambda component: np.int32(component))),
    "int8": (np.int32, njit(lambda component: np.int32(component))),
}


def looped(metric: str, dtype: str) -> Any:
    """Return the loop that does as `native_l2` or `native_ip`; float sums are in whatever order the compiler likes."""
    squared, (kind, number) = metric == "l2", TYPES[dtype]

    @njit(nogil=True, fastmath=kind is np.float32)
    def loop(queries: Any, vectors: Any, ids: Any, out: Any) -> None:  # pragma: no cover - compiled
        for q in range(len(queries)):
            for i in range(ids.shape[1]):
                total = kind(0)
                for j in range(vectors.shape[1]):
                    a, b = number(queries[q, j]), number(vectors[ids[q, i], j])
                    total = kind(total + ((a - b) * (a - b) if squared else a * b))
                out[q, i] = total

    return loop


@njit(nogil=True, cache=True)
def native_codes(tables: Any, codes: Any, ids: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Distances by each of `tables`, float32 (n_queries, n_chunks, 256), of the codes that `ids` names."""
    for q in range(len(tables)):
        code_distances(
            tables[q].ctypes.data,
            codes.shape[1],
            codes.ctypes.data,
            ids[q].ctypes.data,
            ids.shape[1],
            out[q].ctypes.data,
        )


@njit(nogil=True, cache=True)
def looped_codes(tables: Any, codes: Any, ids: Any, out: Any) -> None:  # pragma: no cover - compiled
    """As `native_codes`, to the same bits."""
    for q in range(len(tables)):
        for i in range(ids.shape[1]):
            total = np.float32(0)
            for j in range(codes.shape[1]):
                total += tables[q, j, codes[ids[q, i], j]]
            out[q, i] = total


@njit(nogil=True, cache=True)
def native_prunes(
    vectors: Any, ids: Any, distances: Any, alpha: Any, out: Any, degrees: Any
) -> None:  # pragma: no cover - compiled
    """Prune every row of candidates, `ids` and `distances` of shape (m, n), to a row of `out` (m, R)."""
    for i in range(len(ids)):
        degrees[i] = prune_sorted(
            vectors, ids[i], distances[i], ids.shape[1], out.shape[1], alpha, True, out[i]
        )


@njit(nogil=True, cache=True)
def looped_prunes(
    vectors: Any, ids: Any, distances: Any, alpha: Any, out: Any, degrees: Any
) -> None:  # pragma: no cover - compiled
    """As `native_prunes`, candidate by candidate as they are chosen; distances are the reader's."""
    n, limit = ids.shape[1], np.float32(alpha)
    occlusion, far = np.empty(n, np.float32), np.empty(n, np.float32)
    places, alive = np.empty(n, np.int64), np.empty(n, np.uint32)
    for row in range(len(ids)):
        occlusion[:] = 0
        chosen, slack = 0, np.float32(1)
        while chosen < out.shape[1]:
            for i in range(n):
                if chosen == out.shape[1]:
                    break
                if occlusion[i] > slack or occlusion[i] == _CHOSEN:
                    continue
                occlusion[i] = _CHOSEN
                out[row, chosen] = ids[row, i]
                chosen += 1
                m = 0
                for j in range(i + 1, n):
                    if _CHOSEN < occlusion[j] <= limit:
                        places[m], alive[m] = j, ids[row, j]
                        m += 1
                squared_distances(vectors, np.int64(ids[row, i]), vectors, alive, m, far)
                for a in range(m):
                    j = places[a]
                    hidden = distances[row, j] / far[a] if far[a] > 0 else np.float32(np.inf)
                    occlusion[j] = max(occlusion[j], hidden)
            if slack >= limit:
                break
            slack = min(slack * _SLACK_STEP, limit)
        for i in range(n):
            if chosen == out.shape[1]:
                break
            if occlusion[i] != _CHOSEN:
                out[row, chosen] = ids[row, i]
                chosen += 1
        degrees[row] = chosen


@njit(nogil=True, cache=True)
def native_sorts(ids: Any, distances: Any) -> None:  # pragma: no cover - compiled
    """Sort every row of candidates, shape (m, n), by (distance, id)."""
    for i in range(len(ids)):
        sort_pairs(ids[i].ctypes.data, distances[i].ctypes.data, ids.shape[1])


@njit(nogil=True, cache=True)
def looped_sorts(ids: Any, distances: Any) -> None:  # pragma: no cover - compiled
    """As `native_sorts`: distances that are not negative order like their bits."""
    n = ids.shape[1]
    keys = np.empty(n, np.uint64)
    for i in range(len(ids)):
        bits = distances[i].view(np.uint32)
        for j in range(n):
            keys[j] = np.uint64(bits[j]) << np.uint64(32) | np.uint64(ids[i, j])
        keys.sort()
        for j in range(n):
            ids[i, j] = np.uint32(keys[j])
            bits[j] = np.uint32(keys[j] >> np.uint64(32))
