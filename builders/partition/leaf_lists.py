"""Nearest neighbours of every vector within its leaves, all pairs of a leaf compared at once.

Vectors are compared as bytes, in integers: uint8 vectors as they are, exactly, and float vectors by codes fitted to
their leaf (`builders.nearest.byte_codes`). Codes only propose, as lists are chosen by exact distances from the
neighbours found here. One member of each leaf is looked for exactly, too. If codes miss half of its neighbours, as
where all but a few vectors lie in one dense blob, the whole leaf is compared by distances, as are vectors of more than
32,768 components.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.nearest.byte_codes import encode_row, fit_rows
from indexmill.builders.nearest.panels import MAX_DIM, NO_SCORE, PANEL
from indexmill.builders.partition.carve import Leaves
from indexmill.builders.vamana.graph import Misses
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import float_row, least_scores, scores_u8, squared_distances
from indexmill.reader.threads import map_blocks

#: Fills the places after the last neighbour.
NOBODY = 0xFFFFFFFF
#: Leaves of a task.
_LEAVES = 64
#: Rows whose scores are computed at a time, which stay in a core's own cache until they are searched.
_ROWS = 96
#: Members that the codes of a leaf are fitted to.
_FITTED = 64


def leaf_lists(
    vectors: NDArray[Any], leaves: Leaves, k: int, rows: NDArray[Any], threads: int = 1
) -> tuple[NDArray[np.uint32], Misses]:
    """Return the `k` nearest neighbours of every copy of a vector.

    Parameters
    ----------
    vectors : uint8, float16 or float32 array, shape (n_vectors, dim), C-contiguous
    leaves : Leaves
        With at most 65,535 members each.
    k : int
    rows : uint32 or int64 array, shape (n_copies,)
        Row for the list of each copy: a permutation.

    Returns
    -------
    lists : uint32 array, shape (n_copies, k)
        Ids, nearest first, ties by the smaller id, filled up with `NOBODY`; the same on every processor. "Nearest" is
        by codes for float vectors.
    misses : Misses
    """
    found = np.empty((len(leaves.members), k), np.uint32)

    def block(first: int, last: int) -> NDArray[np.int64]:
        tally = np.zeros(len(Misses._fields), np.int64)
        _fill(as_bits(vectors), leaves.members, leaves.starts, first, last, rows, found, tally)
        return tally

    tallies = np.sum(list(map_blocks(block, len(leaves.starts) - 1, _LEAVES, threads)), axis=0)
    return found, Misses(*tallies.tolist())


@kernel
def _largest(starts: Any, first: int, last: int) -> int:  # pragma: no cover - compiled
    most = 0
    for leaf in range(first, last):
        most = max(most, starts[leaf + 1] - starts[leaf])
    return most


@kernel
def _fill(
    vectors: Any, members: Any, starts: Any, first: int, last: int, rows: Any, found: Any, tally: Any
) -> None:  # pragma: no cover - compiled
    dim, k = vectors.shape[1], found.shape[1]
    chunks = (dim + 3) // 4 if dim <= MAX_DIM else 0
    most = _largest(starts, first, last)
    panels = (most + PANEL - 1) // PANEL
    own = np.zeros((panels * PANEL, 4 * chunks), np.uint8)
    words = own.view(np.uint32)
    turned = np.empty((panels, chunks, PANEL), np.uint32)  # as `panels.Panels.bytes`
    offsets = np.empty(panels * PANEL, np.int32)
    low = np.empty(dim, np.float32)
    order = np.arange(most)
    scores = np.empty(_ROWS * panels * PANEL, np.int32)
    distances = np.empty(panels * PANEL, np.float32)
    keys = distances.view(np.int32)  # bits of floats that are not negative are ordered as the floats
    places = np.empty((_ROWS, k), np.uint32)
    for leaf in range(first, last):
        start, n = starts[leaf], starts[leaf + 1] - starts[leaf]
        ids = members[start : start + n]
        n_panels = (n + PANEL - 1) // PANEL
        width = n_panels * PANEL
        coded = chunks > 0
        if coded:
            _gather(vectors, ids, low, own, offsets)
            words[n:width] = 0
            offsets[n:width] = NO_SCORE
            for panel in range(n_panels):
                for chunk in range(chunks):
                    for lane in range(PANEL):
                        turned[panel, chunk, lane] = words[panel * PANEL + lane, chunk]
            for top in range(0, n, _ROWS):
                n_rows = min(_ROWS, n - top)
                scores_u8(
                    own.ctypes.data, 4 * chunks, order[top:].ctypes.data, n_rows, turned.ctypes.data,
                    offsets.ctypes.data, n_panels, scores.ctypes.data,
                )  # fmt: skip
                for i in range(n_rows):
                    scores[i * width + top + i] = NO_SCORE  # a vector is not its own neighbour
                least_scores(scores.ctypes.data, n_rows, width, k, places.ctypes.data)
                for i in range(n_rows):
                    _name(places[i], ids, found[rows[start + top + i]])
            if vectors.itemsize > 1:
                probed = n // 2
                _distances(vectors, ids, probed, distances[:width])
                there, missed = _missed(keys[:width], ids, found[rows[start + probed]])
                tally[0] += there
                coded = 2 * missed < max(there, 1)
                if coded:
                    tally[1] += missed
        if not coded:
            for i in range(n):
                _distances(vectors, ids, i, distances[:width])
                least_scores(keys.ctypes.data, 1, width, k, places.ctypes.data)
                _name(places[0], ids, found[rows[start + i]])


@kernel
def _gather(
    vectors: Any, members: Any, low: Any, gathered: Any, offsets: Any
) -> None:  # pragma: no cover - compiled
    """Put the rows of a leaf next to each other as bytes, and compute their offsets (`panels.Panels.offsets`)."""
    dim = vectors.shape[1]
    if vectors.itemsize > 1:
        per_step = np.float32(1) / fit_rows(vectors, members, _FITTED, low)
        space = np.empty(dim, np.float32)
        for i in range(members.size):
            encode_row(float_row(vectors, members[i], space), low, per_step, gathered[i])
    else:
        for i in range(members.size):
            row, own = vectors[np.int64(members[i])], gathered[i]
            for j in range(dim):
                own[j] = np.uint8(row[j])
    for i in range(members.size):
        own = gathered[i]
        squares, total = np.int32(0), np.int32(0)
        for j in range(dim):
            value = np.int32(own[j])
            squares = np.int32(squares + value * value)
            total = np.int32(total + value)
        offsets[i] = squares - 256 * total


@kernel
def _distances(vectors: Any, members: Any, own: int, out: Any) -> None:  # pragma: no cover - compiled
    """Write the distances of a member to all others; `out` has whole panels, `NO_SCORE` in the places of nobody."""
    n = members.size
    squared_distances(vectors, np.int64(members[own]), vectors, members, n, out)
    keys = out.view(np.int32)
    keys[n:] = NO_SCORE
    keys[own] = NO_SCORE


@kernel
def _missed(keys: Any, members: Any, found: Any) -> Any:  # pragma: no cover - compiled
    """Return the number of a member's nearest, and how many of them were not `found`, equally near ones included."""
    places = np.empty(found.size, np.uint32)
    least_scores(keys.ctypes.data, 1, keys.size, places.size, places.ctypes.data)
    there, missed = 0, 0
    for place in places:
        if place == NOBODY:
            break
        there += 1
        is_found = False
        for j in range(found.size):
            is_found |= found[j] == members[place]
        missed += not is_found
    return there, missed


@kernel
def _name(places: Any, members: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write the members at `places`, which `NOBODY` may fill up."""
    for i in range(places.size):
        out[i] = members[places[i]] if places[i] != NOBODY else NOBODY
