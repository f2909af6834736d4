"""A join by workers with storage of their own (section 4.3 of the Batch Similarity Search paper, Algorithm 2).

Batches are copied to the paths of workers once, divided as the first join needs them; a batch that is cut lies on the
paths of both its workers. Each worker is a process of its own on this machine, or a task on its node of a Ray cluster,
the one that offers a resource of the worker's name. A worker searches what was planned for it and takes nothing from
others: it could not read that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import BudgetError, ConfigError, IndexmillError
from indexmill.formats.index.manifest import Manifest
from indexmill.formats.ivf.batch import batch_name
from indexmill.pipeline.execution.apart import call_apart
from indexmill.pipeline.execution.local import Executor, Task
from indexmill.pipeline.join.paths.copies import (
    Held,
    Place,
    check_filled,
    copy_batches,
    copy_one,
    look,
    needed,
    remove_damaged,
    using,
)
from indexmill.pipeline.join.platform import Piece, Worker, costs_of
from indexmill.pipeline.join.simulate import WorkerRun
from indexmill.pipeline.join.spans import Span
from indexmill.pipeline.join.split import Share, cover, plan_split
from indexmill.pipeline.join.tasks import BatchSearch, Searched, Work
from indexmill.pipeline.join.workers import BatchCount, SplitRun, WorkerPace, measure_rates


@dataclass(frozen=True)
class Paths:
    """Workers of which some have paths, and what lay on each when the join began; None for a worker without."""

    workers: Sequence[Worker]
    held: Sequence[Held | None]
    executor: Executor

    @classmethod
    def look(cls, workers: Sequence[Worker], manifest: Manifest, executor: Executor) -> Paths:
        """Look at all paths.

        Raises
        ------
        ConfigError
            If two are one folder.
        IndexmillError
            As `copies.look`.
        """
        executor.share(None)  # joins a cluster once, before threads would
        arguments = [_at(worker, manifest) for worker in workers]
        paths = cls(workers, _everywhere(executor, workers, look, arguments), executor)
        owners: dict[str, Worker] = {}
        for worker, held in zip(workers, paths.held, strict=True):
            if held is None:
                continue
            if held.folder in owners:
                raise ConfigError(
                    f"platform: workers {owners[held.folder].name} and {worker.name}: {worker.path} is one folder; "
                    "name one for each"
                )
            owners[held.folder] = worker
        return paths

    def windows(self, batches: int) -> list[range] | None:
        """Return the batches that each worker can read.

        None unless every worker has batches and together they cover the index.
        """
        readable = [range(batches) if held is None else held.batches for held in self.held]
        windows = [window for window in readable if window is not None]
        return windows if len(windows) == len(readable) and cover(windows, batches) else None

    def to_measure(self, batches: int) -> list[list[Collection[int]]]:
        """Return the batches with which each worker is measured, and those that do if none of the first is left.

        Those on its path; of a path without, an equal share, and then any; any of a worker without a path.
        """
        n, everything = len(self.held), range(batches)
        found: list[list[Collection[int]]] = []
        for i, held in enumerate(self.held):
            if held is None:
                found.append([everything])
            elif held.batches is None:
                first = i * batches // n
                found.append([range(first, max((i + 1) * batches // n, first + 1)), everything])
            else:
                found.append([[number for number in held.batches if batch_name(number) in held.usable]])
        return found

    def lay(self, work: Work, pieces: Mapping[int, Piece]) -> int:
        """Copy to the paths of some workers what they need to search a piece each; returns the bytes that were copied.

        Raises
        ------
        IndexmillError
            As `copies.copy_one`.
        """
        arguments = [
            _at(worker, work.index, work.manifest, pieces[i].span.batch) if i in pieces else None
            for i, worker in enumerate(self.workers)
        ]
        return sum(_everywhere(self.executor, self.workers, copy_one, arguments, nothing=0))

    def fill(self, work: Work, windows: Sequence[range]) -> int:
        """Copy batches to the paths where they are missing; returns the bytes that were copied.

        Raises
        ------
        BudgetError
            If they do not fit a disk; none of them was copied then.
        IndexmillError
            As `copies.copy_batches`.
        """
        self._check_room(work.manifest, windows)
        arguments = [
            _at(worker, work.index, work.manifest, window)
            for worker, window in zip(self.workers, windows, strict=True)
        ]
        return sum(_everywhere(self.executor, self.workers, copy_batches, arguments, nothing=0))

    def _check_room(self, manifest: Manifest, windows: Sequence[range]) -> None:
        disks: dict[str, list[tuple[Worker, Held, int]]] = {}
        for worker, held, window in zip(self.workers, self.held, windows, strict=True):
            if held is not None:
                kept = sum(held.usable.values())
                more = sum(entry.bytes for entry in needed(manifest, window)) - kept
                disks.setdefault(held.disk, []).append((worker, held, more))
        for on_one in disks.values():
            more = sum(bytes_more for _, _, bytes_more in on_one)
            free = min(held.free for _, held, _ in on_one)
            if more > free:
                names = ", ".join(f"{worker.name} ({worker.path})" for worker, _, _ in on_one)
                raise BudgetError(
                    f"platform: worker {names}: copies of batches take {more:,} bytes more, {free:,} are free; make "
                    "room, name a path on another disk, or state rates that leave less to this one"
                )


def run_paths(
    work: Work,
    queries: NDArray[Any],
    paths: Paths,
    spans: Sequence[Span],
    advance: Callable[[int], None],
    memory: int | None = None,
) -> SplitRun:
    """Search lists, divided among workers that read their own paths; batches are copied there where they are missing.

    A worker that does not declare its rates searches a piece first, where it will work and from its path, to measure
    them.

    The lists that queries probe must be chosen (`BatchSearch.choose`).

    Parameters
    ----------
    spans : sequence of Span
        Batches, or what an earlier run left of them.
    advance : callable
        Counts batches that are searched.
    memory : int, optional
        Bytes of a worker's task on a cluster; None: workers are processes on this machine.

    Raises
    ------
    StorageError
        If a path is gone; the other workers finish first, and what was found is kept.
    IndexmillError
        As `Paths.fill`.
    """
    search = BatchSearch(work, queries, max(worker.threads for worker in paths.workers))
    probes, batches = search.probes(), len(search.files.batches)
    crew = _Crew(work, queries, paths, BatchCount(spans, advance), memory)
    copied = 0

    def tried(pieces: Mapping[int, Piece]) -> list[Searched]:
        nonlocal copied
        copied += paths.lay(work, pieces)
        return [
            done
            for _, done in crew.run([Share(paths.workers[i], [piece], 0.0) for i, piece in pieces.items()])
        ]

    workers, searched, left = measure_rates(
        search, probes, paths.workers, spans, tried, paths.to_measure(batches)
    )
    windows = paths.windows(batches)
    if windows is None:
        whole = [search.whole(number) for number in range(batches)]
        shares = plan_split(workers, costs_of(search.files, probes, whole))
        windows = [range(batches) if share.worker.path is None else _batches(share) for share in shares]
    copied += paths.fill(work, windows)
    planned = plan_split(workers, costs_of(search.files, probes, left), windows)
    runs = []
    for made, done in crew.run(planned):
        runs.append(made)
        searched.add(done)
    return SplitRun(planned, runs, searched, copied)


class _Crew:
    """The workers of one run, each a process or a task of its own.

    Parameters
    ----------
    count : BatchCount
        Counts what they search.
    memory : int, optional
        As of `run_paths`.
    """

    def __init__(
        self, work: Work, queries: NDArray[Any], paths: Paths, count: BatchCount, memory: int | None
    ) -> None:
        plain = np.asarray(queries)  # also of a mapped file
        self._work, self._executor, self._memory = work, paths.executor, memory
        self._queries = plain if memory is None else paths.executor.share(plain)
        self._count, self._lock = count, threading.Lock()

    def run(self, shares: Sequence[Share]) -> list[tuple[WorkerRun, Searched]]:
        """Return the work of each worker, and what it searched; if one fails, the others finish first."""
        with ThreadPoolExecutor(len(shares), "join-path") as threads:
            pending = [threads.submit(self._run, share) for share in shares]
        return [future.result() for future in pending]

    def _run(self, share: Share) -> tuple[WorkerRun, Searched]:
        worker = share.worker
        if not share.pieces:
            return WorkerRun(worker.name, 0, 0.0), Searched()
        steps = _counted(share, self._count, self._lock)
        work = self._work if worker.path is None else replace(self._work, index=worker.path)
        if self._memory is None:
            done, seconds = call_apart(
                search_share,
                work,
                self._queries,
                share,
                threads=worker.threads,
                advance=lambda _: next(steps),
            )
        else:
            ((done, seconds),) = self._executor.map(
                search_share, [(work, self._queries, share)], wide=True, memory=self._memory, at=worker.name
            )
        for _ in steps:  # those that were not reported
            pass
        made = WorkerRun(worker.name, len(share.pieces), share.seconds, done.batches, 0, seconds)
        made.load_seconds, made.search_seconds = done.load_seconds, done.search_seconds
        return made, done


def search_share(
    work: Work,
    queries: NDArray[Any],
    share: Share,
    threads: int,
    advance: Callable[[int], None] | None = None,
) -> tuple[Searched, float]:
    """Search the lists of a worker; returns also the seconds that it took, once its kernels are loaded. A task.

    Parameters
    ----------
    work : Work
        Of the path of the worker.

    Raises
    ------
    StorageError
        If the path is gone, or another join changed its copies.
    """
    worker = share.worker
    place = None if worker.path is None else Place(worker.name, worker.path)
    pace = WorkerPace(worker, share.pieces)
    spans = [piece.span for piece in share.pieces]
    with nullcontext() if place is None else using(place):
        if place is not None:
            check_filled(place, work.manifest, _batches(share))
        try:
            search = BatchSearch(work, queries, min(worker.threads, threads))
            search.warm_up(spans[0])
            began = time.perf_counter()
            done = search.run(
                spans, ahead=worker.overlap, load_pace=pace.loaded, search_pace=pace.searched, advance=advance
            )
        except IndexmillError as error:
            if place is not None and place.gone:
                raise place.lost() from error
            if place is not None:  # its centroids or deletions, which the next join copies anew
                remove_damaged(place, needed(work.manifest, range(0)))
            raise
        seconds = time.perf_counter() - began
        if place is not None and done.unread:
            if place.gone:
                raise place.lost()
            remove_damaged(place, [search.files.batches[number] for number in done.unread])
    return done, seconds


def _counted(share: Share, count: BatchCount, lock: threading.Lock) -> Iterator[None]:
    """Count the pieces of a worker, one at each step."""
    for piece in share.pieces:
        with lock:
            count.searched(piece.span)
        yield


def _batches(share: Share) -> range:
    """Return the batches that a worker needs of an index."""
    return range(share.pieces[0].span.batch, share.pieces[-1].span.batch + 1) if share.pieces else range(0)


def _at(worker: Worker, *arguments: Any) -> tuple[Any, ...] | None:
    """Return the arguments of a task on the path of a worker; None for a worker without."""
    return None if worker.path is None else (Place(worker.name, worker.path), *arguments)


def _everywhere(
    executor: Executor,
    workers: Sequence[Worker],
    task: Task,
    arguments: Sequence[tuple[Any, ...] | None],
    nothing: Any = None,
) -> list[Any]:
    """Return what a task returns on each path, all at once; `nothing` for workers without."""

    def one(worker: Worker, given: tuple[Any, ...] | None) -> Any:
        if given is None:
            return nothing
        (result,) = executor.map(task, [given], at=worker.name)
        return result

    with ThreadPoolExecutor(len(workers), "join-paths") as threads:
        return list(threads.map(one, workers, arguments))
