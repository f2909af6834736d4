"""Pages in units, slowly: every share is counted anew for every choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

#: Edges from one page to another.
Weights = dict[tuple[int, int], int]


def page_graph(lists: list[list[int]], order: list[int], b: int, nearest: int, most: int) -> Weights:
    """Edges between full pages: of each vertex the `nearest` neighbours, of each page the `most` heaviest edges."""
    n_pages = len(order) // b
    page = {v: slot // b for slot, v in enumerate(order)}
    weights = {}
    for p in range(n_pages):
        ends = (page[u] for v in order[p * b : p * b + b] for u in lists[v][:nearest])
        counts = Counter(q for q in ends if q != p and q < n_pages)
        for q, count in counts.most_common(most):  # ties in the order in which they were met
            weights[p, q] = count
    return weights


def between(weights: Weights, page: int, others: Iterable[int]) -> int:
    return sum(weights.get((page, other), 0) + weights.get((other, page), 0) for other in others)


def fill(weights: Weights, pages: list[int], reach: int, unit: int) -> list[int]:
    """Fill units from each stretch of `reach` pages."""
    filled: list[int] = []
    for first in range(0, len(pages), reach):
        left, done = pages[first : first + reach], []
        while left:
            # The first page of a unit is the one that fits the unit before best.
            now = done[(len(done) - 1) // unit * unit :] if done else []
            shares = {}
            for page in left:
                inside = between(weights, page, now)
                if inside:
                    outside = between(weights, page, left)
                    shares[page] = np.float32(inside) / np.float32(outside + 1)
            best = min(shares, key=lambda page: (-shares[page], page), default=left[0])
            left.remove(best)
            done.append(best)
        filled += done
    return filled


def in_units(weights: Weights, n_pages: int, unit_pages: tuple[int, ...]) -> list[int]:
    """Return the pages in their new order."""
    pages, reach = list(range(n_pages)), n_pages
    for unit in unit_pages:
        pages, reach = fill(weights, pages, reach, unit), unit
    return pages
