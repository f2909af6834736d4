"""Proposals for an index with one node a page: smaller nodes, tried on a sample, and two replayed formats."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.graph.nodes import NodeFormat
from indexmill.layout.star import star_order
from indexmill.pipeline.bootstrap import mean_interval
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.kinds.common.judge import Cost, Judge
from indexmill.pipeline.relayout.auto import Effort, drawn_slot, sample_size
from indexmill.pipeline.relayout.explained.code_distances import CodeDistances
from indexmill.pipeline.relayout.explained.placement import (
    Placement,
    apart,
    copies_per_node,
    lists_per_page,
    replicated,
)
from indexmill.pipeline.relayout.explained.replay import Searches, cheapest
from indexmill.pipeline.relayout.explained.streamed import read_sample
from indexmill.pipeline.relayout.sample_index import Sample
from indexmill.pipeline.relayout.tuning import tuning_queries

if TYPE_CHECKING:
    from indexmill.reader.index import Index

#: Vertices and queries of the sample, enough to tell 5%.
EFFORT = Effort(sample=10_000, queries=200, work=0)
#: Node types smaller than another.
_SMALLER = {"float32": ("float16", "sq16", "sq8"), "float16": ("sq8",), "sq16": ("sq8",)}


#: List sizes that are replayed, as multiples of the one that reaches the recall now: fewer vectors read in the end
#: want more candidates.
_LONGER = (1, 1.25, 1.5, 2, 3)


@dataclass(frozen=True)
class Proposal:
    """One way to read fewer pages.

    Attributes
    ----------
    name : str
    nodes_per_page : int or None
        Nodes, or lists, that would share a page.
    pages_read : float or None
        Page reads a query at equal recall on the sample; None where nothing would change.
    change : float or None
        Share by which that is more (or, negative, fewer) than now.
    more_than_now : pair of float or None
        95% bootstrap interval of the paired difference in page reads a query.
    how : str or None
        ``"measured"``, the reader counted them; ``"replayed"``, see `pipeline.relayout.explained.replay`.
    words : str
    """

    name: str
    nodes_per_page: int | None
    pages_read: float | None
    change: float | None
    more_than_now: tuple[float, float] | None
    how: str | None
    words: str


def size_of_sample(index: OpenedIndex, memory: int) -> int:
    """Return the number of vectors that `propose` may look at within `memory` bytes.

    Raises
    ------
    BudgetError
        If those are too few to measure anything.
    """
    return sample_size(index, EFFORT, memory)


def propose(index: OpenedIndex, size: int, run: GenerationRun, scratch: Path) -> tuple[Proposal, ...]:
    """Return proposals for `index`, whose pages hold one node, each with its effect on `size` of its vectors."""
    threads, node = run.options.workers, index.graph.node_format
    types = _SMALLER.get(node.dtype, ())
    with run.task("sample"):
        sample = read_sample(index, drawn_slot(index), size, threads)
    with run.stage("propose", 2 + len(types), "proposals") as advance:
        queries = tuning_queries(index, None, sample.region, sample.points, EFFORT.queries, threads)
        judge = Judge(sample.points, queries, threads)
        distances = CodeDistances(index.codes.codebook, sample.codes, queries.compared)
        with _laid_out(sample, scratch, None) as (view, order):
            judge.aim(view)
            now = judge.cost(view)
            advance(1)
            replays = _Replays(judge, view, order, node, distances, now)
            others = [_split(node, sample, replays), _replicated(node, sample, replays)]
        advance(1)
        proposals = []
        for dtype in types:
            proposals.append(_smaller_nodes(index, judge, sample, scratch, dtype, now))
            advance(1)
    return (*proposals, *others)


@contextmanager
def _laid_out(
    sample: Sample, scratch: Path, node_dtype: str | None
) -> Iterator[tuple[Index, NDArray[np.uint32]]]:
    """Yield the sample with nodes of another type, packed by stars, and that order."""
    from indexmill.reader.index import Index

    path = sample.write(scratch / "proposal", node_dtype)
    try:
        opened = Index(path, "pread")
        order = star_order(*sample.graph, max(1, opened.native.nodes_per_page))
        yield opened.remapped(order), order
    finally:
        shutil.rmtree(path)


def _smaller_nodes(
    index: OpenedIndex, judge: Judge, sample: Sample, scratch: Path, dtype: str, now: Cost
) -> Proposal:
    node = index.graph.node_format
    other = NodeFormat(node.dim, dtype, node.max_degree, node.code_bytes)
    shared, what = other.nodes_per_page, f"{dtype} nodes ({other.node_bytes:,} bytes)"
    if shared <= 1 and other.pages_per_node == node.pages_per_node:
        words = f"{what}: still {_per_page(other)}, so nothing changes."
        return Proposal(f"{dtype} nodes", shared, None, None, None, None, words)
    with _laid_out(sample, scratch, dtype) as (view, _):
        cost = judge.cost(view)
    if not cost.reached:
        words = f"{what}: {_per_page(other)}; recall {judge.target:.3f} is not reached, {cost.recall:.3f} is."
        return Proposal(f"{dtype} nodes", shared, None, None, None, "measured", words)
    words = (
        f"{what}: {_per_page(other)}; {_effect(cost, now)}, measured on {len(sample.points):,} vectors. Build again "
        f"with --node-dtype {dtype}."
    )
    return _proposal(f"{dtype} nodes", shared, cost, now, "measured", words)


class _Replays:
    """Searches of the sample as it is laid out now, recorded with longer and longer lists."""

    def __init__(
        self, judge: Judge, view: Index, order: NDArray[np.uint32], node: NodeFormat, distances: CodeDistances,
        now: Cost,
    ) -> None:  # fmt: skip
        self.now, self.judge = now, judge
        sizes = sorted({min(len(view), math.ceil(now.list_size * longer)) for longer in _LONGER})
        self._recorded = [
            (size, Searches.recorded(judge.traced(view, size), order, node.nodes_per_group)) for size in sizes
        ]
        self._distances = distances

    def in_format(self, name: str, shared: int, what: str, placement: Placement) -> Proposal:
        """Propose a format; `what` says how it looks."""
        cost, n_reranked = cheapest(self._recorded, placement, self._distances, self.judge)
        words = (
            f"{what}; {_effect(cost, self.now)}, with lists of {cost.list_size:.0f} candidates, of which the vectors "
            f"of the best {n_reranked:.0f} are read in the end. Replayed, page by page, from searches of the sample; "
            "indexmill has no such format."
        )
        return _proposal(name, shared, cost, self.now, "replayed", words)


def _split(node: NodeFormat, sample: Sample, replays: _Replays) -> Proposal:
    shared = max(1, lists_per_page(node))
    what = f"lists apart from vectors: {shared} lists a page, packed by stars"
    order = star_order(*sample.graph, shared)
    return replays.in_format("lists apart from vectors", shared, what, apart(node, order))


def _replicated(node: NodeFormat, sample: Sample, replays: _Replays) -> Proposal:
    copies, name = copies_per_node(node), "neighbours' lists in the slack"
    if copies == 0:
        return Proposal(name, 0, None, None, None, None, f"{name}: no room for any.")
    what = f"{name}: room for {copies} beside each node"
    return replays.in_format(name, copies, what, replicated(node, sample.graph))


def _proposal(name: str, shared: int, cost: Cost, now: Cost, how: str, words: str) -> Proposal:
    low, high = mean_interval(cost.pages - now.pages)
    change = round(cost.mean / now.mean - 1, 6)
    return Proposal(name, shared, round(cost.mean, 6), change, (round(low, 6), round(high, 6)), how, words)


def _effect(cost: Cost, now: Cost) -> str:
    low, high = mean_interval(cost.pages - now.pages)
    return (
        f"{cost.mean:.1f} page reads a query instead of {now.mean:.1f} ({cost.mean / now.mean - 1:+.0%}; 95% interval "
        f"of the difference {low:+.1f} to {high:+.1f}) at recall {cost.recall:.3f}"
    )


def _per_page(node: NodeFormat) -> str:
    if node.nodes_per_page == 0:
        return f"a node takes {node.pages_per_node} pages"
    return f"{node.nodes_per_page} node{'s' if node.nodes_per_page > 1 else ''} a page"
