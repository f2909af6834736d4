"""Agglomerative pages from their definition: loops over vertices and groups, and sums of all pairs of vertices."""

from __future__ import annotations

import numpy as np

Pair = tuple[int, int]


def closeness(points: np.ndarray, lists: list[list[int]], rank: int) -> np.ndarray:
    """Closeness of every two vertices, 0 on the diagonal; the scale is the distance to the `rank`-th neighbour."""
    wide = points.astype(np.float64)
    squares = ((wide[:, None] - wide) ** 2).sum(axis=2)
    reach = [np.sqrt(squares[v, row[min(rank, len(row)) - 1]]) if row else 0.0 for v, row in enumerate(lists)]
    reach = np.maximum(reach, 1e-9)
    near = 1 / (1 + (squares / np.outer(reach, reach)) ** 4)
    np.fill_diagonal(near, 0)
    return near


def candidates(lists: list[list[int]], v: int) -> list[int]:
    """The neighbours of a vertex, and the first of its nearest ones, each once, in the order in which they come."""
    found = lists[v][:32] + [w for u in lists[v][:4] for w in lists[u][:8]]
    return [u for i, u in enumerate(found) if u != v and u not in found[:i]]


def near(closeness: np.ndarray, lists: list[list[int]], keep: int) -> dict[Pair, int]:
    """The `keep` closest candidates of each vertex, and how close they are; of equally close ones the first."""
    kept = {}
    for v in range(len(lists)):
        ranked = sorted(candidates(lists, v), key=lambda u: -closeness[v, u])[:keep]
        kept.update({(v, u): int(closeness[v, u]) for u in ranked if closeness[v, u] > 0})
    return kept


def both_ways(kept: dict[Pair, int]) -> dict[Pair, int]:
    """The closeness of pairs, twice where each vertex keeps the other."""
    return {(v, u): c + kept.get((u, v), 0) for (v, u), c in kept.items()} | {
        (u, v): c + kept.get((u, v), 0) for (v, u), c in kept.items()
    }


def merged(pairs: dict[Pair, int], n: int, b: int) -> list[set[int]]:
    """Groups, merged in rounds. A group looks for a partner when it merged, or its partner did."""
    groups = {v: {v} for v in range(n)}
    best: dict[int, tuple[np.float32, int, int]] = {}
    has_merged = set(groups)
    while True:
        partner_of = {g: best[g][2] for g in groups if g in best}
        looking = {g for g in groups if g in has_merged or partner_of.get(g) in has_merged}
        for g in looking:
            found = [found for other in groups if (found := score(pairs, groups, g, other, b)) is not None]
            best.pop(g, None)
            if found:
                best[g] = max(found)
        for g in sorted(looking):
            if g in best:
                value, number, other = best[g]
                told = (value, number, g)
                best[other] = max(best.get(other, told), told)
        mutual = [g for g in groups if g in best and g < best[g][2] and best[best[g][2]][2] == g]
        if not mutual:
            return list(groups.values())
        has_merged = set(mutual) | {best[g][2] for g in mutual}
        for g in mutual:
            groups[g] |= groups.pop(best[g][2])


def score(
    pairs: dict[Pair, int], groups: dict[int, set[int]], g: int, other: int, b: int
) -> tuple[np.float32, int, int] | None:
    """How good a partner is: its score and the number of the pair, whose least is best; and its name."""
    total = sum(pairs.get((v, u), 0) for v in groups[g] for u in groups[other])
    sizes = len(groups[g]), len(groups[other])
    if g == other or sum(sizes) > b or total == 0:
        return None
    weights = [np.float32(1 / (size**0.25 * np.sqrt(size**0.25))) for size in sizes]
    pair = (min(g, other) << 32) | max(g, other)
    number = ((pair ^ (pair >> 29)) * 0x9E3779B97F4A7C15) % 2**64
    return np.float32(total) * (weights[0] * weights[1]), -number, other
