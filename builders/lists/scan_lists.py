"""Kernels that compare lists with the queries that probe them: integers for bytes, matrix products for the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from indexmill.builders.lists.rows import RABITQ, decode, stored_lengths
from indexmill.builders.nearest.panels import NO_SCORE, NOTHING, PANEL, merge_nearest
from indexmill.builders.nearest.products import keep_nearest
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import l2_gather_u8

#: Bytes of panels made from a list at a time, which stay in a core's own cache for all its queries.
_PANEL_BYTES = 128 << 10
#: For lists with few queries, rows are compared one by one instead of in panels: most queries of such a list, most
#: components for which float32 distances are exact, and rows at a time.
_FEW, _FEW_DIM, _FEW_ROWS = 2, 258, 1024
#: Rows and queries of a product. They affect results: the last bits of a product may depend on its shape.
_TILE_ROWS, _TILE_QUERIES = 512, 256


@kernel
def scan_bytes(
    queries: Any, rows: Any, row_starts: Any, lists: Any, starts: Any, first: Any, last: Any, dim: Any, flip: Any,
    scores: Any, found: Any,
) -> None:  # fmt: skip # pragma: no cover - compiled
    """Merge the vectors of lists `first` to `last` into the nearest of each query, exactly, by (score, id).

    Parameters
    ----------
    queries : uint8 array, shape (n_queries, dim), C-contiguous
    rows, row_starts : int64 arrays
        List number g is probed by queries ``rows[row_starts[g]:row_starts[g + 1]]``.
    lists, starts : Lists and its ``starts``
    flip : int
        0x80 for int8, whose sign bit is flipped, as it is in `queries`; else 0.
    scores, found : int32 and uint32 arrays, shape (n_queries, k)
        ``|p|^2 - 2 p.q`` and ids, as for `panels.merge_nearest`.
    """
    chunks = (dim + 3) // 4
    most = max(PANEL, _PANEL_BYTES // (4 * chunks) // PANEL * PANEL)
    panels = np.zeros((most // PANEL, chunks, PANEL, 4), np.uint8)
    offsets = np.empty((most // PANEL, PANEL), np.int32)
    names = np.empty((most // PANEL, PANEL), np.uint32)
    near, numbers = np.empty(_FEW_ROWS, np.float32), np.arange(_FEW_ROWS, dtype=np.uint32)
    tile = np.empty((1, _FEW_ROWS), np.int32)
    for e in range(first, last):
        g = lists.names[e]
        mine = rows[row_starts[g] : row_starts[g + 1]]
        if mine.size == 0:
            continue
        if mine.size <= _FEW and flip == 0 and dim <= _FEW_DIM:
            for i in range(mine.size):
                scan_rows(
                    queries, mine[i : i + 1], lists, e, starts[e], dim, near, numbers, tile, scores, found
                )
            continue
        for top in range(0, lists.sizes[e], most):
            m = min(most, lists.sizes[e] - top)
            used = (m + PANEL - 1) // PANEL
            at = lists.at[e] + top * dim
            panels[used - 1] = 0  # an empty place must add nothing to `NO_SCORE`
            _fill(lists.data[at : at + m * dim], m, dim, flip, panels, offsets)
            flat = names.reshape(-1)
            flat[:m] = lists.ids[starts[e] + top : starts[e] + top + m]
            flat[m : used * PANEL] = NOTHING
            offsets.reshape(-1)[m : used * PANEL] = NO_SCORE
            merge_nearest(queries, mine, panels[:used], offsets[:used], names[:used], scores, found)


@kernel
def scan_rows(
    queries: Any, mine: Any, lists: Any, e: Any, start: Any, dim: Any, near: Any, numbers: Any, tile: Any, scores: Any,
    found: Any,
) -> None:  # fmt: skip # pragma: no cover - compiled
    """Merge list `e` into the nearest vectors of the one query `mine`, row by row."""
    query = queries[mine[0]]
    own = np.int32(0)
    for j in range(dim):
        own += np.int32(query[j]) * np.int32(query[j])
    for top in range(0, lists.sizes[e], _FEW_ROWS):
        m = min(_FEW_ROWS, lists.sizes[e] - top)
        at = lists.data.ctypes.data + lists.at[e] + top * dim
        l2_gather_u8(query.ctypes.data, at, dim, numbers.ctypes.data, m, near.ctypes.data)
        for i in range(m):
            tile[0, i] = np.int32(near[i]) - own
        keep_nearest(tile[:, :m], mine, lists.ids[start + top : start + top + m], scores, found)


@kernel
def _fill(
    data: Any, m: Any, dim: Any, flip: Any, panels: Any, offsets: Any
) -> None:  # pragma: no cover - compiled
    """Put m rows into panels and write their offsets (`panels.Panels`)."""
    chunks = panels.shape[1]
    flat = offsets.reshape(-1)
    if dim % 4 == 0:
        words, out = data.view(np.uint32), panels.reshape(-1).view(np.uint32)
        turned = np.uint32(flip) * np.uint32(0x01010101)
        for i in range(m):
            base = (i // PANEL) * chunks * PANEL + i % PANEL
            for c in range(chunks):
                out[base + c * PANEL] = words[i * chunks + c] ^ turned
    else:
        for i in range(m):
            for j in range(dim):
                panels[i // PANEL, j // 4, i % PANEL, j % 4] = data[i * dim + j] ^ np.uint8(flip)
    for i in range(m):
        row = data[i * dim : (i + 1) * dim]
        total = np.int32(0)
        for j in range(dim):
            x = np.int32(row[j] ^ np.uint8(flip))
            total += x * (x - np.int32(256))
        flat[i] = total


@kernel
def scan_floats(
    queries: Any, rows: Any, row_starts: Any, lists: Any, starts: Any, first: Any, last: Any, form: Any,
    centroids: Any, by_product: Any, scores: Any, found: Any,
) -> None:  # fmt: skip # pragma: no cover - compiled
    """Merge the vectors of lists `first` to `last` into the nearest of each query, in float32, by (score, place).

    The list's centroid is subtracted from rows and queries, so that the product keeps its digits; for inner products,
    q.c + q.(x - c), from rows alone.

    Parameters
    ----------
    queries : float32 array, shape (n_queries, dim)
    form : RowFormat
    centroids : float32 array, shape (n_lists, dim)
    by_product : bool
    scores, found : float32 and uint32 arrays, shape (n_queries, k)
        Rounded squared distances or negative inner products, and places.
    """
    dim = form.dim
    part = np.empty((_TILE_ROWS, dim), np.float32)
    asked = np.empty((_TILE_QUERIES, dim), np.float32)
    norms, squares = np.empty(_TILE_ROWS, np.float32), np.empty(_TILE_QUERIES, np.float32)
    products = np.empty(_TILE_ROWS * _TILE_QUERIES, np.float32)
    places = np.empty(_TILE_ROWS, np.uint32)
    for e in range(first, last):
        g = lists.names[e]
        mine = rows[row_starts[g] : row_starts[g + 1]]
        for before in range(0, mine.size, _TILE_QUERIES):
            some = mine[before : before + _TILE_QUERIES]
            for i in range(some.size):
                offset = np.float32(0)
                for j in range(dim):
                    asked[i, j] = queries[some[i], j] - (np.float32(0) if by_product else centroids[g, j])
                    offset -= queries[some[i], j] * centroids[g, j]
                squares[i] = offset
            if not by_product:
                _norms(asked, some.size, squares)
            for top in range(0, lists.sizes[e], _TILE_ROWS):
                m = min(_TILE_ROWS, lists.sizes[e] - top)
                at = lists.at[e] + top * form.row_bytes
                decode(lists.data, at, m, form, centroids[g], part)
                if form.kind == RABITQ:
                    stored_lengths(lists.data, at, m, form.row_bytes, norms)
                else:
                    _norms(part, m, norms)
                tile = products[: some.size * m].reshape(some.size, m)
                np.dot(asked[: some.size], part[:m].T, tile)
                for i in range(some.size):
                    for j in range(m):
                        if by_product:
                            tile[i, j] = squares[i] - tile[i, j]
                        else:
                            tile[i, j] = (squares[i] + norms[j]) - np.float32(2) * tile[i, j]
                for j in range(m):
                    places[j] = starts[e] + top + j
                keep_nearest(tile, some, places[:m], scores, found)


@kernel(fastmath={"reassoc"})
def _norms(rows: Any, m: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write the squared lengths of the first m rows."""
    for i in range(m):
        total = np.float32(0)
        for j in range(rows.shape[1]):
            total += rows[i, j] * rows[i, j]
        out[i] = total
