"""`--order auto`: every order of the portfolio is tried on a sample, and the reader counts page reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import BudgetError
from indexmill.layout.order import Work, invert
from indexmill.layout.portfolio import ORDERS
from indexmill.pipeline.bootstrap import mean_interval
from indexmill.pipeline.draws import REGION, generator
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.kinds.common.judge import Cost, Judge, TuningQueries
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.relayout.memory import needed_memory, threads_within
from indexmill.pipeline.relayout.region import ball
from indexmill.pipeline.relayout.sample_index import Sample, nodes_within
from indexmill.pipeline.relayout.tuning import GivenQueries, tuning_queries
from indexmill.pipeline.relayout.unpacked import UnpackedIndex

if TYPE_CHECKING:
    from indexmill.reader.index import Index

#: Name of the present layout among the candidates.
CURRENT = "current"
#: Directory of a sample in the scratch directory.
SAMPLE = "sample"
#: Orders that are never worth trying.
_BASELINES = frozenset({"random"})
#: Bytes of a sampled vertex beside its node and list, which are there in the files, in the reader and by number.
_SAMPLE_BYTES = 400
#: Vertices of a sample at least, where the index has as many: fewer lie on too few pages to tell orders apart.
_LEAST_SAMPLE = 1000


@dataclass(frozen=True)
class Effort:
    """Effort of the trials.

    Attributes
    ----------
    sample : int
        Vertices of the sample.
    queries : int
        Tuning queries.
    work : int
        Units of work a vertex that each order may spend (`layout.order.Work`), on the sample and on the whole.
    """

    sample: int
    queries: int
    work: int


#: Star packing spends 2 R units a vertex, 8 rounds of restreaming 10 R, Gorder about R^2.
EFFORTS = {
    "low": Effort(20_000, 200, 1_000),
    "normal": Effort(50_000, 500, 10_000),
    "high": Effort(200_000, 1_000, 100_000),
}


@dataclass(frozen=True)
class Candidate:
    """An order that was tried.

    Attributes
    ----------
    name : str
        A key of `layout.portfolio.ORDERS`, or `CURRENT`.
    order : uint32 array, shape (s,)
        Vertex of the sample in each slot.
    cost : Cost
    work : int
        Units spent.
    exhausted : bool
        Whether it ran out of work.
    """

    name: str
    order: NDArray[np.uint32]
    cost: Cost
    work: int
    exhausted: bool


@dataclass(frozen=True)
class Choice:
    """The chosen order, and the reasons.

    Attributes
    ----------
    name : str
    order : uint32 array, shape (n,), or None
        Vector id in each slot, where the sample was the whole index.
    work : int
        Units spent on that order, on the sample.
    record : dict
        For the manifest (docs/formats/manifest.md).
    """

    name: str
    order: NDArray[np.uint32] | None
    work: int
    record: dict[str, Any]


def sample_size(index: OpenedIndex, effort: Effort, memory: int) -> int:
    """Return the number of vertices to try orders on: as many as `effort` and `memory` allow.

    Raises
    ------
    BudgetError
        If those are too few to measure anything.
    """
    node = index.graph.node_format
    each = 3 * node.group_bytes // node.nodes_per_group + 12 * node.max_degree + 4 * node.dim + _SAMPLE_BYTES
    fitting = max(memory - FIXED_BYTES, 0) // each
    wanted = min(index.n, effort.sample)
    least = min(wanted, _LEAST_SAMPLE)
    if fitting < least:
        raise BudgetError(
            f"memory: a sample to measure page reads on takes at least {least:,} vectors, and a budget of {memory:,} "
            f"bytes holds {fitting:,}; give at least {FIXED_BYTES + least * each:,} bytes with --memory"
        )
    return int(min(wanted, fitting))


def memory_record(index: OpenedIndex, size: int, effort: Effort, memory: int) -> dict[str, Any]:
    """Return the facts of `memory` behind a choice on `size` vertices: equal facts mean equal choices.

    ``sample_limited_by``: ``"index"`` (all of it was looked at), ``"effort"`` or ``"memory"``; ``skipped``: orders that
    did not fit, each with the memory it wants.
    """
    limit = "index" if size == index.n else "effort" if size == effort.sample else "memory"
    needs = {name: needed_memory(index, name) for name in ORDERS if name not in _BASELINES}
    skipped = [{"order": name, "memory": need} for name, need in needs.items() if need > memory]
    return {"sample_limited_by": limit, "skipped": skipped}


class Trial:
    """A sample of an index, opened, on which orders are tried.

    Attributes
    ----------
    index : OpenedIndex
    threads : int
    graph : Adjacency
    points : uint8 or float32 array, shape (s, stored dim)
    current : uint32 array, shape (s,)
        Vertices in the order of the present layout.

    Raises
    ------
    IndexReplaced
        If the sample is the whole index, and another one has taken its place.
    """

    def __init__(
        self, index: OpenedIndex, unpacked: UnpackedIndex, size: int, run: GenerationRun, scratch: Path
    ) -> None:
        from indexmill.reader.index import Index

        assert unpacked.points is not None
        self.index, self.threads, self.is_whole = index, run.options.workers, size == index.n
        if self.is_whole:
            self.region = ball(unpacked.points, 0, size)
            self.graph, self.points, self.current = unpacked.graph, unpacked.points, unpacked.vector_ids
            path = index.path
        else:
            sample = take_sample(index, unpacked, size, self.threads)
            self.region = sample.region
            self.graph, self.points, self.current = sample.graph, sample.points, sample.current
            path = sample.write(scratch / SAMPLE)
        self._slots = invert(self.current) if self.is_whole else np.arange(size, dtype=np.uint32)
        with run.reading(path):  # to the end: a first view reads all nodes, by path again
            self._opened = Index(path, "pread").remapped(np.arange(size, dtype=np.uint32))

    def view(self, order: NDArray[np.uint32]) -> Index:
        """Return the sample as if it were laid out in `order`, uint32 (s,), vertices by slot."""
        return self._opened.remapped(self._slots[order])


def take_sample(index: OpenedIndex, unpacked: UnpackedIndex, size: int, threads: int) -> Sample:
    """Return the `size` vertices around the vertex of one of the index's centroids, drawn by its seed."""
    assert unpacked.points is not None
    region = ball(unpacked.points, int(unpacked.vector_ids[drawn_slot(index)]), size)
    return Sample(index, region, nodes_within(index, unpacked, region), threads)


def drawn_slot(index: OpenedIndex) -> int:
    """Return the slot that a sample of `index` lies around: the vertex of one of its centroids, drawn by its seed."""
    rng = generator(index.parameters.seed, REGION)
    return int(index.entries.vertices[rng.integers(len(index.entries.vertices))])


def choose(
    trial: Trial, names: list[str], effort: str, given: GivenQueries | None, memory: int, advance: Callable[[int], None]
) -> Choice:  # fmt: skip
    """Try every order on `trial`; return that with the fewest page reads, or a cheaper one that noise hides it from.

    Parameters
    ----------
    names : list of str
        See `candidates`.
    effort : {"low", "normal", "high"}
    memory : int
        Fewer threads fit an order where it is short; the bytes do not depend on them.
    advance : callable
        Told of each of `names` when it is done.
    """
    index, threads, how = trial.index, trial.threads, EFFORTS[effort]
    per_page = max(index.graph.node_format.nodes_per_page, 1)
    queries = tuning_queries(index, given, trial.region, trial.points, how.queries, threads)
    judge = Judge(trial.points, queries, threads)
    judge.aim(trial.view(trial.current))
    tried = []
    for name in names:
        work = Work(how.work * len(trial.points))
        if name == CURRENT:
            order = trial.current
        else:
            usable = threads_within(index, name, memory, threads)
            seed = index.parameters.seed
            order = ORDERS[name].fit(trial.graph, trial.points, per_page, seed, threads=usable, work=work)
        tried.append(Candidate(name, order, judge.cost(trial.view(order)), work.spent, work.left == 0))
        advance(1)
    winner, rows = decide(tried)
    record = {
        "effort": effort,
        "sample_vectors": len(trial.points),
        **memory_record(index, len(trial.points), how, memory),
        "queries": len(queries),
        "queries_from": _whose(given, queries),
        "k": queries.k,
        "recall": round(judge.target, 6),
        "candidates": rows,
    }
    return Choice(winner.name, winner.order if trial.is_whole else None, winner.work, record)


def candidates(index: OpenedIndex, size: int, memory: int) -> list[str]:
    """Return the names of what is tried on `size` vertices, in turn: every order that fits `memory`.

    The present layout is one of them where the sample is the whole index: of its pages a sample would have pieces.
    """
    names = (name for name in ORDERS if name not in _BASELINES)
    orders = [name for name in names if needed_memory(index, name) <= memory]
    return [CURRENT, *orders] if size == index.n else orders


def _whose(given: GivenQueries | None, queries: TuningQueries) -> str:
    if given is None:
        return "the index"
    return "the caller" if queries.own is None else "the caller and the index"


def decide(tried: list[Candidate]) -> tuple[Candidate, list[dict[str, Any]]]:
    """Return the winner and a record of every candidate.

    The winner is the one that spent the least work among those whose page reads noise does not tell from the fewest:
    the 95% bootstrap interval of their paired difference, over queries, holds zero. Equal work: the fewer page reads.

    Parameters
    ----------
    tried : list of Candidate
        At least one of which reached the recall.
    """
    able = [c for c in tried if c.cost.reached] or tried
    best = min(able, key=lambda c: c.cost.mean)
    alike, rows = [], []
    for c in tried:
        low, high = mean_interval(c.cost.pages - best.cost.pages)
        if c in able and low <= 0 <= high:
            alike.append(c)
        rows.append(
            {
                "order": c.name,
                "pages_read": round(c.cost.mean, 6),
                "more_than_best": [round(low, 6), round(high, 6)],
                "recall": round(c.cost.recall, 6),
                "search_list_size": round(c.cost.list_size, 6),
                "work": c.work,
                "exhausted": c.exhausted,
            }
        )
    return min(alike, key=lambda c: (c.work, c.cost.mean)), rows
