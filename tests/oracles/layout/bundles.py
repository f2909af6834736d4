"""Groups of repeated queries, and their shares of the queries to come, by loops over the definition."""

from __future__ import annotations

from collections.abc import Sequence


def leaders(wanted: Sequence[Sequence[int]], compared: int) -> list[int]:
    """The leader of each query: the earliest of those that share most of its first vertices, at least half of them."""
    found: list[int] = []
    for query, vertices in enumerate(wanted):
        mine = {v for v in vertices[:compared] if v >= 0}
        best, most = query, 0
        for leader in sorted(set(found)):
            shared = len(mine & {v for v in wanted[leader][:compared] if v >= 0})
            if shared > most:
                best, most = leader, shared
        found.append(best if 2 * most >= len(mine) and most else query)
    return found


def rate(leader: int, leaders: Sequence[int]) -> float:
    """The share of the queries to come that will belong to the group of `leader`."""
    if leaders.count(leader) != 1:
        return leaders.count(leader) / len(leaders)
    early, late = list(leaders[: len(leaders) // 2]), leaders[len(leaders) // 2 :]
    once = {other for other in early if early.count(other) == 1}
    return sum(other in once for other in late) / len(late) / max(1, len(once))


def most_wanted(group: Sequence[Sequence[int]]) -> list[int]:
    """The vertices that the queries of a group want, by their points."""
    width, points = len(group[0]), dict[int, int]()
    for vertices in group:
        for place, vertex in enumerate(vertices):
            if vertex >= 0:
                points[vertex] = points.get(vertex, 0) + 2 * width - place
    return sorted(points, key=lambda vertex: (-points[vertex], vertex))
