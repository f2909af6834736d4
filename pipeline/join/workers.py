"""A join by the workers of a platform: real loads and searches, of each worker at its own pace."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.join.batches import Loaded, Unread
from indexmill.pipeline.join.platform import Costs, Piece, Worker, costs_of
from indexmill.pipeline.join.simulate import WorkerRun
from indexmill.pipeline.join.spans import Span
from indexmill.pipeline.join.split import Board, Share, plan_split
from indexmill.pipeline.join.tasks import BatchSearch, Searched, Work

_LEAST_SECONDS = 1e-6
#: Seconds that the load and the compares of a piece must take together to tell rates.
_TELLING_SECONDS = 0.05
#: Share of all compares that rates are measured with, about: of each worker at least those of one list, at most those
#: of one batch.
_MEASURED = 1 / 16
#: Seconds that a worker that is slowed may be behind and still make up for.
_CATCH_UP_SECONDS = 0.5


@dataclass
class SplitRun:
    """Planned and measured work of a platform.

    Attributes
    ----------
    planned : list of Share
    runs : list of WorkerRun
    searched : Searched
    copied_bytes : int
        That were copied to paths of workers.
    """

    planned: list[Share]
    runs: list[WorkerRun]
    searched: Searched
    copied_bytes: int = 0


def run_split(
    work: Work,
    queries: NDArray[Any],
    workers: Sequence[Worker],
    spans: Sequence[Span],
    advance: Callable[[int], None],
) -> SplitRun:
    """Search lists, divided among workers; one that does not declare its rates searches a piece first, to measure them.

    The lists that queries probe must be chosen (`BatchSearch.choose`).

    Parameters
    ----------
    spans : sequence of Span
        Batches, or what an earlier run left of them.
    advance : callable
        Counts batches that are searched.
    """

    def tried(pieces: Mapping[int, Piece]) -> list[Searched]:
        with ThreadPoolExecutor(len(pieces), "join-measure") as threads:
            found = list(threads.map(one_tried, pieces, pieces.values()))
        for piece in pieces.values():
            count.searched(piece.span)
        return found

    def one_tried(i: int, piece: Piece) -> Searched:
        one = BatchSearch(work, queries, workers[i].threads)
        one.warm_up(piece.span)
        return one.run([piece.span], ahead=False)

    search = BatchSearch(work, queries, max(worker.threads for worker in workers))
    probes, count = search.probes(), BatchCount(spans, advance)
    everything = [[range(len(search.files.batches))]] * len(workers)
    workers, searched, left = measure_rates(search, probes, workers, spans, tried, everything)
    planned = plan_split(workers, costs_of(search.files, probes, left))
    runs = _Crew(work, queries, planned, count).run(searched)
    return SplitRun(planned, runs, searched)


def measure_rates(
    search: BatchSearch,
    probes: NDArray[np.int64],
    workers: Sequence[Worker],
    spans: Sequence[Span],
    tried: Callable[[Mapping[int, Piece]], list[Searched]],
    windows: Sequence[Sequence[Collection[int]]],
) -> tuple[list[Worker], Searched, list[Span]]:
    """Let each worker that lacks a rate search a piece; return workers with rates, what was searched, and what is left.

    They do so side by side, as they will work, unless fewer batches are left than there are workers. One whose piece
    tells no rate, or that can read none, has the mean rate of the others.

    Parameters
    ----------
    tried : callable
        Lets workers, given by their places, search a piece each, and returns what became of it.
    windows : sequence of sequence of collection of int
        Batches from which the piece of each worker is taken: the first of its collections that has any left.
    """
    known, searched, left = list(workers), Searched(), list(spans)
    lacking = [i for i, worker in enumerate(workers) if worker.measured]
    share = _MEASURED / max(1, len(lacking))
    while lacking and left:
        costs = costs_of(search.files, probes, left)
        places = _places(lacking, left, costs, windows)
        if not places:
            break
        cuts = {at: costs.first_of(at, share) for at in places.values()}
        left = [span for at, whole in enumerate(left) for span in (cuts[at][1] if at in cuts else [whole])]
        pieces = {i: cuts[at][0] for i, at in places.items()}
        for (i, piece), found in zip(pieces.items(), tried(pieces), strict=True):
            searched.add(found)
            if found.batches:
                known[i] = _with_rates(workers[i], *_rates(piece, found))
                lacking.remove(i)
    loads = [worker.load_mb_s for worker in known if worker.load_mb_s]
    compares = [worker.compare_m_s for worker in known if worker.compare_m_s]
    means = [float(np.mean(rates)) if rates else 1.0 for rates in (loads, compares)]  # 1.0: all are alike
    return [_with_rates(worker, *means) for worker in known], searched, left


def _places(
    lacking: Sequence[int], left: Sequence[Span], costs: Costs, windows: Sequence[Sequence[Collection[int]]]
) -> dict[int, int]:
    """Return which of the spans that are `left` each worker takes: that of its window with most compares, if any."""
    compares = np.add.reduceat(costs.compares, costs.edges[:-1]).tolist()
    places: dict[int, int] = {}
    for i in lacking:
        free = [at for at in range(len(left)) if at not in places.values()]
        choices = ([at for at in free if left[at].batch in window] for window in windows[i])
        if mine := next(filter(None, choices), None):
            places[i] = max(mine, key=compares.__getitem__)
    return places


def _rates(piece: Piece, found: Searched) -> tuple[float | None, float | None]:
    """Return the MB and the millions of vectors a second by which a piece was loaded and compared, where it tells."""
    if found.load_seconds + found.compare_seconds < _TELLING_SECONDS:
        return None, None
    load = piece.n_bytes / max(found.load_seconds, _LEAST_SECONDS) / 1e6
    compare = piece.compares / max(found.compare_seconds, _LEAST_SECONDS) / 1e6
    return load or None, compare or None


def _with_rates(worker: Worker, load_mb_s: float | None, compare_m_s: float | None) -> Worker:
    """Return a worker with these rates where it has none."""
    return replace(
        worker, load_mb_s=worker.load_mb_s or load_mb_s, compare_m_s=worker.compare_m_s or compare_m_s
    )


class BatchCount:
    """Counts batches once all their lists are searched."""

    def __init__(self, spans: Sequence[Span], advance: Callable[[int], None]) -> None:
        self._left: Counter[int] = Counter()
        for span in spans:
            self._left[span.batch] += span.last - span.first
        self._advance = advance

    def searched(self, span: Span) -> None:
        """Count lists; not safe among threads."""
        self._left[span.batch] -= span.last - span.first
        if not self._left[span.batch]:
            self._advance(1)


class _Crew:
    """The workers of one run, a thread each that loads and searches its batches."""

    def __init__(
        self,
        work: Work,
        queries: NDArray[Any],
        planned: list[Share],
        count: BatchCount,
    ) -> None:
        self._work, self._queries, self._planned, self._count = work, queries, planned, count
        self._pieces = [piece for share in planned for piece in share.pieces]
        self._board, self._lock = Board(planned), threading.Lock()
        self._began = 0.0

    def run(self, total: Searched) -> list[WorkerRun]:
        """Return the work of each worker, and count it in `total`.

        Raises
        ------
        Exception
            What a worker raised; the others finish what there is first.
        """
        self._began = time.perf_counter()
        with ThreadPoolExecutor(len(self._planned), "join-worker") as threads:
            pending = [threads.submit(self._worker, i) for i in range(len(self._planned))]
        runs = []
        for i, future in enumerate(pending):
            run, searched = future.result()
            run.stolen = self._board.lanes[i].stolen
            runs.append(run)
            total.add(searched)
        return runs

    def _worker(self, i: int) -> tuple[WorkerRun, Searched]:
        share = self._planned[i]
        worker, run = share.worker, WorkerRun(share.worker.name, len(share.pieces), share.seconds)
        search = BatchSearch(self._work, self._queries, worker.threads)
        pace = WorkerPace(worker, self._pieces)

        def searched(batch: Loaded | Unread, began: float) -> None:
            pace.searched(batch, began)
            run.seconds = time.perf_counter() - self._began
            with self._lock:
                self._board.finished(i, run.seconds)
                self._count.searched(batch.span)

        done = search.run(self._take(i), ahead=worker.overlap, load_pace=pace.loaded, search_pace=searched)
        run.batches = done.batches
        run.load_seconds, run.search_seconds = done.load_seconds, done.search_seconds
        return run, done

    def _take(self, i: int) -> Iterator[Span]:
        """Yield the lists of a worker, each span when it is about to be loaded."""
        while True:
            with self._lock:
                piece = self._board.take(i, time.perf_counter() - self._began)
            if piece is None:
                return
            yield piece.span


class WorkerPace:
    """Waits after the loads and searches of a worker that is to be slowed; nothing for another.

    Parameters
    ----------
    worker : Worker
    pieces : iterable of Piece
        That it may search.
    """

    def __init__(self, worker: Worker, pieces: Iterable[Piece]) -> None:
        self._worker, self._compares = worker, {piece.span: piece.compares for piece in pieces}
        self._loads = _Clock()
        self._searches = _Clock() if worker.overlap else self._loads

    def loaded(self, n_bytes: int, began: float) -> None:
        """Wait until a load that began then is due."""
        if self._worker.throttle:
            self._loads.wait(began, self._worker.load_seconds(n_bytes))

    def searched(self, batch: Loaded | Unread, began: float) -> None:
        """Wait until a search that began then is due."""
        if self._worker.throttle and isinstance(batch, Loaded):
            self._searches.wait(began, self._worker.search_seconds(self._compares[batch.span]))


class _Clock:
    """End of the work of a slowed worker: time lost once is made up for, so that rates are kept."""

    def __init__(self) -> None:
        self._due = -math.inf

    def wait(self, began: float, seconds: float) -> None:
        """Sleep until work that began then and takes so long is due."""
        behind = began - self._due
        self._due = (self._due if behind < _CATCH_UP_SECONDS else began) + seconds
        left = self._due - time.perf_counter()
        if left > 0:
            time.sleep(left)
