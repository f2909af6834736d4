"""`--prune-edges`: neighbour lists chosen anew for the pages of an order, kept if searches read fewer pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.vamana.connect import connect_unreachable
from indexmill.formats.errors import NothingToGain
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.layout.block_prune import block_prune
from indexmill.layout.order import Adjacency, Work
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.kinds.common.judge import Cost
from indexmill.pipeline.relayout.comparison import compared
from indexmill.pipeline.relayout.tuning import GivenQueries
from indexmill.pipeline.relayout.unpacked import UnpackedIndex

#: Files of the chosen lists.
_FILES = ("pruned-neighbours.npy", "pruned-degrees.npy")


@dataclass(frozen=True)
class Judging:
    """Judgement of pruned edges: queries of the caller, or a number of index vectors; and the work of pruning."""

    given: GivenQueries | None
    queries: int
    work_limit: int | None


@dataclass(frozen=True)
class PrunedEdges:
    """Lists that were chosen anew.

    Attributes
    ----------
    graph : Adjacency
        By vector id, mapped; every vertex is reachable from the medoid.
    record : dict
        For the manifest (docs/formats/manifest.md).
    """

    graph: Adjacency
    record: dict[str, Any]


def pruned_bytes(index: OpenedIndex) -> int:
    """Return the size of the files that `prune_edges` writes."""
    return index.n * (4 + 4 * index.graph.node_format.max_degree)


def prune_edges(
    index: OpenedIndex, unpacked: UnpackedIndex, order: NDArray[np.uint32], limit: int | None, threads: int,
    scratch: Path,
) -> PrunedEdges:  # fmt: skip
    """Choose the lists of an index for pages of `order`, and link what the medoid does not reach any more.

    Memory: 5 bytes a vertex; lists and vectors are mapped.

    Parameters
    ----------
    unpacked : UnpackedIndex
        With points.
    limit : int or None
        Units of work (`layout.order.Work`).
    """
    assert unpacked.points is not None
    node, parameters, graph, points = (
        index.graph.node_format,
        index.parameters,
        unpacked.graph,
        unpacked.points,
    )
    lists, counts = (scratch / name for name in _FILES)
    into = Adjacency(
        create_npy(lists, np.uint32, graph.neighbours.shape), create_npy(counts, np.int32, (index.n,))
    )
    work = Work(limit)
    done = block_prune(
        graph, points, order, node.nodes_per_page, parameters.alpha, into, threads=threads, work=work
    )
    medoid = int(unpacked.vector_ids[index.entries.medoid])
    added = connect_unreachable(points, *into, medoid, parameters.build_list_size)
    record = {
        "alpha": parameters.alpha,
        "vertices": done,
        "edges_kept": round(_kept(graph, into), 6),
        "edges_added": added,
        "work": work.spent,
        "work_limit": limit,
    }
    return PrunedEdges(into, record)


def judged(
    index: OpenedIndex, points: NDArray[Any], judging: Judging, before: Path, after: Path, run: GenerationRun,
    advance: Callable[[int], None],
) -> dict[str, Any]:  # fmt: skip
    """Return the page reads that the lists of the index at `after` save, for the manifest.

    Parameters
    ----------
    before, after : Path
        Two indexes of the same vectors, nodes in the same slots.

    Raises
    ------
    IndexReplaced
        If another index has taken the place of the one at `before`.
    NothingToGain
        If page reads at equal recall do not fall, or by no more than noise.
    """
    found = compared(index, points, judging.given, judging.queries, (before, after), run, advance)
    if not found.is_better:
        low, high = found.more
        raise NothingToGain(
            f"{index.path}: nothing was published: with pruned edges {_words(found.new, found.k)}, without "
            f"{_words(found.old, found.k)} (difference {low:+.2f} to {high:+.2f}, 95%); leave --prune-edges out"
        )
    return {
        "queries": found.queries,
        "queries_from": "the caller" if judging.given is not None else "the index",
        **found.facts("pages_read_before", "pages_read", "more_than_before"),
    }


def _words(cost: Cost, k: int) -> str:
    reached = f"recall@{k} {cost.recall:.3f}" if cost.reached else f"recall@{k} of only {cost.recall:.3f}"
    return f"a query reads {cost.mean:.2f} pages at {reached}"


def _kept(graph: Adjacency, into: Adjacency) -> float:
    """Share of the edges of `graph` that `into` has."""
    step, same, width = 16_384, 0, np.arange(graph.neighbours.shape[1])
    for first in range(0, len(graph.degrees), step):
        part = slice(first, first + step)
        source = np.arange(len(graph.degrees[part]), dtype=np.uint64)[:, None] << np.uint64(32)
        old, new = ((g.neighbours[part] | source)[width < g.degrees[part, None]] for g in (graph, into))
        same += len(np.intersect1d(old, new, assume_unique=True))
    return same / max(1, int(graph.degrees.sum(dtype=np.int64)))
