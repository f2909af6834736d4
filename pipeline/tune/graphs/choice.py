"""The graphs that go on to the next sample: few of each degree, and few degrees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from indexmill.pipeline.tune.choice import is_more, kept
from indexmill.pipeline.tune.graphs.space import GraphCandidate
from indexmill.pipeline.tune.growth import Outlook

T = TypeVar("T")


def fewest_of_each_degree(
    graphs: Sequence[GraphCandidate], found: Sequence[Outlook], count: int
) -> list[GraphCandidate]:
    """Return for each degree the `count` graphs with the fewest reads, those first."""
    chosen = []
    for group in _grouped(zip(graphs, found, strict=True), lambda one: one[0].max_degree):
        chosen += [graph for graph, _ in sorted(group, key=lambda one: (one[1].reads, one[0]))[:count]]
    return chosen


def worthwhile_lists(graphs: Sequence[GraphCandidate], found: Sequence[Outlook]) -> list[GraphCandidate]:
    """Return for each degree the shortest build list, or a longer one whose fewer reads are no noise."""
    chosen = []
    for group in _grouped(zip(graphs, found, strict=True), lambda one: one[0].max_degree):
        best = group[0]
        for one in group[1:]:
            if is_more(best[1].draws, one[1].draws):
                best = one
        chosen.append(best[0])
    return chosen


def kept_graphs(
    graphs: Sequence[GraphCandidate], found: Sequence[Outlook], count: int, max_reads: float | None
) -> list[GraphCandidate]:
    """Return `count` graphs, in the order of `graphs`; the smallest degrees are the cheapest. See `kept`."""
    return [graphs[i] for i in kept([one.reads for one in found], graphs, count, max_reads)]


def _grouped(items: Iterable[T], key: Callable[[T], object]) -> list[list[T]]:
    groups: dict[object, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())
