"""Byte codes of floats, and what they prove: a row's least distance from a query.

A row x of a segment is its middle c and a difference d; d is its code a times a step, and a rest r. A query y is the
origin o of all queries and a difference e, with a code b, a step and a rest s of its own. Then

    |x - y|^2 = |y - c|^2 + |d|^2 - 2 d.(o - c) - 2 d.e      and      d.e = steps * a.b + (e - s).r + s.d,

of which all is known but the last two products, at most ``|e - s| |r|`` and ``|s| |d|`` (Cauchy-Schwarz). The integers
``a.b`` are exact. So each row has a least distance. Inner products are bounded likewise: ``-x.y = -y.c - d.o - d.e``.

Rounding is covered, too. Lengths and offsets are summed in float64. Bounds of pairs are float32, in units of the median
row of a segment, and leave 2^-18 of the lengths of rows and queries for it. Where bounds could overflow, all rows pass.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.rows import Lists, decode
from indexmill.builders.nearest.panels import PANEL
from indexmill.formats.kernel import kernel
from indexmill.reader.threads import BlockPool

#: Rows that share a middle.
SEGMENT = 512
#: Rows that a middle is the mean of, at most; those beyond so many times the median distance do not count.
MIDDLE_ROWS, _FAR = 128, 4.0
#: Queries of a task that codes them.
_QUERIES = 256
#: The largest component that has a code, and the least one.
_MOST, _LEAST = np.float32(1e38), np.float32(1e-36)
#: The share of a length that covers rounding to float32.
ROUNDED = 2.0**-18
#: Lengths in units of a segment's median up to which bounds cannot overflow.
MOST_UNITS = 1e12


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


class Segments(NamedTuple):
    """Where segments lie: entry of the list, first row in it and number of rows, int64 (n_segments,) each."""

    entries: NDArray[np.int64]
    tops: NDArray[np.int64]
    sizes: NDArray[np.int64]


class CodedRows(NamedTuple):
    """Codes of a group of segments.

    Attributes
    ----------
    panels : uint32 array, shape (n, SEGMENT / PANEL, chunks, PANEL)
        128 more than a, as `nearest.panels` arranges bytes, four to a number.
    middles : float32 array, shape (n, dim)
    bounds : float32 array, shape (n, 5, SEGMENT)
        What is known of a row's distance, its step, |r| and |d|, and how far that may round, in units.
    units : float64 array, shape (n,)
    """

    panels: NDArray[np.uint32]
    middles: NDArray[np.float32]
    bounds: NDArray[np.float32]
    units: NDArray[np.float64]


def code_queries(queries: NDArray[Any], pool: BlockPool) -> CodedQueries:
    """Return queries, (n, dim), with their codes."""
    queries = np.require(queries, np.float32, ["C", "W"])
    n, dim = queries.shape
    middle = np.zeros(dim, np.float32)
    if n:
        _middle(np.ascontiguousarray(queries[:: max(1, -(-n // MIDDLE_ROWS))]), middle)
    coded = CodedQueries(
        queries,
        middle.astype(np.float64),
        np.empty((n, dim), np.uint8),
        np.empty(n, np.int32),
        *(np.empty(n, np.float64) for _ in range(3)),
    )
    pool.run(lambda first, last: _code_queries(coded, middle, first, last), n, _QUERIES)
    return coded


def segments_of(lists: Lists) -> Segments:
    """Divide each list into segments, in order."""
    counts = -(-lists.sizes // SEGMENT)
    entries = np.repeat(np.arange(len(counts)), counts)
    tops = (np.arange(len(entries)) - np.repeat(np.cumsum(counts) - counts, counts)) * SEGMENT
    return Segments(entries, tops, np.minimum(lists.sizes[entries] - tops, SEGMENT))


def room_for(n: int, dim: int) -> CodedRows:
    """Return arrays for the codes of `n` segments of vectors of `dim` components."""
    return CodedRows(
        np.empty((n, SEGMENT // PANEL, -(-dim // 4), PANEL), np.uint32),
        np.empty((n, dim), np.float32),
        np.empty((n, 5, SEGMENT), np.float32),
        np.empty(n, np.float64),
    )


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
        rest = np.sqrt(left) + ROUNDED * np.sqrt(square)
        coded.steps[i], coded.rests[i], coded.lengths[i] = step, rest, np.sqrt(square) + rest


@kernel
def code_segment(
    lists: Any, form: Any, group: Any, s: Any, origin: Any, by_product: Any, coded: Any
) -> None:  # pragma: no cover - compiled
    """Code the rows of segment `s` of a group."""
    dim, m = form.dim, group.sizes[s]
    at = lists.at[group.entries[s]] + group.tops[s] * form.row_bytes
    middle, zero = coded.middles[s], np.zeros(dim, np.float32)
    middle[:] = 0
    stride = (m + MIDDLE_ROWS - 1) // MIDDLE_ROWS
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
        slack[i] = ROUNDED * length * (length + 2 * width)
        known[i] = (0.0 if by_product else square) - part - slack[i]
        steps[i], rests[i], lengths[i] = step, np.sqrt(left) + ROUNDED * length, length
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
        if lengths[i] <= MOST_UNITS * unit:
            bounds[0, i], bounds[4, i] = known[i] / (unit * unit), slack[i] / (unit * unit)
            bounds[1, i], bounds[2, i], bounds[3, i] = steps[i] / unit, rests[i] / unit, lengths[i] / unit
        else:  # always compared
            bounds[:, i] = 0
            bounds[0, i] = -np.inf


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
    square, along = inner_product(moved[:dim], moved), inner_product(moved[:dim], toward)
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
    return square, along, np.float64(step), inner_product(moved[:dim], moved)


@kernel
def _middle(rows: Any, middle: Any) -> None:  # pragma: no cover - compiled
    """Move `middle` to the mean of rows, without the few that lie far from most: first from itself, then from that."""
    apart, sums = np.empty(len(rows)), np.empty(rows.shape[1])
    for _ in range(2):
        for i in range(len(rows)):
            apart[i] = squared_distance(rows[i], middle)
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


@kernel(fastmath={"reassoc"})
def squared_distance(row: Any, middle: Any) -> Any:  # pragma: no cover - compiled
    """Return the squared distance of two float32 vectors in float64."""
    total = 0.0
    for j in range(row.size):
        apart = np.float64(row[j]) - np.float64(middle[j])
        total += apart * apart
    return total


@kernel(fastmath={"reassoc"})
def inner_product(row: Any, other: Any) -> Any:  # pragma: no cover - compiled
    """Return the inner product of a vector and the beginning of another one in float64."""
    total = 0.0
    for j in range(row.size):
        total += np.float64(row[j]) * np.float64(other[j])
    return total
