"""Restreaming from its definition: loops over vertices and pages."""

from __future__ import annotations


def pages(order: list[int], b: int) -> list[list[int]]:
    """Vertices page by page."""
    return [order[at : at + b] for at in range(0, len(order), b)]


def edges_within(lists: list[list[int]], order: list[int], b: int) -> int:
    """Edges whose ends share a page."""
    return sum(u in page for page in pages(order, b) for v in page for u in lists[v])


def padded(lists: list[list[int]], b: int) -> list[int]:
    """Block neighbour padding: each vertex without a page, and its neighbours while the page has room."""
    order: list[int] = []
    for v, row in enumerate(lists):
        if v not in order:
            room = b - len(order) % b - 1
            order += [v, *[u for u in row if u not in order and u != v][:room]]
    return order


def restream(
    around: list[list[int]], order: list[int], b: int, stream: list[int], batch: int, balance: bool
) -> list[int]:
    """One round: every vertex takes the page with most of `around` it, among the eight with most, that has room."""
    n = len(order)
    page_of = {v: i for i, page in enumerate(pages(order, b)) for v in page}
    room = [len(page) for page in pages(order, b)]
    sizes, homeless = list(room), []
    for at in range(0, n, batch):
        before = dict(page_of)
        for v in stream[at : at + batch]:
            homes = [before[u] for u in around[v]]
            ranked = sorted(set(homes), key=lambda page: (-homes.count(page), page))[:8]
            worth = [homes.count(p) * (room[p] / sizes[p] if balance else room[p] > 0) for p in ranked]
            if worth and max(worth) > 0:
                page_of[v] = ranked[worth.index(max(worth))]
                room[page_of[v]] -= 1
            else:
                homeless.append(v)
    for v in order:
        if v in homeless:
            page_of[v] = next(page for page in range(len(room)) if room[page])
            room[page_of[v]] -= 1
    return sorted(range(n), key=lambda v: page_of[v])
