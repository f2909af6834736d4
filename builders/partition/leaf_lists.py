"""Nearest neighbours of every vector within its leaves, all pairs of a leaf compared at once.

uint8 vectors of up to 32,768 components are compared in integers, exactly; others by a float32 matrix product. Equal
vectors are handled as `builders.partition.equals` says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401 - numba's products call the BLAS it loads, which must be there to be told its threads
from numpy.typing import NDArray

from indexmill.builders.nearest.panels import NO_SCORE, PANEL, fits_panels
from indexmill.builders.partition.carve import Leaves
from indexmill.builders.partition.equals import equal_rows, ring
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import scores_u8
from indexmill.reader.threads import run_blocks

#: Fills the places after the last neighbour.
NOBODY = 0xFFFFFFFF
#: Leaves of a task.
_LEAVES = 64
#: Rows whose scores are computed at a time, which stay in a core's own cache until they are searched.
_ROWS = 96
#: Lowest score, which comes first.
_FIRST = np.int32(-(1 << 31))


def leaf_lists(
    vectors: NDArray[Any], leaves: Leaves, k: int, rows: NDArray[Any], threads: int = 1
) -> NDArray[np.uint32]:
    """Return the `k` nearest neighbours of every copy of a vector, with equal vectors as `equals` says.

    Parameters
    ----------
    vectors : uint8 or float32 array, shape (n_vectors, dim), C-contiguous
    leaves : Leaves
        With at most 65,535 members each.
    k : int
    rows : uint32 or int64 array, shape (n_copies,)
        Row for the list of each copy: a permutation.

    Returns
    -------
    uint32 array, shape (n_copies, k)
        Ids, nearest first, ties by the smaller id, filled up with `NOBODY`.
    """
    firsts = equal_rows(vectors, threads)
    found = np.empty((len(leaves.members), k), np.uint32)
    fill = _fill_bytes if fits_panels(vectors) else _fill_floats

    def block(first: int, last: int) -> None:
        fill(vectors, firsts, leaves.members, leaves.starts, first, last, rows, found)

    run_blocks(block, len(leaves.starts) - 1, _LEAVES, threads)
    return found


@kernel
def _largest(starts: Any, first: int, last: int) -> int:  # pragma: no cover - compiled
    most = 0
    for leaf in range(first, last):
        most = max(most, starts[leaf + 1] - starts[leaf])
    return most


@kernel
def _fill_bytes(
    vectors: Any, firsts: Any, members: Any, starts: Any, first: int, last: int, rows: Any, found: Any
) -> None:  # pragma: no cover - compiled
    chunks = (vectors.shape[1] + 3) // 4
    most = _largest(starts, first, last)
    panels = (most + PANEL - 1) // PANEL
    own = np.zeros((panels * PANEL, 4 * chunks), np.uint8)
    words = own.view(np.uint32)
    turned = np.empty((panels, chunks, PANEL), np.uint32)  # as `panels.Panels.bytes`
    offsets = np.empty(panels * PANEL, np.int32)
    order = np.arange(most)
    hidden, following = np.empty(most, np.int64), np.empty(most, np.int64)
    scores = np.empty(_ROWS * panels * PANEL, np.int32)
    work = _least_work(panels, found.shape[1])
    for leaf in range(first, last):
        start, n = starts[leaf], starts[leaf + 1] - starts[leaf]
        n_panels = (n + PANEL - 1) // PANEL
        width = n_panels * PANEL
        n_hidden = ring(firsts, members[start : start + n], hidden, following)
        _gather(vectors, members[start : start + n], own, offsets)
        words[n:width] = 0
        offsets[n:width] = NO_SCORE
        for panel in range(n_panels):
            for chunk in range(chunks):
                for lane in range(PANEL):
                    turned[panel, chunk, lane] = words[panel * PANEL + lane, chunk]
        for top in range(0, n, _ROWS):
            some = min(_ROWS, n - top)
            scores_u8(
                own.ctypes.data, 4 * chunks, order[top:].ctypes.data, some, turned.ctypes.data,
                offsets.ctypes.data, n_panels, scores.ctypes.data,
            )  # fmt: skip
            for i in range(some):
                mine = scores[i * width : (i + 1) * width]
                _rank(mine, top + i, following[top + i], hidden[:n_hidden])
                _least(mine, work, members[start : start + n], found[rows[start + top + i]])


@kernel
def _gather(vectors: Any, members: Any, gathered: Any, offsets: Any) -> None:  # pragma: no cover - compiled
    """Copy the rows of a leaf next to each other, and compute their offsets (`panels.Panels.offsets`)."""
    dim = vectors.shape[1]
    for i in range(members.size):
        vector, own = vectors[np.int64(members[i])], gathered[i]
        squares, total = np.int32(0), np.int32(0)
        for j in range(dim):
            value = np.int32(vector[j])
            own[j] = vector[j]
            squares = np.int32(squares + value * value)
            total = np.int32(total + value)
        offsets[i] = squares - 256 * total


@kernel
def _fill_floats(
    vectors: Any, firsts: Any, members: Any, starts: Any, first: int, last: int, rows: Any, found: Any
) -> None:  # pragma: no cover - compiled
    most, dim = _largest(starts, first, last), vectors.shape[1]
    panels = (most + PANEL - 1) // PANEL
    own, centre = np.empty((most, dim), np.float32), np.empty(dim, np.float32)
    halves = np.empty(most, np.float32)
    hidden, following = np.empty(most, np.int64), np.empty(most, np.int64)
    products = np.empty(most * most, np.float32)
    scores = np.empty(panels * PANEL, np.float32)
    keys = scores.view(np.int32)
    work = _least_work(panels, found.shape[1])
    for leaf in range(first, last):
        start, n = starts[leaf], starts[leaf + 1] - starts[leaf]
        width = (n + PANEL - 1) // PANEL * PANEL
        n_hidden = ring(firsts, members[start : start + n], hidden, following)
        mine = own[:n]
        centre[:] = 0
        for i in range(n):
            mine[i] = vectors[np.int64(members[start + i])]
            for j in range(dim):
                centre[j] += mine[i, j] / np.float32(n)
        for i in range(n):
            for j in range(dim):  # far from zero, distances would be lost to rounding
                mine[i, j] -= centre[j]
            halves[i] = np.dot(mine[i], mine[i]) / np.float32(2)
        own_products = products[: n * n].reshape(n, n)
        np.dot(mine, mine.T, own_products)
        for i in range(n):
            for j in range(n):
                scores[j] = halves[j] - own_products[i, j]
            for j in range(n):  # the flipped bits are ordered as integers, NaN included
                keys[j] ^= (keys[j] >> np.int32(31)) & np.int32(NO_SCORE)
            keys[n:width] = NO_SCORE
            _rank(keys, i, following[i], hidden[:n_hidden])
            _least(keys[:width], work, members[start : start + n], found[rows[start + i]])


@kernel
def _rank(scores: Any, own: int, following: int, hidden: Any) -> None:  # pragma: no cover - compiled
    """Exclude a vector itself and the hidden members, and put the next equal vector first."""
    scores[own] = NO_SCORE
    for place in hidden:
        scores[place] = NO_SCORE
    if following >= 0:
        scores[following] = _FIRST


@kernel
def _least_work(panels: int, k: int) -> Any:  # pragma: no cover - compiled
    """Return work space of `_least` for at most `panels` panels."""
    return np.empty(panels, np.int32), np.empty(k, np.int32), np.empty(k, np.int32), np.empty(k, np.int64)


@kernel
def _least(scores: Any, work: Any, members: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write the members with the least `scores` to `out`, ties by the smaller place, except those at `NO_SCORE`.

    The k-th least of the groups' minima bounds the k-th least score from above, so few groups are searched. The stride
    within a group is the number of groups, so that minima compile to vector instructions.
    """
    minima, bounds, best, places = work
    k, groups = out.size, scores.size // PANEL
    bounds[:] = NO_SCORE
    best[:] = NO_SCORE
    least = minima[:groups]
    least[:] = scores[:groups]
    for first in range(groups, scores.size, groups):
        some = scores[first : first + groups]
        for group in range(groups):
            least[group] = min(least[group], some[group])
    for group in range(groups):
        if least[group] < bounds[k - 1]:
            at = k - 1
            while at > 0 and bounds[at - 1] > least[group]:
                bounds[at] = bounds[at - 1]
                at -= 1
            bounds[at] = least[group]
    bound = min(bounds[k - 1], np.int32(NO_SCORE - 1))
    for group in range(groups):
        if least[group] > bound:
            continue
        for place in range(group, scores.size, groups):
            score = scores[place]
            if score > bound or score > best[k - 1] or (score == best[k - 1] and place > places[k - 1]):
                continue
            at = k - 1
            while at > 0 and (best[at - 1] > score or (best[at - 1] == score and places[at - 1] > place)):
                best[at], places[at] = best[at - 1], places[at - 1]
                at -= 1
            best[at], places[at] = score, place
    for at in range(k):
        out[at] = members[places[at]] if best[at] < NO_SCORE else NOBODY
