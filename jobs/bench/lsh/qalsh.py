"""QALSH (Huang et al., PVLDB 9(1), 2015): vectors that lie near the query on many random lines are measured.

Each of m lines holds the vectors sorted by projection. For growing radii R a window of width w R about the query's
own projection is scanned on each line, the ring that the smaller radius had not: a vector met on l lines is
a candidate and measured. A query ends when k candidates lie within c R, or beta n + k - 1 were measured. m, l and w
follow from c, beta = 100 / n and the error probability delta = 1 / e. The paper's B+-trees are sorted arrays here, in
memory, and its first radius is that whose windows are not empty on half of the lines, whatever the vectors' scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from indexmill.formats.kernel import kernel
from indexmill.jobs.bench.lsh.nearest import insert, squared_distance

#: delta, and beta n.
ERROR, FALSE_POSITIVES = 1 / math.e, 100
#: Entries of a line scanned in each direction before the next line's turn, as in the authors' program.
TURN = 64
#: Bytes of lines that an index may hold.
MOST_BYTES = 6 << 30


@dataclass(frozen=True)
class Parameters:
    """Parameters that follow from c and n (section 5 of the paper).

    Attributes
    ----------
    ratio, width : float
        c and w.
    n_lines, threshold : int
        m and l.
    """

    ratio: float
    width: float
    n_lines: int
    threshold: int


def solve(ratio: float, n: int) -> Parameters:
    """Return the parameters for c = `ratio`, above 1, over `n` vectors."""
    width = math.sqrt(8 * ratio**2 * math.log(ratio) / (ratio**2 - 1))
    p1, p2 = math.erf(width / 2 / math.sqrt(2)), math.erf(width / 2 / ratio / math.sqrt(2))
    beta = min(1.0, FALSE_POSITIVES / n)
    a, b = math.sqrt(math.log(2 / beta)), math.sqrt(math.log(1 / ERROR))
    n_lines = math.ceil((a + b) ** 2 / (2 * (p1 - p2) ** 2))
    alpha = (a / b * p1 + p2) / (1 + a / b)
    return Parameters(ratio, width, n_lines, math.ceil(alpha * n_lines))


class Found(NamedTuple):
    """Rows, int64 (n_queries, k), nearest first, -1 where there are none; vectors measured and entries scanned."""

    rows: Any
    measured: Any
    scanned: Any


class Qalsh:
    """An index of `vectors`, uint8 or float32 (n, dim), in memory: 8 m n bytes beside them.

    Raises
    ------
    ValueError
        If c is so near 1 that the lines are more than fit `MOST_BYTES`.
    """

    def __init__(self, vectors: Any, ratio: float, seed: int = 1) -> None:
        self.parameters = solve(float(ratio), len(vectors))
        n_lines = self.parameters.n_lines
        if 8 * n_lines * len(vectors) > MOST_BYTES:
            raise ValueError(f"c = {ratio:g} takes {n_lines} lines, more than {MOST_BYTES:,} bytes")
        random = np.random.default_rng(seed)
        self.vectors = np.array(vectors, order="C")
        self.directions = random.standard_normal((n_lines, vectors.shape[1])).astype(np.float32)
        self.rows = np.empty((n_lines, len(vectors)), np.int32)
        self.places = np.empty((n_lines, len(vectors)), np.float32)
        wide = self.vectors.astype(np.float32)
        for line, direction in enumerate(self.directions):
            places = wide @ direction
            self.rows[line] = np.argsort(places, kind="stable")
            self.places[line] = places[self.rows[line]]

    @property
    def bytes_held(self) -> int:
        """Bytes of the index beside the vectors."""
        return int(self.rows.nbytes + self.places.nbytes + self.directions.nbytes)

    def search(self, queries: Any, k: int) -> Found:
        """Find k neighbours of each query, shape (n_queries, dim), one query at a time."""
        p = self.parameters
        projected = queries.astype(np.float32) @ self.directions.T
        queries = np.array(queries, self.vectors.dtype, order="C")
        return Found(
            *_search(
                self.vectors, self.rows, self.places, queries, projected, k,
                p.ratio, p.width, p.threshold, FALSE_POSITIVES + k - 1,
            )
        )  # fmt: skip


@kernel
def _search(
    vectors: Any, rows: Any, places: Any, queries: Any, projected: Any, k: int,
    ratio: float, width: float, threshold: int, most: int,
) -> Any:  # fmt: skip
    n_queries, (n_lines, n) = len(queries), rows.shape
    found, measured = np.full((n_queries, k), -1, np.int64), np.zeros(n_queries, np.int64)
    scanned = np.zeros(n_queries, np.int64)
    ends, counts = np.empty((n_lines, 2), np.int64), np.empty(n, np.uint16)
    met = np.empty(2 * TURN, np.int64)
    for i in range(n_queries):
        counts[:] = 0
        begin(places, projected[i], ends)
        distances = np.full(k, np.inf, np.float32)
        radius = next_radius(places, projected[i], ends, 0.0, ratio, width)
        while radius > 0 and measured[i] < most:
            half = radius * width / 2
            entries = 1
            while entries and measured[i] < most:
                entries = 0
                for line in range(n_lines):
                    passed, n_met = turn(
                        rows[line], places[line], projected[i, line], half, ends[line], counts, threshold, met
                    )
                    entries += passed
                    for row in met[: min(n_met, most - measured[i])]:
                        measured[i] += 1
                        insert(distances, found[i], squared_distance(vectors[row], queries[i]), row)
                scanned[i] += entries
            if distances[-1] <= (ratio * radius) ** 2:
                break
            radius = next_radius(places, projected[i], ends, radius, ratio, width)
    return found, measured, scanned


@kernel
def begin(places: Any, projected: Any, ends: Any) -> None:
    """Set the last entry below and the first one above the window, which is empty at first, on each line."""
    for line in range(len(places)):
        ends[line, 1] = np.searchsorted(places[line], projected[line])
        ends[line, 0] = ends[line, 1] - 1


@kernel
def turn(
    rows: Any, places: Any, centre: float, half: float, ends: Any, counts: Any, threshold: int, met: Any
) -> tuple[int, int]:
    """Scan some entries of a line to both sides, up to `half` away from `centre`, and count them.

    Returns how many, and how many vectors were met for the `threshold`-th time, which are in `met`.
    """
    before, after = ends[0], ends[1]
    n_met = 0
    while before >= 0 and ends[0] - before < TURN and centre - places[before] <= half:
        row = rows[before]
        counts[row] += 1
        met[n_met] = row
        n_met += counts[row] == threshold
        before -= 1
    while after < len(rows) and after - ends[1] < TURN and places[after] - centre <= half:
        row = rows[after]
        counts[row] += 1
        met[n_met] = row
        n_met += counts[row] == threshold
        after += 1
    passed = ends[0] - before + after - ends[1]
    ends[0], ends[1] = before, after
    return passed, n_met


@kernel
def next_radius(places: Any, projected: Any, ends: Any, radius: float, ratio: float, width: float) -> float:
    """Return the next power of c above `radius` whose ring is not empty on half of the lines; 0 at the end."""
    n_lines, n = places.shape
    nearest = np.full(n_lines, np.inf)
    for line in range(n_lines):
        if ends[line, 0] >= 0:
            nearest[line] = projected[line] - places[line, ends[line, 0]]
        if ends[line, 1] < n:
            nearest[line] = min(nearest[line], places[line, ends[line, 1]] - projected[line])
    left = np.sort(nearest[nearest < np.inf])
    if not len(left):
        return 0.0
    wanted = max(2 * left[len(left) // 2] / width, 1e-30)
    return max(ratio ** math.ceil(math.log(wanted) / math.log(ratio)), radius * ratio)
