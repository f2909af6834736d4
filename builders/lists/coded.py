"""Lists of floats compared with many queries by byte codes that propose rows, and by a bound that proves the rest out.

A row whose least distance (`coding`) is above the k-th nearest known so far cannot be among the k nearest. Of the few
other rows the exact key is computed, as `rows.exact_keys` does. What is left out is proved, so the result is the exact
one, ties included, whatever the codes are like: they decide the time alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.coding import (
    MIDDLE_ROWS,
    MOST_UNITS,
    ROUNDED,
    SEGMENT,
    CodedQueries,
    Segments,
    code_segment,
    inner_product,
    room_for,
    segments_of,
    squared_distance,
)  # fmt: skip
from indexmill.builders.lists.rows import FLOAT16, FLOAT32, Lists, RowFormat, decode
from indexmill.builders.nearest.pairs import Pairs
from indexmill.builders.nearest.panels import MAX_DIM, PANEL, all_scores
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import l2_gather_f32
from indexmill.reader.threads import BlockPool

#: Components from which codes are faster than products of floats.
CODED_DIM = 64
#: Queries that are compared with a segment at a time: their scores stay in a core's own cache.
_TILE = 96
#: Bytes of rows that are coded at a time; tasks of a thread that compares them.
_GROUP_BYTES, _TASKS = 8 << 20, 2
#: The share of a key that covers rounding to float64; what covers numbers that vanish.
_SUMMED, _VANISHED = 2e-11, 1e-30
#: How far a float32 distance is trusted (`reader.kernels`): up to `MAX_DIM` components, and to this size.
_TRUSTED, _MOST_TRUSTED = 1 + 2.0**-12, 1e30
#: Rows that wait for their exact keys at most, and those whose keys are computed together: each is one long sum.
_HELD, _KEYS = 2048, 8


class _Space(NamedTuple):
    """Arrays of a thread.

    Attributes
    ----------
    scores : int32 array, shape (_TILE * SEGMENT,)
    offsets : int32 array, shape (SEGMENT / PANEL, PANEL)
        Zero, of panels.
    lows, highs : float32 arrays, shape (SEGMENT,)
        Bounds of keys from below and above.
    columns, near : uint32 and float32 arrays, shape (SEGMENT,)
        Rows that may be near, and their rounded distances.
    queries, at, names : int64, int64 and uint32 arrays, shape (_HELD,)
        Rows that wait for their keys: number of the query, place in the bytes of the lists, and id.
    rows : float32 array, shape (1, dim)
        A row that is no float32.
    zero : float32 array, shape (dim,)
    terms, keys : float64 arrays, shapes (_KEYS, dim) and (_KEYS,)
    """

    scores: NDArray[np.int32]
    offsets: NDArray[np.int32]
    lows: NDArray[np.float32]
    highs: NDArray[np.float32]
    columns: NDArray[np.uint32]
    near: NDArray[np.float32]
    queries: NDArray[np.int64]
    at: NDArray[np.int64]
    names: NDArray[np.uint32]
    rows: NDArray[np.float32]
    zero: NDArray[np.float32]
    terms: NDArray[np.float64]
    keys: NDArray[np.float64]


def _space(dim: int) -> _Space:
    return _Space(
        np.empty(_TILE * SEGMENT, np.int32),
        np.zeros((SEGMENT // PANEL, PANEL), np.int32),
        np.empty(SEGMENT, np.float32),
        np.empty(SEGMENT, np.float32),
        np.empty(SEGMENT, np.uint32),
        np.empty(SEGMENT, np.float32),
        np.empty(_HELD, np.int64),
        np.empty(_HELD, np.int64),
        np.empty(_HELD, np.uint32),
        np.empty((1, dim), np.float32),
        np.zeros(dim, np.float32),
        np.zeros((_KEYS, dim), np.float64),
        np.empty(_KEYS, np.float64),
    )


def is_coded_dim(dim: int) -> bool:
    """Return whether codes of floats with so many components are faster, with enough queries."""
    return CODED_DIM <= dim <= MAX_DIM


def can_be_coded(form: RowFormat) -> bool:
    """Return whether rows of a format are plain floats for which codes are faster, with enough queries."""
    return form.kind in (FLOAT32, FLOAT16) and is_coded_dim(form.dim)


class CodedBytes(NamedTuple):
    """Bytes of `code_queries` and `merge_coded`: of each query, of the codes of a group of rows, and of a thread."""

    query: int
    group: int
    thread: int


def coded_bytes(dim: int) -> CodedBytes:
    """Return the memory of comparing vectors of `dim` components by codes."""
    if not is_coded_dim(dim):
        return CodedBytes(0, 0, 0)
    group = max(_GROUP_BYTES // 2, SEGMENT * dim) + (2 << 20)
    return CodedBytes(
        query=dim + 28,
        group=group,
        thread=4 * dim * (MIDDLE_ROWS + 32) + 4 * _TILE * SEGMENT + (128 << 10),
    )


def merge_coded(
    lists: Lists,
    form: RowFormat,
    asked: CodedQueries,
    pairs: Pairs,
    keys: NDArray[np.float64],
    ids: NDArray[np.uint32],
    pool: BlockPool,
    threads: int,
    *,
    by_product: bool = False,
) -> None:
    """Merge the vectors of lists into the k nearest of the queries that probe them, exactly, by (key, id).

    Memory: `coded_bytes`.

    Parameters
    ----------
    lists : Lists
        Writable.
    form : RowFormat
        Of kind `FLOAT32` or `FLOAT16`.
    keys, ids : arrays, shape (n_queries, k)
        As in `scan.Nearest`: the nearest known so far; infinity and `NOTHING` for none.
    by_product : bool
        Whether keys are negative inner products.
    """
    segments, starts = segments_of(lists), lists.starts
    n, dim, n_queries = len(segments.sizes), form.dim, len(asked.queries)
    step = max(1, _GROUP_BYTES // (SEGMENT * form.row_bytes))
    coded = room_for(min(step, n), dim)
    block = max(1, -(-n_queries // (_TASKS * threads)))
    if block > _TILE:
        block = -(-block // _TILE) * _TILE
    for first in range(0, n, step):
        last = min(first + step, n)
        group = Segments(*(column[first:last] for column in segments))

        def code(s: int, _: int, group: Segments = group) -> None:
            code_segment(lists, form, group, s, asked.origin, by_product, coded)

        def compare(top: int, end: int, group: Segments = group) -> None:
            space = _space(dim)
            compare_coded(
                lists, starts, form, group, coded, asked, *pairs, top, end, by_product, space, keys, ids
            )

        pool.run(code, last - first, 1)
        pool.run(compare, n_queries, block)


@kernel
def compare_coded(
    lists: Any, starts: Any, form: Any, group: Any, coded: Any, asked: Any, rows: Any, row_starts: Any, first: Any,
    last: Any, by_product: Any, space: Any, keys: Any, ids: Any,
) -> None:  # fmt: skip # pragma: no cover - compiled
    """Merge a group of segments into the nearest of queries `first` to `last`."""
    for s in range(group.sizes.size):
        e, base, m = group.entries[s], group.tops[s], group.sizes[s]
        g, used = lists.names[e], (m + PANEL - 1) // PANEL
        probing = rows[row_starts[g] : row_starts[g + 1]]
        mine = probing[np.searchsorted(probing, first) : np.searchsorted(probing, last)]
        held = 0
        for before in range(0, mine.size, _TILE):
            some = mine[before : before + _TILE]
            all_scores(asked.codes, some, coded.panels[s], space.offsets[:used], space.scores)
            for i in range(some.size):
                q, at = some[i], i * used * PANEL
                n = _passing(
                    space.scores[at : at + m], coded.bounds[s], coded.middles[s], coded.units[s], asked, q,
                    by_product, keys[q], space,
                )  # fmt: skip
                if n > 0:
                    held = _hold(
                        lists, e, base, starts[e] + base, form, asked.queries, q, n, by_product, keys[q], space, held
                    )  # fmt: skip
                if held > _HELD - SEGMENT:
                    _merge_exact(lists, form, asked.queries, held, by_product, space, keys, ids)
                    held = 0
            _merge_exact(lists, form, asked.queries, held, by_product, space, keys, ids)
            held = 0


@kernel
def _passing(
    scores: Any, bounds: Any, middle: Any, unit: Any, asked: Any, q: Any, by_product: Any, keys: Any, space: Any,
) -> Any:  # fmt: skip # pragma: no cover - compiled
    """Write the rows that may be among the nearest of query `q` to `space.columns`, and return their number.

    Parameters
    ----------
    scores : int32 array, shape (m,)
    bounds : float32 array, shape (5, SEGMENT)
    keys : float64 array, shape (k,)
    space : _Space
    """
    lows, highs, columns = space.lows, space.highs, space.columns
    query = asked.queries[q]
    own = -inner_product(query, middle) if by_product else squared_distance(query, middle)
    size = np.abs(own)
    if by_product:
        size = np.sqrt(inner_product(query, query) * inner_product(middle, middle))
    limit = _limit(keys[-1], own, size, unit)
    weight = 1.0 if by_product else 2.0
    of_rest, of_length = weight * asked.lengths[q] / unit, weight * asked.rests[q] / unit
    if not of_rest < MOST_UNITS:
        limit = np.float32(np.inf)
    of_step = np.float32(0.5 * weight * asked.steps[q] / unit)
    above = _lower_bounds(
        scores, bounds, asked.sums[q], of_step, np.float32(of_rest), np.float32(of_length), limit, lows
    )
    m, n = scores.size, 0
    if above == m:
        return n
    if limit == np.inf and m >= keys.size and of_rest < MOST_UNITS:
        for j in range(m):
            apart = np.float32(of_rest) * bounds[2, j] + np.float32(of_length) * bounds[3, j]
            high = lows[j] + np.float32(2) * (apart + bounds[4, j])
            highs[j] = high if high > -np.inf and high < np.inf else np.inf
        kth = np.float64(np.partition(highs[:m], keys.size - 1)[keys.size - 1])
        limit = _limit(kth * (unit * unit) + own, own, size, unit)
    for j in range(m):
        if not lows[j] > limit:  # NaN, too
            columns[n] = j
            n += 1
    return n


@kernel
def _limit(key: Any, own: Any, size: Any, unit: Any) -> Any:  # pragma: no cover - compiled
    """Return the bound above which rows are farther than `key`, in units, beside what a query has of its own."""
    apart = (key - own) / (unit * unit)
    slack = _SUMMED * (np.abs(key) + size) / (unit * unit)
    return np.float32(apart + slack + ROUNDED * np.abs(apart) + _VANISHED)


@kernel
def _lower_bounds(
    scores: Any, bounds: Any, add: Any, of_step: Any, of_rest: Any, of_length: Any, limit: Any, lows: Any
) -> Any:  # pragma: no cover - compiled
    """Write the least key of each row, beside what the query has of its own; return how many are above `limit`."""
    known, steps, rests, lengths = bounds[0], bounds[1], bounds[2], bounds[3]
    above = np.int32(0)
    for j in range(scores.size):
        products = np.float32(np.int32(scores[j] + add))  # -2 a.b
        low = known[j] + of_step * (steps[j] * products)
        low = (low - of_rest * rests[j]) - of_length * lengths[j]
        lows[j] = low
        above += np.int32(low > limit)
    return above


@kernel
def _hold(
    lists: Any, e: Any, base: Any, place: Any, form: Any, queries: Any, q: Any, n: Any, by_product: Any, keys: Any,
    space: Any, held: Any,
) -> Any:  # fmt: skip # pragma: no cover - compiled
    """Let the first `n` of `space.columns` wait for their keys, and return how many rows do.

    Rows that float32 distances prove to be farther than others are left out.

    Parameters
    ----------
    base, place : int
        Row of list `e` that column 0 is, and its place (`Lists.ids`).
    keys : float64 array, shape (k,)
        Of query `q`.
    """
    columns, near, most = space.columns, space.near, np.inf
    if form.kind == FLOAT32 and not by_product:
        first = lists.data.ctypes.data + lists.at[e] + base * form.row_bytes
        query = queries.ctypes.data + q * form.dim * 4
        l2_gather_f32(query, first, form.dim, columns.ctypes.data, n, near.ctypes.data)
        kth = keys[-1]
        if kth == np.inf and n > keys.size:
            kth = np.float64(np.partition(near[:n], keys.size - 1)[keys.size - 1]) * _TRUSTED
        if kth < _MOST_TRUSTED:
            most = kth * _TRUSTED + _VANISHED
    else:
        near[:n] = 0
    for i in range(n):
        if not np.float64(near[i]) > most:
            space.queries[held], space.names[held] = q, lists.ids[place + columns[i]]
            space.at[held] = lists.at[e] + (base + columns[i]) * form.row_bytes
            held += 1
    return held


@kernel
def _merge_exact(
    lists: Any, form: Any, queries: Any, held: Any, by_product: Any, space: Any, keys: Any, ids: Any
) -> None:  # pragma: no cover - compiled
    """Merge the rows that wait into the nearest of their queries by exact keys, with the sums of `rows.exact_keys`."""
    terms = space.terms
    wide = lists.data[: lists.data.size // 4 * 4].view(np.float32)
    for top in range(0, held, _KEYS):
        m = min(_KEYS, held - top)
        for r in range(m):
            at = space.at[top + r]
            if form.kind == FLOAT32:
                row = wide[at // 4 : at // 4 + form.dim]
            else:
                decode(lists.data, at, 1, form, space.zero, space.rows)
                row = space.rows[0]
            _write_terms(queries[space.queries[top + r]], row, by_product, terms[r])
        _sum_terms(terms, space.keys)
        for r in range(m):
            q = space.queries[top + r]
            _insert(space.keys[r], space.names[top + r], keys[q], ids[q])


@kernel
def _write_terms(query: Any, row: Any, by_product: Any, terms: Any) -> None:  # pragma: no cover - compiled
    """Write the terms of a key in float64."""
    if by_product:
        for j in range(query.size):
            terms[j] = -(np.float64(row[j]) * np.float64(query[j]))
    else:
        for j in range(query.size):
            apart = np.float64(row[j]) - np.float64(query[j])
            terms[j] = apart * apart


@kernel
def _sum_terms(terms: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Add the terms of `_KEYS` keys, each in order."""
    a, b, c, d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(terms.shape[1]):
        a += terms[0, j]
        b += terms[1, j]
        c += terms[2, j]
        d += terms[3, j]
        e += terms[4, j]
        f += terms[5, j]
        g += terms[6, j]
        h += terms[7, j]
    out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7] = a, b, c, d, e, f, g, h


@kernel
def _insert(key: Any, name: Any, keys: Any, ids: Any) -> None:  # pragma: no cover - compiled
    """Put a vector in its place among the nearest, if it has one."""
    last = keys.size - 1
    if not (key < np.inf and (key < keys[last] or (key == keys[last] and name < ids[last]))):
        return
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key or (keys[middle] == key and ids[middle] < name):
            low = middle + 1
        else:
            high = middle
    for at in range(last, low, -1):
        keys[at] = keys[at - 1]
    for at in range(last, low, -1):
        ids[at] = ids[at - 1]
    keys[low], ids[low] = key, name
