"""Byte codes of float32 vectors that nearly keep the order of distances, and exact ranking for the last step.

Every component has its own origin, and all share one step, so the squared distance of codes is the true one divided by
the squared step, except for rounding. (`builders.quantize.scalar` gives each component its own step, which keeps the
vectors but not the order of distances.) Products of codes are integers, so they are equal on every processor, and four
to forty times as fast as those of floats. Neighbours in a graph and groups of leaders are only proposed by them, and
decided by exact distances. Leaders of cells, and the nearest centroids of a round of k-means, are decided by codes
where a trial shows that they miss few.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.nearest.panels import MAX_DIM, Panels, in_panels, nearest_in_panels
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import float_row, squared_distances
from indexmill.reader.threads import run_blocks

#: Most vectors that codes are fitted to.
_FIT_VECTORS = 4096
#: Ranges tried: four in each doubling, by the exponent and the first two bits of the fraction of a float32.
_RANGES, _SHIFT = 1 << 10, np.int32(21)
#: Steps of a range, and half of them.
_LEVELS, _HALF = 255, np.float32(127.5)
#: The least step whose inverse is finite, and the largest range whose double is.
_LEAST_STEP, _MOST_HALF = np.float32(1e-37), np.float32(1e38)
#: Points looked for to learn what codes lose, and the share of their nearest that may be lost.
_TRIALS, _LOST = 64, 0.1
#: Vectors of a task.
_BLOCK = 4096


class ByteCodes(NamedTuple):
    """Code c of component j means ``low[j] + step * c``."""

    low: NDArray[np.float32]  # (dim,)
    step: np.float32

    def encode(self, vectors: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the codes, uint8 (m, dim), of vectors (m, dim); components beyond the range take the nearest code."""
        out = np.empty(vectors.shape, np.uint8)
        _encode(np.ascontiguousarray(vectors), self.low, np.float32(1) / self.step, out)
        return out


def fit_codes(vectors: NDArray[np.float32]) -> ByteCodes:
    """Fit codes to vectors, (n, dim) with n at least 1, as `fit_rows` does."""
    low = np.empty(vectors.shape[1], np.float32)
    every = np.arange(len(vectors), dtype=np.uint32)
    step = fit_rows(np.ascontiguousarray(vectors), every, _FIT_VECTORS, low)
    return ByteCodes(low, np.float32(step))


@kernel
def fit_rows(vectors: Any, rows: Any, most: int, low: Any) -> Any:  # pragma: no cover - compiled
    """Fit codes to some rows: write `ByteCodes.low`, and return the step.

    A range lies around the mean of every component. Of all ranges, that with the least squared error is taken, of
    rounding and of values beyond the range together, so that a few outliers do not coarsen the rest.

    Parameters
    ----------
    vectors : float32 array, or the bits of a float16 array, shape (n, dim)
    rows : uint32 array, shape (m,), m at least 1
    most : int
        Rows looked at, evenly spread.
    low : float32 array, shape (dim,)
    """
    dim, stride = vectors.shape[1], (rows.size + most - 1) // most
    seen = (rows.size + stride - 1) // stride
    share = np.float32(1) / np.float32(seen)
    low[:] = 0
    space = np.empty(dim, np.float32)
    for i in range(0, rows.size, stride):
        row = float_row(vectors, rows[i], space)
        for j in range(dim):
            low[j] += row[j] * share
    counts, sums, squares = np.zeros(_RANGES), np.zeros(_RANGES), np.zeros(_RANGES)
    apart = np.empty(dim, np.float32)
    bits = apart.view(np.int32)
    for i in range(0, rows.size, stride):
        row = float_row(vectors, rows[i], space)
        for j in range(dim):
            apart[j] = min(abs(row[j] - low[j]), _MOST_HALF)
        for j in range(dim):
            place, value = bits[j] >> _SHIFT, np.float64(apart[j])
            counts[place] += 1
            sums[place] += value
            squares[place] += value * value
    half = _least_loss(counts, sums, squares)
    step = max(half / _HALF, _LEAST_STEP)
    for j in range(dim):
        low[j] -= half
    return step


@kernel
def _least_loss(counts: Any, sums: Any, squares: Any) -> Any:  # pragma: no cover - compiled
    """Return the half range of least error, given number, sum and sum of squares of the values of each range."""
    edge = np.empty(1, np.int32)
    edges = edge.view(np.float32)
    total, best, half = counts.sum(), np.inf, np.float32(0)
    beyond, far, farther = 0.0, 0.0, 0.0
    for place in range(_RANGES - 1, -1, -1):
        if counts[place] == 0:
            continue
        edge[0] = np.int32(place + 1) << _SHIFT
        end = np.float64(min(edges[0], _MOST_HALF))
        step = 2 * end / _LEVELS
        loss = total * step * step / 12 + farther - 2 * end * far + end * end * beyond
        if loss < best:
            best, half = loss, np.float32(end)
        beyond += counts[place]
        far += sums[place]
        farther += squares[place]
    return half


@kernel
def _encode(vectors: Any, low: Any, per_step: Any, out: Any) -> None:  # pragma: no cover - compiled
    for i in range(len(vectors)):
        encode_row(vectors[i], low, per_step, out[i])


@kernel
def encode_row(row: Any, low: Any, per_step: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write the codes of `row`, float32 (dim,), to `out`, uint8 (at least dim,)."""
    for j in range(row.size):
        code = (row[j] - low[j]) * per_step + np.float32(0.5)
        out[j] = np.uint8(np.int32(min(max(code, np.float32(0)), np.float32(_LEVELS))))


class CodedPoints(NamedTuple):
    """Points by codes.

    Attributes
    ----------
    codes : ByteCodes
    panels : Panels
        The codes of the points.
    looked_for, missed : int
        The nearest points of some of them, and how many of these codes miss.
    """

    codes: ByteCodes
    panels: Panels
    looked_for: int
    missed: int

    def nearest(self, vectors: NDArray[Any], fanout: int, threads: int = 1) -> NDArray[np.uint32]:
        """Return the `fanout` points nearest to each vector by codes, nearest first, ties by the smaller id."""
        return nearest_coded(self.codes, vectors, self.panels, fanout, threads)


def coded_points(points: NDArray[Any], fanout: int) -> CodedPoints | None:
    """Return points by codes, or None where codes lose too many of the `fanout` nearest.

    What codes lose is learned from some of the points, so that it does not depend on the vectors.

    Parameters
    ----------
    points : float32 or float16 array, shape (n, dim)
    fanout : int
        At most n.
    """
    if points.shape[1] > MAX_DIM:
        return None
    points = np.ascontiguousarray(points, dtype=np.float32)
    codes = fit_codes(points)
    panels = in_panels(codes.encode(points))
    trials = np.ascontiguousarray(points[:: -(-len(points) // _TRIALS)])
    true = np.empty((len(trials), fanout), np.uint32)
    rank_exactly(trials, points, np.tile(np.arange(len(points), dtype=np.uint32), (len(trials), 1)), true)
    kept = nearest_in_panels(codes.encode(trials), panels, fanout, 1)
    missed = int(np.count_nonzero((kept[:, :, None] != true[:, None, :]).all(axis=1)))
    return None if missed > _LOST * true.size else CodedPoints(codes, panels, true.size, missed)


def nearest_coded(
    codes: ByteCodes, vectors: NDArray[Any], panels: Panels, fanout: int, threads: int
) -> NDArray[np.uint32]:
    """Return the `fanout` points of `panels`, which hold codes, nearest to each vector's codes: uint32 (m, fanout)."""
    found = np.empty((len(vectors), fanout), np.uint32)

    def block(first: int, last: int) -> None:
        rows = np.ascontiguousarray(vectors[first:last], dtype=np.float32)
        found[first:last] = nearest_in_panels(codes.encode(rows), panels, fanout, 1)

    run_blocks(block, len(vectors), _BLOCK, threads)
    return found


@kernel
def rank_exactly(
    vectors: Any, points: Any, candidates: Any, found: Any
) -> None:  # pragma: no cover - compiled
    """Write the nearest of each vector's candidates to `found`, nearest first, ties by the smaller id.

    Parameters
    ----------
    vectors, points : float32 arrays, shapes (m, dim) and (n, dim), C-contiguous
    candidates : uint32 array, shape (m, c)
        Rows of `points`, distinct for each vector.
    found : uint32 array, shape (m, fanout)
        `fanout` is at most c.
    """
    c, fanout = candidates.shape[1], found.shape[1]
    distances, ids = np.empty(c, np.float32), np.empty(c, np.uint32)
    for i in range(len(vectors)):
        ids[:] = candidates[i]
        squared_distances(vectors, i, points, ids, c, distances)
        for k in range(fanout):
            best = k
            for j in range(k + 1, c):
                if distances[j] < distances[best] or (distances[j] == distances[best] and ids[j] < ids[best]):
                    best = j
            found[i, k] = ids[best]
            distances[best], ids[best] = distances[k], ids[k]
