"""The nearest others of every vector within its leaves, all pairs of a leaf compared at once.

uint8 vectors are compared in integers, exactly; others by a float32 matrix product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401 - numba's products call the BLAS it loads, which must be there to be told its threads
from numba import njit
from numpy.typing import NDArray

from indexmill.builders.carve import Leaves
from indexmill.builders.panels import NO_SCORE, PANEL, fits_panels
from indexmill.builders.parallel import map_blocks
from indexmill.reader.kernels import scores_u8

#: Stands where a leaf has no more members.
NOBODY = 0xFFFF
#: Leaves that a thread takes at a time.
_LEAVES = 64


def leaf_lists(vectors: NDArray[Any], leaves: Leaves, k: int, threads: int = 1) -> NDArray[np.uint16]:
    """Return the `k` nearest others of every copy of a vector.

    Parameters
    ----------
    vectors : uint8 or float32 array, shape (n_vectors, dim), C-contiguous
    leaves : Leaves
        Of at most 65,535 members each.
    k : int

    Returns
    -------
    uint16 array, shape (n_copies, k)
        Places in the leaf, nearest first, ties by the smaller place; then `NOBODY`.
    """
    found = np.empty((len(leaves.members), k), np.uint16)
    fill = _fill_bytes if fits_panels(vectors) else _fill_floats

    def block(first: int, last: int) -> None:
        fill(vectors, leaves.members, leaves.starts, first, last, found)

    for _ in map_blocks(block, len(leaves.starts) - 1, _LEAVES, threads):
        pass
    return found


@njit(nogil=True, cache=True)
def _largest(starts: Any, first: int, last: int) -> int:  # pragma: no cover - compiled
    most = 0
    for leaf in range(first, last):
        most = max(most, starts[leaf + 1] - starts[leaf])
    return most


@njit(nogil=True, cache=True)
def _fill_bytes(
    vectors: Any, members: Any, starts: Any, first: int, last: int, found: Any
) -> None:  # pragma: no cover - compiled
    dim = vectors.shape[1]
    chunks = (dim + 3) // 4
    most = _largest(starts, first, last)
    panels = (most + PANEL - 1) // PANEL
    rows = np.zeros((most, 4 * chunks), np.uint8)
    words = rows.view(np.uint32)
    turned = np.zeros((panels, chunks, PANEL), np.uint32)  # as `panels.Panels.bytes`
    offsets = np.empty((panels, PANEL), np.int32)
    order = np.arange(most)
    scores = np.empty(most * panels * PANEL, np.int32)
    for leaf in range(first, last):
        start, n = starts[leaf], starts[leaf + 1] - starts[leaf]
        width = (n + PANEL - 1) // PANEL * PANEL
        offsets.reshape(-1)[n:width] = NO_SCORE
        for i in range(n):
            vector, own, offset = vectors[members[start + i]], rows[i], np.int32(0)
            for j in range(dim):
                own[j] = vector[j]
                offset += np.int32(vector[j]) * (np.int32(vector[j]) - np.int32(256))
            offsets[i // PANEL, i % PANEL] = offset
            for chunk in range(chunks):
                turned[i // PANEL, chunk, i % PANEL] = words[i, chunk]
        scores_u8(
            rows.ctypes.data, 4 * chunks, order.ctypes.data, n, turned.ctypes.data, offsets.ctypes.data,
            width // PANEL, scores.ctypes.data,
        )  # fmt: skip
        own_scores = scores[: n * width].reshape(n, width)
        for i in range(n):
            own_scores[i, i] = NO_SCORE
            own_scores[i, n:] = NO_SCORE
            _least(own_scores[i], np.int32(NO_SCORE), found[start + i])


@njit(nogil=True, cache=True)
def _fill_floats(
    vectors: Any, members: Any, starts: Any, first: int, last: int, found: Any
) -> None:  # pragma: no cover - compiled
    most = _largest(starts, first, last)
    panels = (most + PANEL - 1) // PANEL
    rows = np.empty((most, vectors.shape[1]), np.float32)
    halves = np.empty(most, np.float32)
    scores = np.empty(most * panels * PANEL, np.float32)
    for leaf in range(first, last):
        start, n = starts[leaf], starts[leaf + 1] - starts[leaf]
        width = (n + PANEL - 1) // PANEL * PANEL
        mine = rows[:n]
        for i in range(n):
            mine[i] = vectors[members[start + i]]
            if i:
                mine[i] -= mine[0]
        mine[0] = 0  # differences to one of them: far from zero, products would lose distances to rounding
        for i in range(n):
            halves[i] = np.dot(mine[i], mine[i]) / np.float32(2)
        own_scores = scores[: n * width].reshape(n, width)
        products = np.dot(mine, mine.T)
        for i in range(n):
            for j in range(n):
                own_scores[i, j] = halves[j] - products[i, j]
            own_scores[i, i] = np.inf
            own_scores[i, n:] = np.inf
            _least(own_scores[i], np.float32(np.inf), found[start + i])


@njit(nogil=True, cache=True)
def _least(scores: Any, none: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write the places of the least `scores` to `out`, but not of those that are `none`.

    The k-th least of the minima of all panels bounds the k-th least score from above, so few panels are looked at.
    """
    k, panels = out.size, scores.size // PANEL
    minima, bounds, best = (
        np.empty(panels, scores.dtype),
        np.empty(k, scores.dtype),
        np.empty(k, scores.dtype),
    )
    bounds[:] = none
    best[:] = none
    out[:] = NOBODY
    for panel in range(panels):
        least = scores[panel * PANEL]
        for lane in range(1, PANEL):
            least = min(least, scores[panel * PANEL + lane])
        minima[panel] = least
        if least < bounds[k - 1]:
            at = k - 1
            while at > 0 and bounds[at - 1] > least:
                bounds[at] = bounds[at - 1]
                at -= 1
            bounds[at] = least
    bound = bounds[k - 1]
    for panel in range(panels):
        if minima[panel] > bound:
            continue
        for place in range(panel * PANEL, (panel + 1) * PANEL):
            score = scores[place]
            if score > bound or score >= best[k - 1]:
                continue
            at = k - 1
            while at > 0 and best[at - 1] > score:
                best[at], out[at] = best[at - 1], out[at - 1]
                at -= 1
            best[at], out[at] = score, place
