"""Orders as their papers tell them, on neighbour lists: scores counted from nothing, choices by looking at all."""

from __future__ import annotations

from collections import deque

import numpy as np


def breadth_first(lists: list[list[int]], start: int) -> list[int]:
    """Vertices in the order in which walks from `start`, then from the lowest left, reach them."""
    order: list[int] = []
    for root in [start, *range(len(lists))]:
        if root in order:
            continue
        queue = deque([root])
        order.append(root)
        while queue:
            for u in lists[queue.popleft()]:
                if u not in order:
                    order.append(u)
                    queue.append(u)
    return order


def kinship(lists: list[list[int]], u: int, v: int) -> int:
    """Gorder's S(u, v): edges between u and v, and in-neighbours that they share."""
    return (v in lists[u]) + (u in lists[v]) + sum(u in row and v in row for row in lists)


def gorder_pages(lists: list[list[int]], b: int) -> list[list[int]]:
    """Pages of one part, each begun with the lowest free vertex, while the next one has kin on the page.

    Among equals, the one that came to be kin first: by the vertices of the page, for each its neighbours, then its
    in-neighbours, ascending, each with its neighbours.
    """
    free = list(range(len(lists)))
    pages = []
    while free:
        page, met = [free[0]], list[int]()
        while len(page) < b:
            v = page[-1]
            met += lists[v]
            for w in range(len(lists)):
                if v in lists[w]:
                    met += [w, *lists[w]]
            kin = [u for u in dict.fromkeys(met) if u in free and u not in page]
            if not kin:
                break
            page.append(max(kin, key=lambda u: sum(kinship(lists, u, v) for v in page)))
        free = [v for v in free if v not in page]
        pages.append(page)
    return pages


def margo_weights(lists: list[list[int]], points: np.ndarray) -> dict[tuple[int, int], int]:
    """Weight of every edge: one and what it occludes, times the in-degree of its first end (1 if it has none)."""
    weights = {}
    for u, row in enumerate(lists):
        paths = max(sum(u in other for other in lists), 1)
        occluded: set[int] = set()
        for at, v in enumerate(row):
            weights[u, v] = paths
            if v in occluded:
                continue
            for c in row[at + 1 :]:
                near, far = ((points[c] - points[w]) ** 2 for w in (v, u))
                if c not in occluded and np.float32(1.2) * np.float32(near.sum()) <= np.float32(far.sum()):
                    occluded.add(c)
                    weights[u, v] += paths
    return weights


def margo_pages(n: int, weights: dict[tuple[int, int], int], b: int) -> list[list[int]]:
    """Pages of one part: the heaviest free edge begins one, the vertex of the greatest sum of weights joins it.

    Among equal edges the one whose lower end, then upper end, is lowest; among equal vertices the one that was
    joined to the page first, of those joined by the same vertex the lowest.
    """
    sums: dict[tuple[int, int], int] = {}
    for (u, v), weight in weights.items():
        sums[min(u, v), max(u, v)] = sums.get((min(u, v), max(u, v)), 0) + weight
    edges = sorted(sums, key=lambda edge: (-sums[edge], edge))
    free = set(range(n))
    pages = []
    while free:
        begins = [u for u, v in edges if u in free and v in free] or [min(free)]
        page, met = [begins[0]], list[int]()
        free.remove(page[0])
        while len(page) < b:
            v = page[-1]
            met += [u for u in range(n) if (min(u, v), max(u, v)) in sums and u not in met]
            near = [u for u in met if u in free]
            if not near:
                break
            page.append(max(near, key=lambda u: sum(sums.get((min(u, v), max(u, v)), 0) for v in page)))
            free.remove(page[-1])
        pages.append(page)
    return pages


def bisect(lists: list[list[int]], order: list[int], b: int, rounds: int) -> list[int]:
    """Divide `order` in halves of whole pages, and those again, swapping pairs of falling gain that save an edge."""
    if len(order) <= b:
        return order
    middle = -(-len(order) // b) // 2 * b
    left, right = order[:middle], order[middle:]

    def edges(v: int, others: list[int]) -> int:
        return sum((u in lists[v]) + (v in lists[u]) for u in others if u != v)

    for _ in range(rounds):
        gains = (
            [edges(v, right) - edges(v, left) for v in left],
            [edges(v, left) - edges(v, right) for v in right],
        )
        ranked = [sorted(range(len(g)), key=lambda i, g=g: -g[i]) for g in gains]
        swapped = 0
        for i, j in zip(*ranked, strict=False):
            if gains[0][i] + gains[1][j] <= 0:
                break
            v, u = left[i], right[j]
            saved = edges(v, right) - edges(v, left) + edges(u, left) - edges(u, right) - 2 * edges(v, [u])
            if saved > 0:
                left[i], right[j] = u, v
                swapped += 1
        if swapped <= 0.001 * len(order):
            break
    return bisect(lists, left, b, rounds) + bisect(lists, right, b, rounds)


def two_means(points: np.ndarray, ids: np.ndarray, b: int, steps: int) -> list[int]:
    """Divide `ids` by projections on the line between two means, half of the pages each, down to pages."""
    if len(ids) <= b:
        return ids.tolist()
    rows, n_left = points[ids].astype(np.float64), -(-len(ids) // b) // 2 * b
    direction = np.zeros(rows.shape[1])
    direction[rows.var(axis=0).argmax()] = 1
    for _ in range(steps):
        at_right = np.zeros(len(ids), bool)
        at_right[np.argsort(rows @ direction, kind="stable")[n_left:]] = True
        direction = rows[at_right].mean(axis=0) - rows[~at_right].mean(axis=0)
    return two_means(points, ids[~at_right], b, steps) + two_means(points, ids[at_right], b, steps)
