"""What laying vertices out takes in memory: of a build, of a layout, and of the tail of an append."""

from __future__ import annotations

from indexmill.layout.parts import DEFAULT_PART_PAGES

#: Bytes a vertex, an edge, and an edge of a part that is packed on one thread, of each order.
_ORDER_BYTES = {
    "identity": (12, 0, 0),
    "random": (12, 0, 0),
    "star": (24, 0, 0),
    "bnp": (12, 0, 0),
    "bnf": (52, 0, 0),
    "breadth-first": (12, 0, 0),
    "kmeans-pages": (16, 0, 0),
    "gorder": (36, 4, 0),
    "gorder-windowed": (28, 0, 12),
    "margo": (32, 0, 40),
    "graph-bisection": (36, 4, 0),
    "restream": (52, 4, 0),
    "polish": (40, 0, 0),
}


def order_bytes(order: str, n: int, nodes_per_page: int, max_degree: int, threads: int) -> int:
    """Return what the order called `order` of `n` vertices takes, its result and the inverse of that included."""
    a_vertex, an_edge, an_edge_of_a_part = _ORDER_BYTES[order]
    part = DEFAULT_PART_PAGES * nodes_per_page
    at_once = min(threads, -(-n // part))
    return n * (a_vertex + an_edge * max_degree) + an_edge_of_a_part * min(n, part) * max_degree * at_once


def order_threads(order: str, n: int, nodes_per_page: int, max_degree: int, threads: int, room: int) -> int:
    """Return with how many of `threads`, at least one, the order takes at most `room` bytes."""
    for some in range(threads, 1, -1):
        if order_bytes(order, n, nodes_per_page, max_degree, some) <= room:
            return some
    return 1


def metrics_bytes(nodes_per_page: int) -> int:
    """Return what the proxies of a layout take: dense graphs of 256 pages at a time."""
    return 256 * 32 * nodes_per_page**2
