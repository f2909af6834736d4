"""The lists of each worker: planned so that all workers finish together, and corrected while they run.

Equation 8 of the Batch Similarity Search paper (section 5.5), for any number of unlike workers. Vectors divide anywhere
there; here a batch is cut between lists, once for each worker at most.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from indexmill.pipeline.bisection import greatest
from indexmill.pipeline.join.platform import Costs, Piece, Worker, worker_seconds

#: Halvings of the time in which all workers are done.
_HALVINGS = 50
#: Share of that time below which lists are not worth a piece of their own: the cut is made at the edge of the batch.
_SLIVER = 0.002
#: Share of that time by which sums over the pieces of a range may differ from those over the whole range.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Share:
    """Planned work of a worker.

    Attributes
    ----------
    worker : Worker
    pieces : list of Piece
    seconds : float
        That it will take.
    """

    worker: Worker
    pieces: list[Piece]
    seconds: float

    @property
    def rows(self) -> float:
        """Vectors in its lists: d of Equation 8."""
        return sum(piece.rows for piece in self.pieces)


def plan_split(
    workers: Sequence[Worker], costs: Costs, windows: Sequence[range] | None = None
) -> list[Share]:
    """Divide lists among workers, a range of them each, so that all finish together as nearly as lists allow.

    Parameters
    ----------
    workers : sequence of Worker
        With rates.
    costs : Costs
        Of the lists to divide.
    windows : sequence of range, optional
        Batches that each worker can read, which together `cover` all; by default each can read all of them.
    """
    shares, first = [], 0
    for worker, last in zip(workers, _Division(workers, costs, windows).ends(), strict=True):
        pieces = costs.pieces(first, last)
        shares.append(Share(worker, pieces, worker_seconds(worker, (piece.cost for piece in pieces))))
        first = last
    return shares


def cover(windows: Sequence[range], batches: int) -> bool:
    """Tell whether workers that read these batches can divide `batches` in their order."""
    first = 0
    for window in windows:
        if window.start <= first:
            first = max(first, window.stop)
    return first == batches


class _Division:
    """Entries of `costs` in their order, cut where the time of each worker is up."""

    def __init__(self, workers: Sequence[Worker], costs: Costs, windows: Sequence[range] | None) -> None:
        self._n = n = len(costs)
        self._edges: list[int] = costs.edges.tolist()
        self._bytes, self._compares = (
            np.append(0.0, np.cumsum(column)).tolist() for column in (costs.n_bytes, costs.compares)
        )
        #: Each worker, and the entries that it can read: the first one, and the one after the last.
        self._workers = [(worker, 0, n) for worker in workers]
        if windows is not None:
            first, last = np.searchsorted(costs.spans[:, 0], [(w.start, w.stop) for w in windows]).T.tolist()
            self._workers = list(zip(workers, first, last, strict=True))

    def ends(self) -> list[int]:
        """Return the entry after the last one of each worker, in the least time in which they do all."""
        seconds = [worker_seconds(worker, self._parts(a, b)) for worker, a, b in self._workers]
        alone = [whole for whole, (_, a, b) in zip(seconds, self._workers, strict=True) if b - a == self._n]
        low, high = 0.0, min(alone, default=max(seconds)) * (1 + _ROUNDING)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._cut(middle)[-1] == self._n else (middle, high)
        snapped, first, edge = [], 0, 0
        for (worker, _, _), end in zip(self._workers, self._cut(high), strict=True):
            if end > first:  # a worker that does nothing must not take what the one before it gives back
                edge = max(edge, self._snapped(worker, end, high))
            first = end
            snapped.append(edge)
        return [*snapped[:-1], self._n]

    def _cut(self, seconds: float) -> list[int]:
        """Return where each worker stops when the time is up."""
        ends, first = [], 0
        for worker, a, b in self._workers:
            if a <= first < b:
                first = self._end(worker, first, b, seconds)
            ends.append(first)
        return ends

    def _end(self, worker: Worker, first: int, last: int, seconds: float) -> int:
        return greatest(lambda end: self._fits(worker, first, end, seconds), first, last + 1)

    def _fits(self, worker: Worker, first: int, last: int, seconds: float) -> bool:
        """Whether a worker finishes a range in time; its loads or its searches alone may take too long."""
        if worker.seconds(*self._cost(first, last)) > seconds:
            return False
        return not worker.overlap or worker_seconds(worker, self._parts(first, last)) <= seconds

    def _snapped(self, worker: Worker, last: int, seconds: float) -> int:
        """Return `last`, where a worker stops, or the edge of a batch if that is near."""

        def apart(edge: int) -> float:
            return worker.seconds(*self._cost(min(edge, last), max(edge, last)))

        after = bisect_left(self._edges, last)
        # the later one of two as near: `last` itself if it is an edge, also where lists before it cost nothing
        edge = min(self._edges[after], self._edges[max(after - 1, 0)], key=apart)
        return edge if apart(edge) <= _SLIVER * seconds else last

    def _parts(self, first: int, last: int) -> list[tuple[float, float]]:
        """Return the costs of the pieces of a range."""
        inside = self._edges[bisect_right(self._edges, first) : bisect_left(self._edges, last)]
        return [self._cost(a, b) for a, b in pairwise([first, *inside, last])]

    def _cost(self, first: int, last: int) -> tuple[float, float]:
        return self._bytes[last] - self._bytes[first], self._compares[last] - self._compares[first]


@dataclass
class _Lane:
    """Work that a worker still has and has done, in seconds as planned.

    Attributes
    ----------
    worker : Worker
    queue : deque of Piece
        Not taken yet.
    taken : deque of Piece
        Taken and not finished.
    left, done : float
        Work that it has not finished, and work that it has finished.
    slowness : float
        Seconds that it takes for a planned one; measured once it has finished something.
    begun : float, optional
        When it took its first piece.
    finished, stolen : int
    """

    worker: Worker
    queue: deque[Piece]
    taken: deque[Piece] = field(default_factory=deque)
    left: float = 0.0
    done: float = 0.0
    slowness: float = 1.0
    begun: float | None = None
    finished: int = 0
    stolen: int = 0

    def __post_init__(self) -> None:
        self.left = sum(map(self.planned, self.queue))

    @property
    def busy(self) -> float:
        """Seconds that the worker still needs."""
        return self.left * self.slowness

    def planned(self, piece: Piece) -> float:
        """Return the seconds of a piece as planned."""
        return self.worker.seconds(*piece.cost)


class Board:
    """Hands pieces to workers: each its own, and when these are taken one of a worker that lags.

    A piece is taken from the worker that will be busy longest, its last one first, and only by a worker that will
    finish it before the other one would finish all of its own. It knows no clock, and is not safe among threads.

    Parameters
    ----------
    planned : sequence of Share
    """

    def __init__(self, planned: Sequence[Share]) -> None:
        self.lanes = [_Lane(share.worker, deque(share.pieces)) for share in planned]

    def take(self, worker: int, now: float) -> Piece | None:
        """Return the piece that a worker loads next; None: there is nothing left for it to do."""
        lane = self.lanes[worker]
        if lane.begun is None:
            lane.begun = now
        if not lane.queue:
            victim = max(self.lanes, key=lambda one: one.busy)
            if not victim.queue:
                return None
            last = victim.queue[-1]
            if (lane.left + lane.planned(last)) * lane.slowness >= victim.busy:
                return None
            lane.queue.append(victim.queue.pop())
            victim.left -= victim.planned(last)
            lane.left += lane.planned(last)
            lane.stolen += 1
        lane.taken.append(lane.queue.popleft())
        return lane.taken[-1]

    def finished(self, worker: int, now: float) -> None:
        """Record that a worker has finished the piece that it took first, which corrects its slowness."""
        lane = self.lanes[worker]
        seconds = lane.planned(lane.taken.popleft())
        lane.left -= seconds
        lane.done += seconds
        lane.finished += 1
        assert lane.begun is not None
        if lane.done > 0 and (lane.finished > 1 or lane.begun < now):
            lane.slowness = (now - lane.begun) / lane.done
