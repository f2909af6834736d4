"""Panels of points for the native kernels that compare many uint8 vectors with many uint8 points.

A score is ``|p|^2 - 2 x.p``, the squared distance minus ``|x|^2``: int32, exact, the same on every machine. A panel has
16 points, so that one register holds four components of each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import address, least_scores, nearest_u8, scores_u8
from indexmill.reader.threads import run_blocks

#: Points of a panel.
PANEL = 16
#: Most components for which a score fits 32 bits.
MAX_DIM = 32768
#: Id and score of an empty place.
NOTHING = 0xFFFFFFFF
NO_SCORE = 0x7FFFFFFF
#: Points widened to int32 at a time.
_SUMMED = 4096
#: Rows of a task, and those whose scores are computed at a time.
_BLOCK, _ROWS = 1024, 96
#: Up to so many panels, all scores of a few rows fit a core's own cache: to rank them is faster than to keep lists.
RANKED = 128


class Panels(NamedTuple):
    """Points in panels, group by group; every group begins with a new panel."""

    #: (n_panels, chunks, PANEL, 4): four components of each point in turn, zero beyond dim.
    bytes: NDArray[np.uint8]
    #: (n_panels, PANEL): |p|^2 - 256 sum(p), or `NO_SCORE`.
    offsets: NDArray[np.int32]
    #: (n_panels, PANEL), or `NOTHING`.
    ids: NDArray[np.uint32]
    #: (n_groups + 1,): the panels of group g are starts[g] to starts[g + 1].
    starts: NDArray[np.int64]


def fits_panels(vectors: NDArray[Any]) -> bool:
    """Return whether panels take the type and dimension of these vectors, (m, dim)."""
    return vectors.dtype == np.uint8 and vectors.shape[1] <= MAX_DIM


def in_panels(
    points: NDArray[np.uint8], ids: NDArray[np.uint32] | None = None, starts: NDArray[np.int64] | None = None
) -> Panels:
    """Arrange points in panels.

    Parameters
    ----------
    points : uint8 array, shape (n, dim)
        `dim` is at most `MAX_DIM`.
    ids : uint32 array, shape (n,), optional
        Ids of the points; by default 0, 1 and so on.
    starts : int64 array, shape (n_groups + 1,), optional
        Start of each group in `points`; by default there is one group.
    """
    n, dim = points.shape
    ids = np.arange(n, dtype=np.uint32) if ids is None else ids
    starts = np.array([0, n]) if starts is None else starts
    sizes = np.diff(starts)
    first = np.concatenate([[0], np.cumsum(-(-sizes // PANEL))])
    slots = np.arange(n) + np.repeat(first[:-1] * PANEL - starts[:-1], sizes)
    n_panels, chunks = int(first[-1]), -(-dim // 4)
    padded = np.zeros((n_panels * PANEL, chunks * 4), np.uint8)
    padded[slots, :dim] = points
    offsets = np.full(n_panels * PANEL, NO_SCORE, np.int32)
    for at in range(0, n, _SUMMED):
        wide = points[at : at + _SUMMED].astype(np.int32)
        offsets[slots[at : at + _SUMMED]] = np.einsum("ij,ij->i", wide, wide - 256)
    names = np.full(n_panels * PANEL, NOTHING, np.uint32)
    names[slots] = ids
    turned = np.ascontiguousarray(padded.reshape(n_panels, PANEL, chunks, 4).transpose(0, 2, 1, 3))
    return Panels(turned, offsets.reshape(-1, PANEL), names.reshape(-1, PANEL), first)


@kernel
def merge_nearest(
    vectors: Any, rows: Any, data: Any, offsets: Any, ids: Any, scores: Any, found: Any
) -> None:  # pragma: no cover - compiled
    """Merge the points of panels into the lists of the nearest points of some rows.

    Parameters
    ----------
    vectors : uint8 array, shape (m, dim), C-contiguous
    rows : int64 array, shape (any,)
        Different rows of `vectors`.
    data, offsets, ids : arrays
        Of `Panels`, or of consecutive panels of it.
    scores : int32 array, shape (m, fanout)
        Ascending by (score, id); `NO_SCORE` fills the end of short lists.
    found : uint32 array, shape (m, fanout)
        Ids of the same points; `NOTHING` fills the end.
    """
    nearest_u8(
        address(vectors),
        vectors.shape[1],
        rows.ctypes.data,
        rows.size,
        data.ctypes.data,
        offsets.ctypes.data,
        ids.ctypes.data,
        offsets.shape[0],
        scores.shape[1],
        scores.ctypes.data,
        found.ctypes.data,
    )


@kernel
def all_scores(
    vectors: Any, rows: Any, data: Any, offsets: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Write the scores of some rows with all points to `out`, (rows.size, PANEL times the number of panels)."""
    scores_u8(
        address(vectors),
        vectors.shape[1],
        rows.ctypes.data,
        rows.size,
        data.ctypes.data,
        offsets.ctypes.data,
        offsets.shape[0],
        out.ctypes.data,
    )


def nearest_in_panels(
    vectors: NDArray[np.uint8], panels: Panels, fanout: int, threads: int
) -> NDArray[np.uint32]:
    """Return the `fanout` points nearest to each vector, nearest first, ties by the smaller id: uint32 (m, fanout).

    Parameters
    ----------
    vectors : uint8 array, shape (m, dim), C-contiguous
    panels : Panels
        With one group of points, in the order of their ids.
    """
    found = np.full((len(vectors), fanout), NOTHING, np.uint32)
    if 0 < len(panels.offsets) <= RANKED:

        def block(first: int, last: int) -> None:
            _by_scores(vectors[first:last], *panels[:3], found[first:last])

    else:
        scores, rows = np.full(found.shape, NO_SCORE, np.int32), np.arange(len(vectors))

        def block(first: int, last: int) -> None:
            merge_nearest(vectors, rows[first:last], *panels[:3], scores, found)

    run_blocks(block, len(vectors), _BLOCK, threads)
    return found


@kernel
def _by_scores(
    vectors: Any, data: Any, offsets: Any, ids: Any, found: Any
) -> None:  # pragma: no cover - compiled
    """Write the nearest of all points, whose scores are computed for a few rows at a time."""
    names, rows = ids.ravel(), np.arange(len(vectors))
    scores, places = np.empty((_ROWS, names.size), np.int32), np.empty((_ROWS, found.shape[1]), np.uint32)
    for first in range(0, rows.size, _ROWS):
        block = rows[first : first + _ROWS]
        all_scores(vectors, block, data, offsets, scores)
        least_scores(scores.ctypes.data, block.size, names.size, found.shape[1], places.ctypes.data)
        for i in range(block.size):
            for j in range(found.shape[1]):
                if places[i, j] != NOTHING:
                    found[block[i], j] = names[places[i, j]]
