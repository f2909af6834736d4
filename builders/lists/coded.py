"""Lists of floats compared with many queries by byte codes that propose rows, and by a bound that proves the rest out.

A row x of a segment is its middle c and a difference d; d is its code a times a step, and a rest r. A query y is the
origin o of all queries and a difference e, with a code b, a step and a rest s of its own. Then

    |x - y|^2 = |y - c|^2 + |d|^2 - 2 d.(o - c) - 2 d.e      and      d.e = steps * a.b + (e - s).r + s.d,

of which all is known but the last two products, at most ``|e - s| |r|`` and ``|s| |d|`` (Cauchy-Schwarz). The integers
``a.b`` are exact. So each row has a least distance: a row whose least distance is above the k-th nearest known so far
cannot be among the k nearest. Of the few other rows the exact key is computed, as `rows.exact_keys` does. What is left
out is proved, so the result is the exact one, ties included, whatever the codes are like: they decide the time alone.
Inner products are bounded likewise: ``-x.y = -y.c - d.o - d.e``.

Rounding is covered, too. Lengths and offsets are summed in float64. Bounds of pairs are float32, in units of the median
row of a segment, and leave 2^-18 of the lengths of rows and queries for it. Where bounds could overflow, all rows pass.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.rows import FLOAT16, FLOAT32, Lists, RowFormat, decode
from indexmill.builders.nearest.pairs import Pairs
from indexmill.builders.nearest.panels import MAX_DIM, PANEL, all_scores
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import l2_gather_f32
from indexmill.reader.threads import BlockPool

#: Components from which codes are faster than products of floats.
CODED_DIM = 64
#: Rows that share a middle; queries that are compared with them at a time: their scores stay in a core's own cache.
_SEGMENT, _TILE = 512, 96
#: Bytes of rows that are coded at a time.
_GROUP_BYTES = 8 << 20
#: Rows that a middle is the mean of, at most; those beyond so many times the median distance do not count.
_MIDDLE_ROWS, _FAR = 128, 4.0
#: Queries of a task that codes them; tasks of a thread that compares them.
_QUERIES, _TASKS = 256, 2
#: The largest component that has a code, and the least one.
_MOST, _LEAST = np.float32(1e38), np.float32(1e-36)
#: The share of a length that covers rounding to float32; of a key, to float64; what covers numbers that vanish.
_ROUNDED, _SUMMED, _VANISHED = 2.0**-18, 2e-11, 1e-30
#: Lengths in units of a segment's median up to which bounds cannot overflow.
_MOST_UNITS = 1e12
#: How far a float32 distance is trusted (`reader.kernels`): up to `MAX_DIM` components, and to this size.
_TRUSTED, _MOST_TRUSTED = 1 + 2.0**-12, 1e30
#: Rows that wait for their exact keys at most, and those whose keys are computed together: each is one long sum.
_HELD, _KEYS = 2048, 8


class CodedQueries(NamedTuple):
    """Queries and their codes.

    Attributes
    ----------
    queries : float32 array, shape (n, dim)
    origin : float64 array, shape (dim,)
    codes : uint8 array, shape (n, dim)
        128 more than b.
    sums : int32 array, shape (n,)
        256 times the sum of b.
    steps, rests, lengths : float64 arrays, shape (n,)
        The step, |s| and a bound of |e - s|.
    """

    queries: NDArray[np.float32]
    origin: NDArray[np.float64]
    codes: NDArray[np.uint8]
    sums: NDArray[np.int32]
    steps: NDArray[np.float64]
    rests: NDArray[np.float64]
    lengths: NDArray[np.float64]


class _Segments(NamedTuple):
    """Where segments lie: entry of the list, first row in it and number of rows, int64 (n_segments,) each."""

    entries: NDArray[np.int64]
    tops: NDArray[np.int64]
    sizes: NDArray[np.int64]


class _Coded(NamedTuple):
    """Codes of a group of segments.

    Attributes
    ----------
    panels : uint32 array, shape (n, _SEGMENT / PANEL, chunks, PANEL)
        128 more than a, as `nearest.panels` arranges bytes, four to a number.
    middles : float32 array, shape (n, dim)
    bounds : float32 array, shape (n, 5, _SEGMENT)
        What is known of a row's distance, its step, |r| and |d|, and how far that may round, in units.
    units : float64 array, shape (n,)
    """

    panels: NDArray[np.uint32]
    middles: NDArray[np.float32]
    bounds: NDArray[np.float32]
    units: NDArray[np.float64]


class _Space(NamedTuple):
    """Arrays of a thread.

    Attributes
    ----------
    scores : int32 array, shape (_TILE * _SEGMENT,)
    offsets : int32 array, shape (_SEGMENT / PANEL, PANEL)
        Zero, of panels.
    lows, highs : float32 arrays, shape (_SEGMENT,)
        Bounds of keys from below and above.
    columns, near : uint32 and float32 arrays, shape (_SEGMENT,)
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
        np.empty(_TILE * _SEGMENT, np.int32),
        np.zeros((_SEGMENT // PANEL, PANEL), np.int32),
        np.empty(_SEGMENT, np.float32),
        np.empty(_SEGMENT, np.float32),
        np.empty(_SEGMENT, np.uint32),
        np.empty(_SEGMENT, np.float32),
        np.empty(_HELD, np.int64),
        np.empty(_HELD, np.int64),
        np.empty(_HELD, np.uint32),
        np.empty((1, dim), np.float32),
        np.zeros(dim, np.float32),
        np.zeros((_KEYS, dim), np.float64),
        np.empty(_KEYS, np.float64),
    )


def can_be_coded(form: RowFormat) -> bool:
    """Return whether rows of a format are plain floats for which codes are faster, with enough queries."""
    return form.kind in (FLOAT32, FLOAT16) and CODED_DIM <= form.dim <= MAX_DIM


class CodedBytes(NamedTuple):
    """Bytes of `code_queries` and `merge_coded`: of each query, of the codes of a group of rows, and of a thread."""

    query: int
    group: int
    thread: int


def coded_bytes(dim: int) -> CodedBytes:
    """Return the memory of comparing vectors of `dim` components by codes."""
    if not CODED_DIM <= dim <= MAX_DIM:  # never coded
        return CodedBytes(0, 0, 0)
    group = max(_GROUP_BYTES // 2, _SEGMENT * dim) + (2 << 20)
    return CodedBytes(
        query=dim + 28,
        group=group,
        thread=4 * dim * (_MIDDLE_ROWS + 32) + 4 * _TILE * _SEGMENT + (128 << 10),
    )


def code_queries(queries: NDArray[Any], pool: BlockPool) -> CodedQueries:
    """Return queries, (n, dim), with their codes."""
    queries = np.require(queries, np.float32, ["C", "W"])
    n, dim = queries.shape
    middle = np.zeros(dim, np.float32)
    if n:
        _middle(np.ascontiguousarray(queries[:: max(1, -(-n // _MIDDLE_ROWS))]), middle)
    coded = CodedQueries(
        queries,
        middle.astype(np.float64),
        np.empty((n, dim), np.uint8),
        np.empty(n, np.int32),
        *(np.empty(n, np.float64) for _ in range(3)),
    )
    pool.run(lambda first, last: _code_queries(coded, middle, first, last), n, _QUERIES)
    return coded


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
    segments, starts = _segments(lists), lists.starts
    n, dim, n_queries = len(segments.sizes), form.dim, len(asked.queries)
    step = max(1, _GROUP_BYTES // (_SEGMENT * form.row_bytes))
    held = min(step, n)
    coded = _Coded(
        np.empty((held, _SEGMENT // PANEL, -(-dim // 4), PANEL), np.uint32),
        np.empty((held, dim), np.float32),
        np.empty((held, 5, _SEGMENT), np.float32),
        np.empty(held, np.float64),
    )
    block = max(1, -(-n_queries // (_TASKS * threads)))
    if block > _TILE:
        block = -(-block // _TILE) * _TILE
    for first in range(0, n, step):
        last = min(first + step, n)
        group = _Segments(*(column[first:last] for column in segments))

        def code(s: int, _: int, group: _Segments = group) -> None:
            _code_segment(lists, form, group, s, asked.origin, by_product, coded)

        def compare(top: int, end: int, group: _Segments = group) -> None:
            space = _space(dim)
            compare_coded(
                lists, starts, form, group, coded, asked, *pairs, top, end, by_product, space, keys, ids
            )

        pool.run(code, last - first, 1)
        pool.run(compare, n_queries, block)


def _segments(lists: Lists) -> _Segments:
    counts = -(-lists.sizes // _SEGMENT)
    entries = np.repeat(np.arange(len(counts)), counts)
    tops = (np.arange(len(entries)) - np.repeat(np.cumsum(counts) - counts, counts)) * _SEGMENT
    return _Segments(entries, tops, np.minimum(lists.sizes[entries] - tops, _SEGMENT))


@kernel(fastmath={"reassoc"})
def _distance(row: Any, middle: Any) -> Any:  # pragma: no cover - compiled
    """Return the squared distance of two float32 vectors in float64."""
    total = 0.0
    for j in range(row.size):
        apart = np.float64(row[j]) - np.float64(middle[j])
        total += apart * apart
    return total


@kernel(fastmath={"reassoc"})
def _product(row: Any, other: Any) -> Any:  # pragma: no cover - compiled
    """Return the inner product of a vector and the beginning of another one in float64."""
    total = 0.0
    for j in range(row.size):
        total += np.float64(row[j]) * np.float64(other[j])
    return total


@kernel
def _middle(rows: Any, middle: Any) -> None:  # pragma: no cover - compiled
    """Move `middle` to the mean of rows, without the few that lie far from most: first from itself, then from that."""
    apart, sums = np.empty(len(rows)), np.empty(rows.shape[1])
    for _ in range(2):
        for i in range(len(rows)):
            apart[i] = _distance(rows[i], middle)
        most = _FAR * _FAR * np.median(apart)
        sums[:] = 0.0
        count = 0
        for i in range(len(rows)):
            if apart[i] <= most:
                count += 1
                for j in range(sums.size):
                    sums[j] += np.float64(rows[i, j])
        if count > 0:
            for j in range(sums.size):
                middle[j] = np.float32(sums[j] / count)


@kernel
def _code_row(
    row: Any, middle: Any, toward: Any, moved: Any, bits: Any, code: Any
) -> Any:  # pragma: no cover - compiled
    """Write the code of a row to `code`, and return |d|^2, d.toward, the step and |r|^2.

    Sums alone may be reordered by the compiler: a rest is as exact as its two roundings.

    Parameters
    ----------
    row, middle : float32 arrays, shape (dim,)
    toward : float64 array, shape (dim,)
    moved, bits : float32 array, shape (dim + 1,), and its bits as int32
        Space.
    code : uint8 array, shape (at least dim,)
    """
    dim = row.size
    for j in range(dim):
        moved[j] = row[j] - middle[j]
    largest = np.int32(0)
    for j in range(dim):
        largest = max(largest, np.int32(bits[j] & np.int32(0x7FFFFFFF)))
    square, along = _product(moved[:dim], moved), _product(moved[:dim], toward)
    bits[dim] = largest
    if not (moved[dim] > _LEAST and moved[dim] < _MOST):
        for j in range(dim):
            code[j] = np.uint8(128)
        return square, along, 0.0, square
    step = moved[dim] / np.float32(127)
    inverse = np.float32(127) / moved[dim]
    for j in range(dim):
        code[j] = np.uint8(np.int32(moved[j] * inverse + np.float32(128.5)))
    for j in range(dim):
        moved[j] -= step * (np.float32(code[j]) - np.float32(128))
    return square, along, np.float64(step), _product(moved[:dim], moved)


@kernel
def _code_queries(coded: Any, middle: Any, first: Any, last: Any) -> None:  # pragma: no cover - compiled
    dim = middle.size
    moved, toward = np.empty(dim + 1, np.float32), np.zeros(dim)
    bits = moved.view(np.int32)
    for i in range(first, last):
        square, _, step, left = _code_row(coded.queries[i], middle, toward, moved, bits, coded.codes[i])
        total = np.int64(0)
        for j in range(dim):
            total += np.int64(coded.codes[i, j])
        coded.sums[i] = np.int32(256 * (total - 128 * dim))
        rest = np.sqrt(left) + _ROUNDED * np.sqrt(square)
        coded.steps[i], coded.rests[i], coded.lengths[i] = step, rest, np.sqrt(square) + rest


@kernel
def _code_segment(
    lists: Any, form: Any, group: Any, s: Any, origin: Any, by_product: Any, coded: Any
) -> None:  # pragma: no cover - compiled
    """Code the rows of segment `s` of a group."""
    dim, m = form.dim, group.sizes[s]
    at = lists.at[group.entries[s]] + group.tops[s] * form.row_bytes
    middle, zero = coded.middles[s], np.zeros(dim, np.float32)
    middle[:] = 0
    stride = (m + _MIDDLE_ROWS - 1) // _MIDDLE_ROWS
    some = np.empty(((m + stride - 1) // stride, dim), np.float32)
    for i in range(len(some)):
        decode(lists.data, at + i * stride * form.row_bytes, 1, form, zero, some[i : i + 1])
    _middle(some, middle)
    toward = np.empty(dim)
    for j in range(dim):
        toward[j] = origin[j] - (0.0 if by_product else np.float64(middle[j]))
    width = np.sqrt((toward * toward).sum())
    row, moved = some[:1], np.empty(dim + 1, np.float32)
    code = np.full(4 * coded.panels.shape[2], np.uint8(128))
    bits, words = moved.view(np.int32), code.view(np.uint32)
    known, slack, steps = np.empty(m), np.empty(m), np.empty(m)
    rests, lengths = np.empty(m), np.empty(m)
    for i in range(m):
        decode(lists.data, at + i * form.row_bytes, 1, form, zero, row)
        square, along, step, left = _code_row(row[0], middle, toward, moved, bits, code)
        length = np.sqrt(square)
        part = along if by_product else 2 * along
        slack[i] = _ROUNDED * length * (length + 2 * width)
        known[i] = (0.0 if by_product else square) - part - slack[i]
        steps[i], rests[i], lengths[i] = step, np.sqrt(left) + _ROUNDED * length, length
        panel = coded.panels[s, i // PANEL]
        for c in range(words.size):
            panel[c, i % PANEL] = words[c]
    unit = np.median(lengths)
    if not unit > 0:
        unit = lengths.max()
    if not (unit > 0 and unit < np.inf):
        unit = 1.0
    coded.units[s] = unit
    bounds = coded.bounds[s]
    for i in range(m):
        if lengths[i] <= _MOST_UNITS * unit:
            bounds[0, i], bounds[4, i] = known[i] / (unit * unit), slack[i] / (unit * unit)
            bounds[1, i], bounds[2, i], bounds[3, i] = steps[i] / unit, rests[i] / unit, lengths[i] / unit
        else:  # always compared
            bounds[:, i] = 0
            bounds[0, i] = -np.inf


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
                if held > _HELD - _SEGMENT:
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
    bounds : float32 array, shape (5, _SEGMENT)
    keys : float64 array, shape (k,)
    space : _Space
    """
    lows, highs, columns = space.lows, space.highs, space.columns
    query = asked.queries[q]
    own = -_product(query, middle) if by_product else _distance(query, middle)
    size = np.abs(own)
    if by_product:
        size = np.sqrt(_product(query, query) * _product(middle, middle))
    limit = _limit(keys[-1], own, size, unit)
    weight = 1.0 if by_product else 2.0
    of_rest, of_length = weight * asked.lengths[q] / unit, weight * asked.rests[q] / unit
    if not of_rest < _MOST_UNITS:
        limit = np.float32(np.inf)
    of_step = np.float32(0.5 * weight * asked.steps[q] / unit)
    above = _lower_bounds(
        scores, bounds, asked.sums[q], of_step, np.float32(of_rest), np.float32(of_length), limit, lows
    )
    m, n = scores.size, 0
    if above == m:
        return n
    if limit == np.inf and m >= keys.size and of_rest < _MOST_UNITS:
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
    return np.float32(apart + slack + _ROUNDED * np.abs(apart) + _VANISHED)


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
