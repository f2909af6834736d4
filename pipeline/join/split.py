"""The batches of each worker: planned so that all workers finish together, and corrected while they run.

Equation 8 of the Batch Similarity Search paper (section 5.5), for any number of unlike workers and whole batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from indexmill.pipeline.execution.balance import shares
from indexmill.pipeline.join.platform import Costs, Worker, worker_seconds


@dataclass(frozen=True)
class Share:
    """Planned work of a worker.

    Attributes
    ----------
    worker : Worker
    batches : list of int
    seconds : float
        That it will take.
    """

    worker: Worker
    batches: list[int]
    seconds: float


def plan_split(workers: Sequence[Worker], costs: Costs, batches: Sequence[int]) -> list[Share]:
    """Divide batches among workers, each a range of them, so that all finish together as nearly as whole batches allow.

    Parameters
    ----------
    workers : sequence of Worker
        With rates.
    """
    mean = [
        float(column[list(batches)].mean()) if batches else 1.0 for column in (costs.n_bytes, costs.compares)
    ]
    counts = shares([worker.rate(*mean) for worker in workers], len(batches))
    made, first = [], 0
    for worker, count in zip(workers, counts, strict=True):
        taken = list(batches[first : first + count])
        made.append(Share(worker, taken, worker_seconds(worker, costs, taken)))
        first += count
    return made


@dataclass
class _Lane:
    """Work that a worker still has and has done.

    Attributes
    ----------
    queue : deque of int
    pace : float
        Seconds a batch, as planned; measured ones replace it.
    begun : float, optional
        When it took its first batch.
    taken, finished, stolen : int
    """

    queue: deque[int]
    pace: float
    begun: float | None = None
    taken: int = 0
    finished: int = 0
    stolen: int = 0
    ended: float = field(default=0.0)


class Board:
    """Hands batches to workers: each its own, and when these are taken one of a worker that lags.

    A batch is taken from the worker that will be busy longest, its last one first, and only by a worker that will
    finish it before the other one would finish all of its own. It knows no clock, and is not safe among threads.

    Parameters
    ----------
    planned : sequence of Share
    """

    def __init__(self, planned: Sequence[Share]) -> None:
        rates = [share.seconds / len(share.batches) for share in planned if share.batches]
        slowest = max(rates, default=1.0)
        self.lanes = [
            _Lane(deque(share.batches), share.seconds / len(share.batches) if share.batches else slowest)
            for share in planned
        ]

    def take(self, worker: int, now: float) -> int | None:
        """Return the batch that a worker loads next; None: there is nothing left for it to do."""
        lane = self.lanes[worker]
        if lane.begun is None:
            lane.begun = now
        if not lane.queue:
            victim = max(self.lanes, key=self._busy)
            waiting = (lane.taken - lane.finished + 1) * lane.pace
            if not victim.queue or waiting >= self._busy(victim):
                return None
            lane.queue.append(victim.queue.pop())
            lane.stolen += 1
        lane.taken += 1
        return lane.queue.popleft()

    def finished(self, worker: int, now: float) -> None:
        """Record that a worker has finished a batch, which corrects its pace."""
        lane = self.lanes[worker]
        lane.finished += 1
        lane.ended = now
        assert lane.begun is not None
        if lane.finished > 1 or lane.begun < now:
            lane.pace = (now - lane.begun) / lane.finished

    @staticmethod
    def _busy(lane: _Lane) -> float:
        """Return the seconds that a worker still needs."""
        return (len(lane.queue) + lane.taken - lane.finished) * lane.pace
