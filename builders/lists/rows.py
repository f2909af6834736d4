"""Inverted lists in memory in the form that kernels take, and the decoding of their rows under every codec."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.ivf.rabitq import HEAD_BYTES
from indexmill.formats.kernel import kernel

#: Values of `RowFormat.kind`.
FLOAT32, FLOAT16, UINT8, INT8, SQ8, PQ, RABITQ = range(7)
_NONE = np.zeros((1, 1), np.float32)


class Lists(NamedTuple):
    """Inverted lists, stored one after the other.

    Attributes
    ----------
    data : uint8 array
        Rows of all lists.
    names : uint32 array, shape (n,)
        Number of each list.
    sizes, at : int64 arrays, shape (n,)
        Number of rows of each list, and the byte of `data` where they begin.
    ids : uint32 array, shape (sizes.sum(),)
        Vector ids, list after list. A vector's place is its index here.
    """

    data: NDArray[np.uint8]
    names: NDArray[np.uint32]
    sizes: NDArray[np.int64]
    at: NDArray[np.int64]
    ids: NDArray[np.uint32]

    @property
    def starts(self) -> NDArray[np.int64]:
        """Place of the first vector of each list, and the number of vectors: int64 (n + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)


class RowFormat(NamedTuple):
    """Meaning of the bytes of a row.

    Attributes
    ----------
    kind : int
        `FLOAT32`, `FLOAT16`, `UINT8` and `INT8`: plain components; `SQ8`: codes of a scale; `PQ` and `RABITQ`: codes
        of the difference between a vector and its list's centroid. A decoded `RABITQ` row has the inner products of
        this difference, but not its length, which the row states.
    dim, row_bytes : int
    scale : float32 array, shape (2, dim)
        Minimum and step of each component (`SQ8`).
    pivots : float32 array, shape (K, dim)
    offsets : int64 array, shape (M + 1,)
        As `formats.graph.codes.Codebook` (`PQ`).
    halves : float32 array, shape (65536,)
        Value of each float16 by its bits (`FLOAT16`).
    square : float
        Squared length of all vectors under inner product, else 0 (`RABITQ`).
    """

    kind: int
    dim: int
    row_bytes: int
    scale: NDArray[np.float32] = _NONE
    pivots: NDArray[np.float32] = _NONE
    offsets: NDArray[np.int64] = np.zeros(2, np.int64)
    halves: NDArray[np.float32] = _NONE[0]
    square: float = 0.0


def plain_rows(dtype: np.dtype[Any], dim: int) -> RowFormat:
    """Return the format of plain vectors of type float32, float16, uint8 or int8."""
    kind = {"float32": FLOAT32, "float16": FLOAT16, "uint8": UINT8, "int8": INT8}[dtype.name]
    plain = RowFormat(kind, dim, dim * dtype.itemsize)
    if kind != FLOAT16:
        return plain
    with np.errstate(invalid="ignore"):
        return plain._replace(halves=np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32))


@kernel
def gather_ids(data: Any, at: Any, starts: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Copy the ids of lists, uint32 from bytes `at` (n,) of `data` on, to `out` from `starts` (n + 1,) on."""
    for e in range(at.size):
        size = starts[e + 1] - starts[e]
        ids = data[at[e] : at[e] + 4 * size].view(np.uint32)
        for i in range(size):
            out[starts[e] + i] = ids[i]


@kernel
def _leave_out(
    data: Any, at: Any, starts: Any, row_bytes: Any, ids: Any, deleted: Any, sizes: Any
) -> None:  # pragma: no cover - compiled
    """Move the rows that are left of each list to its front, and their ids to the front of `ids`; store the sizes."""
    n = 0
    for e in range(at.size):
        to, before = at[e], n
        for place in range(starts[e], starts[e + 1]):
            name = ids[place]
            if not deleted[name >> 3] >> (name & 7) & 1:
                row = at[e] + (place - starts[e]) * row_bytes
                if row > to:
                    data[to : to + row_bytes] = data[row : row + row_bytes]
                to += row_bytes
                ids[n] = name
                n += 1
        sizes[e] = n - before


def without_deleted(lists: Lists, deleted: NDArray[np.uint8], row_bytes: int) -> Lists:
    """Return lists without the rows of deleted vectors; `lists.data` and `lists.ids` are overwritten.

    Memory: 24 bytes a list.

    Parameters
    ----------
    deleted : uint8 array
        A bit for each vector id, as `formats.index.deleted.read_deleted_bits` returns them.
    """
    sizes = np.empty_like(lists.sizes)
    _leave_out(lists.data, lists.at, lists.starts, row_bytes, lists.ids, deleted, sizes)
    return lists._replace(sizes=sizes, ids=lists.ids[: sizes.sum()])


@kernel
def _decode_rabitq(
    data: Any, at: Any, m: Any, form: Any, centroid: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Decode rows as `decode` does; under inner product each gets the part along its centroid that its length tells."""
    dim = form.dim
    width = (dim + 7) // 8
    planes = (form.row_bytes - HEAD_BYTES) // width
    raw = np.empty(HEAD_BYTES, np.uint8)
    head = raw.view(np.float32)
    length = 0.0
    for j in range(dim):
        length += np.float64(centroid[j]) ** 2
    for i in range(m):
        row = data[at + i * form.row_bytes : at + (i + 1) * form.row_bytes]
        raw[:] = row[:HEAD_BYTES]
        for j in range(dim):
            level = 0
            for plane in range(planes):
                level = 2 * level + ((row[HEAD_BYTES + plane * width + j // 8] >> (j % 8)) & 1)
            out[i, j] = head[1] * np.float32(2 * level + 1 - (1 << planes))
        if form.square > 0.0 and length > 0.0:
            along = 0.5 * (form.square - length - np.float64(head[0]))
            for j in range(dim):
                along -= np.float64(out[i, j]) * np.float64(centroid[j])
            share = np.float32(along / length)
            for j in range(dim):
                out[i, j] += share * centroid[j]


@kernel
def decode(
    data: Any, at: Any, m: Any, form: Any, centroid: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Decode the m rows of a list from byte `at` on, minus its centroid, into `out` (m, dim), float32."""
    kind, dim = form.kind, form.dim
    if kind == FLOAT32:
        wide = data[at : at + m * dim * 4].view(np.float32)
        for i in range(m):
            for j in range(dim):
                out[i, j] = wide[i * dim + j] - centroid[j]
    elif kind == FLOAT16:
        bits = data[at : at + m * dim * 2].view(np.uint16)
        for i in range(m):
            for j in range(dim):
                out[i, j] = form.halves[bits[i * dim + j]] - centroid[j]
    elif kind == UINT8:
        for i in range(m):
            row = data[at + i * dim : at + (i + 1) * dim]
            for j in range(dim):
                out[i, j] = np.float32(row[j]) - centroid[j]
    elif kind == INT8:
        signed = data[at : at + m * dim].view(np.int8)
        for i in range(m):
            for j in range(dim):
                out[i, j] = np.float32(signed[i * dim + j]) - centroid[j]
    elif kind == SQ8:
        low, step = form.scale[0], form.scale[1]
        for i in range(m):
            row = data[at + i * dim : at + (i + 1) * dim]
            for j in range(dim):
                out[i, j] = (low[j] + step[j] * np.float32(row[j])) - centroid[j]
    elif kind == RABITQ:
        _decode_rabitq(data, at, m, form, centroid, out)
    else:
        chunks = form.row_bytes
        for i in range(m):
            row = data[at + i * chunks : at + (i + 1) * chunks]
            for c in range(chunks):
                centre = form.pivots[row[c]]
                for j in range(form.offsets[c], form.offsets[c + 1]):
                    out[i, j] = centre[j]


@kernel
def stored_lengths(
    data: Any, at: Any, m: Any, row_bytes: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Write the squared lengths of the residuals of m RaBitQ rows from byte `at` on to `out`, float32."""
    raw = np.empty(4, np.uint8)
    value = raw.view(np.float32)
    for i in range(m):
        raw[:] = data[at + i * row_bytes : at + i * row_bytes + 4]
        out[i] = value[0]


@kernel
def exact_keys(
    queries: Any, first: Any, last: Any, places: Any, lists: Any, starts: Any, form: Any, centroids: Any,
    by_product: Any, out: Any,
) -> None:  # fmt: skip # pragma: no cover - compiled
    """Write the ranking keys of queries `first` to `last` to `out`: float64, computed from the rows themselves.

    A key is the squared distance or, with `by_product`, the negative inner product; for RaBitQ codes its estimate.

    Parameters
    ----------
    queries : float32 array, shape (n_queries, dim)
    places : uint32 array, shape (n_queries, k)
        A place at or above ``starts[-1]`` means no vector.
    """
    dim = form.dim
    row = np.empty((1, dim), np.float32)
    length = np.zeros(1, np.float32)
    zero = np.zeros(dim, np.float32)
    for i in range(first, last):
        for r in range(places.shape[1]):
            place = np.int64(places[i, r])
            if place >= starts[-1]:
                out[i, r] = np.inf
                continue
            entry = np.searchsorted(starts, place, side="right") - 1
            at = lists.at[entry] + (place - starts[entry]) * form.row_bytes
            decode(
                lists.data, at, 1, form, centroids[lists.names[entry]] if form.kind == RABITQ else zero, row
            )
            estimates = form.kind == RABITQ and not by_product
            if estimates:
                stored_lengths(lists.data, at, 1, form.row_bytes, length)
            total = np.float64(length[0]) if estimates else 0.0
            for j in range(dim):
                x = np.float64(row[0, j])
                if form.kind == PQ or (form.kind == RABITQ and by_product):
                    x += np.float64(centroids[lists.names[entry], j])
                if by_product:
                    total -= x * np.float64(queries[i, j])
                elif estimates:
                    away = np.float64(queries[i, j]) - np.float64(centroids[lists.names[entry], j])
                    total += away * (away - 2.0 * x)
                else:
                    total += (x - np.float64(queries[i, j])) ** 2
            out[i, r] = total
