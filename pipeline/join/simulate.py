"""A simulated platform: when its workers would finish their batches, and the energy that would take.

A discrete-event simulation of `Board` and its workers with exact rates and no other cost: nothing is loaded.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from indexmill.pipeline.join.platform import Worker
from indexmill.pipeline.join.split import Board, Share


@dataclass
class WorkerRun:
    """Simulated work of a worker.

    Attributes
    ----------
    name : str
    planned : int
    predicted_seconds : float
    batches : list of int
        That it searched, whole or in part.
    stolen : int
        Of these, that were another's.
    seconds : float
        From the start of all to the end of its last batch.
    load_seconds, search_seconds : float
    """

    name: str
    planned: int
    predicted_seconds: float
    batches: list[int] = field(default_factory=list)
    stolen: int = 0
    seconds: float = 0.0
    load_seconds: float = 0.0
    search_seconds: float = 0.0


def spread(seconds: Sequence[float]) -> float:
    """Return how much earlier the first worker finished than the last, as a share of the last one's time.

    A worker that had nothing to do finished at once.
    """
    end = max(seconds, default=0.0)
    return 1 - min(seconds) / end if end else 0.0


def energy_joules(workers: Sequence[Worker], runs: Sequence[WorkerRun], base_watts: float = 0.0) -> float:
    """Return the energy of a run: what draws always, and each worker while it works and while it waits for the last."""
    end = max((run.seconds for run in runs), default=0.0)
    drawn = [
        w.watts * r.seconds + w.idle_watts * (end - r.seconds) for w, r in zip(workers, runs, strict=True)
    ]
    return base_watts * end + sum(drawn)


def simulate(planned: Sequence[Share], *, lag: dict[int, float] | None = None) -> list[WorkerRun]:
    """Return the work of each worker on its share, simulated.

    Parameters
    ----------
    planned : sequence of Share
        Of workers with rates.
    lag : dict of int to float, optional
        Workers that are slower than declared, and how many times.
    """
    board, slow = Board(planned), lag or {}
    runs = [WorkerRun(share.worker.name, len(share.pieces), share.seconds) for share in planned]
    # (time, kind, worker): kind 0 ends a search, kind 1 asks for a batch; ends come first, so that paces are known.
    events = [(0.0, 1, i) for i in range(len(planned))]
    searched = [0.0] * len(planned)  # when the worker's last search ends
    heapq.heapify(events)
    while events:
        now, kind, i = heapq.heappop(events)
        worker, run = planned[i].worker, runs[i]
        if kind == 0:
            board.finished(i, now)
            run.seconds = now
            continue
        piece = board.take(i, now)
        if piece is None:
            continue
        load = worker.load_seconds(piece.n_bytes) * slow.get(i, 1.0)
        search = worker.search_seconds(piece.compares) * slow.get(i, 1.0)
        begins = max(now + load, searched[i])
        searched[i] = begins + search
        run.batches.append(piece.span.batch)
        run.load_seconds += load
        run.search_seconds += search
        heapq.heappush(events, (searched[i], 0, i))
        heapq.heappush(events, (begins if worker.overlap else searched[i], 1, i))
    for run, lane in zip(runs, board.lanes, strict=True):
        run.stolen = lane.stolen
    return runs
