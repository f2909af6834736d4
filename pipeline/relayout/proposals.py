"""What helps an index with one node a page: smaller nodes, measured on a sample, and two other formats, estimated."""

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

from indexmill.formats.nodes import NodeFormat
from indexmill.layout.star import star_order
from indexmill.pipeline.extend_index import OpenedIndex
from indexmill.pipeline.generation import GenerationRun
from indexmill.pipeline.relayout.auto import Effort, sample_size, take_sample
from indexmill.pipeline.relayout.estimates import (
    Expansions,
    lists_per_page,
    replicas_per_node,
    replicated_reads,
    split_reads,
)
from indexmill.pipeline.relayout.judge import Cost, Judge
from indexmill.pipeline.relayout.sample_index import Sample
from indexmill.pipeline.relayout.tuning import tuning_queries
from indexmill.pipeline.relayout.unpacked import UnpackedIndex

if TYPE_CHECKING:
    from indexmill.reader.index import Index

#: Vertices and queries of the sample, enough to tell 5%.
_EFFORT = Effort(sample=10_000, queries=200, work=0)
#: Node types smaller than another.
_SMALLER = {"float32": ("float16", "sq16", "sq8"), "float16": ("sq8",), "sq16": ("sq8",)}


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
    measured : bool
        Whether the reader counted them; else they are an estimate.
    words : str
    """

    name: str
    nodes_per_page: int | None
    pages_read: float | None
    change: float | None
    measured: bool
    words: str


def check_sample(index: OpenedIndex, memory: int) -> None:
    """Refuse a budget that holds no sample to measure on, before anything is unpacked.

    Raises
    ------
    BudgetError
    """
    sample_size(index, _EFFORT, memory)


def propose(
    index: OpenedIndex, unpacked: UnpackedIndex, run: GenerationRun, scratch: Path
) -> tuple[Proposal, ...]:
    """Return what would help `index`, whose pages hold one node, with its effect."""
    threads = run.options.workers
    types = _SMALLER.get(index.graph.node_format.dtype, ())
    with run.stage("propose", 1 + len(types), "proposals") as advance:
        size = sample_size(index, _EFFORT, run.options.memory)
        sample = take_sample(index, unpacked, size, threads)
        queries = tuning_queries(
            index, None, sample.region, sample.points, _EFFORT.queries, index.parameters.seed, threads
        )
        judge = Judge(sample.points, queries, threads)
        with _laid_out(sample, scratch, None) as (view, order):
            judge.aim(view)
            now = judge.cost(view)
            expansions = Expansions(judge.traced(view, math.ceil(now.list_size)), order)
        advance(1)
        proposals = []
        for dtype in types:
            proposals.append(_smaller_nodes(index, judge, sample, scratch, dtype, now))
            advance(1)
        node = index.graph.node_format
        proposals += [_split(node, sample, expansions, now), _replicated(node, sample, expansions, now)]
    return tuple(proposals)


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
    other = NodeFormat(node.dim, dtype, node.max_degree)
    shared, what = other.nodes_per_page, f"{dtype} nodes ({other.node_bytes:,} bytes)"
    if shared <= 1 and other.pages_per_node == node.pages_per_node:
        words = f"{what}: still {_per_page(other)}, so nothing changes."
        return Proposal(f"{dtype} nodes", shared, None, None, False, words)
    with _laid_out(sample, scratch, dtype) as (view, _):
        cost = judge.cost(view)
    if not cost.reached:
        words = f"{what}: {_per_page(other)}; recall {judge.target:.3f} is not reached, {cost.recall:.3f} is."
        return Proposal(f"{dtype} nodes", shared, None, None, True, words)
    change = cost.mean / now.mean - 1
    words = (
        f"{what}: {_per_page(other)}; {cost.mean:.1f} page reads a query instead of {now.mean:.1f} "
        f"({change:+.0%}) at recall {judge.target:.3f}, measured on {len(sample.points):,} vectors. Build again with "
        f"--node-dtype {dtype}."
    )
    return Proposal(f"{dtype} nodes", shared, round(cost.mean, 6), round(change, 6), True, words)


def _split(node: NodeFormat, sample: Sample, expansions: Expansions, now: Cost) -> Proposal:
    shared = lists_per_page(node)
    reads = split_reads(node, sample.graph, expansions)
    what = f"lists apart from vectors: {shared} lists a page, vectors read for the last candidates only"
    return _estimated("lists apart from vectors", shared, what, reads, now)


def _replicated(node: NodeFormat, sample: Sample, expansions: Expansions, now: Cost) -> Proposal:
    copies, name = replicas_per_node(node), "neighbours' lists in the slack"
    if copies == 0:
        return Proposal(name, 0, None, None, False, f"{name}: no room for any.")
    reads = replicated_reads(node, sample.graph, expansions)
    return _estimated(name, copies, f"{name}: room for {copies} beside each node", reads, now)


def _estimated(name: str, shared: int, what: str, reads: float, now: Cost) -> Proposal:
    change = reads / now.mean - 1
    words = (
        f"{what}; at best about {reads:.1f} page reads a query instead of {now.mean:.1f} ({change:+.0%}). An estimate, "
        "replayed from what searches expanded; indexmill has no such format."
    )
    return Proposal(name, shared, round(reads, 6), round(change, 6), False, words)


def _per_page(node: NodeFormat) -> str:
    if node.nodes_per_page == 0:
        return f"a node takes {node.pages_per_node} pages"
    return f"{node.nodes_per_page} node{'s' if node.nodes_per_page > 1 else ''} a page"
