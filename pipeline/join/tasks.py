"""A task of a join: one machine's part of Algorithm 2, which searches some batches for all queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.rows import Lists
from indexmill.builders.lists.scan import CODED_QUERIES, Nearest
from indexmill.formats.errors import ConfigError, FormatError
from indexmill.formats.index.manifest import Manifest
from indexmill.formats.ivf.index import IvfFiles
from indexmill.pipeline.join.batches import Loaded, Pace, Unread, load_spans
from indexmill.pipeline.join.partials import Partials
from indexmill.pipeline.join.queries import Queries
from indexmill.pipeline.join.search import Search
from indexmill.pipeline.join.spans import Span


@dataclass(frozen=True)
class Work:
    """Arguments that every task of a join shares.

    Attributes
    ----------
    index, folder : str
        The index, and where results are kept: the same paths on every machine.
    manifest : Manifest
        Of the generation that is joined, whichever is the present one by now.
    n_queries, k, nprobe : int
    block : int
        Queries that are searched at a time; does not reach the result.
    """

    index: str
    manifest: Manifest
    folder: str
    n_queries: int
    k: int
    nprobe: int
    block: int

    def partials(self) -> Partials:
        """Return the folder of the join."""
        return Partials(Path(self.folder), self.n_queries, self.k)


@dataclass
class Searched:
    """Outcome of some batches.

    Attributes
    ----------
    batches : list of int
        That were searched, whole or in part.
    unread : dict of int to str
        Those that cannot be read, and why.
    load_bytes : int
    load_seconds, search_seconds, compare_seconds : float
        Searches hold the compares, and the writing of what was found.
    """

    batches: list[int] = field(default_factory=list)
    unread: dict[int, str] = field(default_factory=dict)
    load_bytes: int = 0
    load_seconds: float = 0.0
    search_seconds: float = 0.0
    compare_seconds: float = 0.0

    def add(self, other: Searched) -> None:
        """Count what became of other batches, too."""
        self.batches += other.batches
        self.unread |= other.unread
        self.load_bytes += other.load_bytes
        self.load_seconds += other.load_seconds
        self.search_seconds += other.search_seconds
        self.compare_seconds += other.compare_seconds


class BatchSearch:
    """Searches batches for all queries and keeps what is found in each in the folder of the join.

    Parameters
    ----------
    work : Work
    queries : array, shape (n_queries, user's dim)
    threads : int

    Raises
    ------
    ConfigError
        If the generation that is joined is not there any more.
    """

    def __init__(self, work: Work, queries: NDArray[Any], threads: int) -> None:
        self.work, self.partials = work, work.partials()
        try:
            self.files = IvfFiles(work.index, work.manifest)
        except (FormatError, OSError) as error:
            raise ConfigError(
                f"{work.index}: changed since the join began; run again to join what is there now ({error})"
            ) from error
        self._queries = Queries(self.files.centroids, queries)
        self._search = Search(self.files.centroids, work.k, work.nprobe, threads)

    def choose(self) -> None:
        """Find the lists that each query probes and keep them, unless that was done or they are all probed."""
        if not self._search.exhaustive:
            self.partials.keep_chosen(self.work.nprobe, self._chosen)

    def probes(self) -> NDArray[np.int64]:
        """Return the number of queries that probe each list, int64 (n_lists,), as they were chosen."""
        n_lists = self.files.centroids.n_lists
        if self._search.exhaustive:
            return np.full(n_lists, self.work.n_queries, np.int64)
        probes = np.zeros(n_lists, np.int64)
        with self.partials.open_chosen(self.work.nprobe) as chosen:
            for first, last in self._blocks():
                probes += np.bincount(chosen.read(first, last).ravel(), minlength=n_lists)
        return probes

    def run(
        self,
        spans: Iterable[Span],
        *,
        ahead: bool = True,
        load_pace: Pace | None = None,
        search_pace: Callable[[Loaded | Unread, float], None] | None = None,
        advance: Callable[[int], None] | None = None,
    ) -> Searched:
        """Search batches, or parts of them, one after the other; one that cannot be read does not keep the others.

        Parameters
        ----------
        spans, ahead, load_pace
            As `load_spans` has them.
        search_pace : callable, optional
            Called with a batch and when its search began, once it is over; with one that cannot be read, too.
        advance : callable, optional
            Counts what was searched.
        """
        done = Searched()
        for batch in load_spans(self.files, spans, ahead=ahead, pace=load_pace):
            began = time.perf_counter()
            if isinstance(batch, Loaded):
                self.partials.write(self._place(batch.span), self._timed(batch.lists, done))
            if search_pace is not None:
                search_pace(batch, began)
            if advance is not None:
                advance(1)
            if isinstance(batch, Unread):
                done.unread[batch.span.batch] = str(batch.error)
                continue
            done.search_seconds += time.perf_counter() - began
            done.batches.append(batch.span.batch)
            done.load_bytes += batch.bytes
            done.load_seconds += batch.seconds
        return done

    def warm_up(self, span: Span) -> None:
        """Search the first of some lists for one query and for many, and keep nothing.

        It loads the kernels of a search, which takes a new process a while.
        """
        for batch in load_spans(self.files, [Span(span.batch, span.first, span.first + 1)], ahead=False):
            if isinstance(batch, Loaded):
                for n in (1, min(CODED_QUERIES, self.work.n_queries)):
                    chosen = np.full((n, 1), batch.lists.names[0], np.uint32)
                    self._search.run(batch.lists, self._queries.block(0, n), chosen)

    def whole(self, number: int) -> Span:
        """Return all lists of a batch."""
        return Span(number, 0, self.files.centroids.n_lists)

    def _place(self, span: Span) -> Path:
        whole = span == self.whole(span.batch)
        return self.partials.part(span.batch) if whole else self.partials.piece(span)

    def _blocks(self) -> Iterator[tuple[int, int]]:
        for first in range(0, self.work.n_queries, self.work.block):
            yield first, min(first + self.work.block, self.work.n_queries)

    def _chosen(self) -> Iterator[Any]:
        for first, last in self._blocks():
            yield self._search.choose(self._queries.block(first, last))

    def _timed(self, lists: Lists, done: Searched) -> Iterator[Nearest]:
        blocks, began = self._found(lists), time.perf_counter()
        for block in blocks:
            done.compare_seconds += time.perf_counter() - began
            yield block
            began = time.perf_counter()

    def _found(self, lists: Lists) -> Iterator[Nearest]:
        if self._search.exhaustive:
            for first, last in self._blocks():
                yield self._search.run(lists, self._queries.block(first, last), None)
            return
        with self.partials.open_chosen(self.work.nprobe) as chosen:
            for first, last in self._blocks():
                yield self._search.run(lists, self._queries.block(first, last), chosen.read(first, last))


def search_batches(
    work: Work,
    queries: NDArray[Any],
    numbers: Sequence[int],
    threads: int,
    advance: Callable[[int], None] | None = None,
) -> Searched:
    """Search those batches of `numbers` that are not done yet. A task; a machine that is lost leaves what it did."""
    search = BatchSearch(work, queries, threads)
    left = [number for number in numbers if not search.partials.has(search.partials.part(number))]
    return search.run(map(search.whole, left), advance=advance)
