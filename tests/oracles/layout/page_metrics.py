"""Metrics of a layout from their definitions, page by page and edge by edge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def in_page_share(
    lists: Sequence[Sequence[int]], order: Sequence[int], b: int, use: Sequence[float]
) -> float:
    """Share of the edges whose ends share a page, each as often as the vertex it leaves was used."""
    page = {v: slot // b for slot, v in enumerate(order)}
    followed = [(v, u) for v, neighbours in enumerate(lists) for u in neighbours]
    inside = sum(use[v] for v, u in followed if page[v] == page[u])
    total = sum(use[v] for v, _ in followed)
    return inside / total if total else 0.0


def compactness(lists: Sequence[Sequence[int]], order: Sequence[int], b: int) -> list[float]:
    """lambda_2 / diameter of every full page; 0 for one that is not connected."""
    values = []
    for first in range(0, len(order) - b + 1, b):
        page = [int(v) for v in order[first : first + b]]
        edges = {frozenset((v, u)) for v in page for u in lists[v] if u in page and u != v}
        steps = [_steps(v, page, edges) for v in page]
        if any(len(reached) < b for reached in steps):
            values.append(0.0)
            continue
        diameter = max(distance for reached in steps for distance in reached.values())
        laplacian = np.zeros((b, b))
        for edge in edges:
            i, j = (page.index(v) for v in edge)
            laplacian[[i, j], [i, j]] += 1
            laplacian[[i, j], [j, i]] -= 1
        values.append(float(np.sort(np.linalg.eigvals(laplacian).real)[1]) / diameter)
    return values


def _steps(start: int, page: list[int], edges: set[frozenset[int]]) -> dict[int, int]:
    """Steps to each vertex of the page that can be reached."""
    reached, level = {start: 0}, [start]
    while level:
        level = [u for u in page if u not in reached and any(frozenset((v, u)) in edges for v in level)]
        reached |= dict.fromkeys(level, max(reached.values()) + 1)
    return reached
