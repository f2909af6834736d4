"""Stage *order*: a slot for every vertex, and the proxies of that layout. Also the memory of every order."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.vamana.graph import Graph
from indexmill.formats.graph.nodes import NodeFormat
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.formats.pagefile.mapped import scratch_array
from indexmill.layout.metrics import layout_metrics
from indexmill.layout.order import Adjacency, invert
from indexmill.layout.parts import DEFAULT_PART_PAGES
from indexmill.layout.portfolio import ORDERS, in_districts
from indexmill.pipeline.kinds.graph.districts.tasks import joined_order
from indexmill.pipeline.kinds.graph.tasks import graph_facts, load_graph, shard_sizes

VERSION = 7
#: Bytes of each order, as products of vertices, edges and threads.
ORDER_BYTES = {name: order.memory for name, order in ORDERS.items()}


def order_task(
    graph: str, vectors: str | None, order: str, node: NodeFormat, seed: int, out: str, threads: int
) -> None:
    """Write ``order.npy``, its inverse ``slots.npy``, and ``layout.json``, facts of layout and graph.

    Parameters
    ----------
    vectors : str, optional
        Comparable rows, mapped for an order that places vectors (`layout.portfolio.USES_POINTS`).
    order : str
        A key of `layout.portfolio.ORDERS`.
    node : NodeFormat
        Decides how many nodes share a page.
    """
    g = load_graph(Path(graph))
    per_page = max(node.nodes_per_page, 1)
    points = None if vectors is None else np.load(vectors, mmap_mode="r")
    adjacency = Adjacency(g.neighbours, g.degrees)
    scratch = partial(scratch_array, Path(out))
    layout = ORDERS[order].fit(adjacency, points, per_page, seed, threads=threads, scratch=scratch)
    _save(graph, order, layout, node, out, threads)


def joined_task(
    graph: str, districts: list[str], rests: list[str], unit_pages: tuple[int, ...], order: str, node: NodeFormat,
    out: str, threads: int,
) -> None:  # fmt: skip
    """Write what `order_task` writes, of an order that was packed in `districts` and `rests` (`districts.tasks`)."""
    layout = joined_order(districts, rests, unit_pages, max(node.nodes_per_page, 1))
    _save(graph, order, layout, node, out, threads)


def _save(
    graph: str, order: str, layout: NDArray[np.uint32], node: NodeFormat, out: str, threads: int
) -> None:
    """Write the files of stage *order*."""
    g = load_graph(Path(graph))
    np.save(Path(out) / "order.npy", layout)
    np.save(Path(out) / "slots.npy", invert(layout))
    sizes = shard_sizes(Path(graph))
    facts = {
        "layout": {"order": order, **layout_facts(g, layout, node, threads)},
        "graph": {
            **degree_facts(g.degrees),
            "edges_added": g.edges_added,
            "shards": sizes,
            "mean_fanout": round(sum(sizes) / len(layout), 6),
            **graph_facts(Path(graph)),
        },
        "run": {}
        if g.misses is None
        else {"neighbours_missed": g.misses.share, "leaders_missed": g.misses.leaders_share},
    }
    (Path(out) / "layout.json").write_text(json.dumps(facts))


def layout_facts(
    graph: Graph | Adjacency, order: NDArray[np.uint32], node: NodeFormat, threads: int = 1
) -> dict[str, float]:
    """Return the proxies of a layout, vertices of `graph` by slot, as key ``layout`` of the manifest has them."""
    n = len(order)
    fill = n * node.node_bytes / (node.n_pages(n) * PAGE_BYTES)
    per_page = max(node.nodes_per_page, 1)
    metrics = layout_metrics(graph.neighbours, graph.degrees, order, per_page, fill, threads)
    return {name: round(value, 6) for name, value in asdict(metrics).items()}


def degree_facts(degrees: NDArray[np.int32]) -> dict[str, Any]:
    """Return the facts of degrees, int32 (n,), that the manifest has under key ``graph``."""
    return {
        "mean_degree": round(float(degrees.mean()), 6),
        "least_degree": int(degrees.min()),
        "greatest_degree": int(degrees.max()),
    }


def order_bytes(
    order: str, n: int, nodes_per_page: int, max_degree: int, threads: int, *, divided: bool
) -> int:
    """Return the memory of the order called `order` of `n` vertices, its result and the inverse of that included.

    Parameters
    ----------
    divided : bool
        Whether an order that can be made in districts (`layout.portfolio.in_districts`) is: it is where vectors are at
        hand. No other order is divided.
    """
    own, districts = ORDER_BYTES[order], in_districts(order, n) if divided else None
    part = DEFAULT_PART_PAGES * nodes_per_page
    at_once = min(threads, -(-n // part))
    together = 0 if districts is None else districts.at_once(n) * districts.threads(n, threads)
    return (
        n * (own.a_vertex + own.an_edge * max_degree)
        + own.an_edge_of_a_part * min(n, part) * max_degree * at_once
        + own.a_vertex_at_once * together
    )


def order_threads(
    order: str,
    n: int,
    nodes_per_page: int,
    max_degree: int,
    threads: int,
    available: int,
    *,
    divided: bool,
) -> int:
    """Return the number of `threads`, at least one, with which the order takes at most `available` bytes.

    Other parameters are as of `order_bytes`.
    """
    for usable in range(threads, 1, -1):
        if order_bytes(order, n, nodes_per_page, max_degree, usable, divided=divided) <= available:
            return usable
    return 1


def metrics_bytes(nodes_per_page: int) -> int:
    """Return the memory of the proxies of a layout: dense graphs of 256 pages at a time."""
    return 256 * 32 * nodes_per_page**2
