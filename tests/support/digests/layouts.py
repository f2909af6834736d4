"""Page orders: of a build, and of an index that is laid out again."""

from __future__ import annotations

import numpy as np
from tests.support.digests.site import Site
from tests.support.digests.vectors import N, colours, names, rows
from tests.support.digests.written import Cases

import indexmill

ORDERS = (
    "star", "identity", "random", "breadth-first", "bnp", "bnf", "kmeans-pages", "gorder", "gorder-windowed", "margo",
    "graph-bisection", "restream", "agglomerative",
)  # fmt: skip


def orders(site: Site) -> Cases:
    """Builds with every page order."""
    for order in ORDERS:
        yield order, site.build(order, rows(), order=order, node_dtype="sq8" if order == "star" else "same")


def layouts(site: Site) -> Cases:
    """Every order of the portfolio, the best of them, an order from a file, and edges pruned for their pages."""
    index = site.build("index", rows(2000), order="random", R=24)
    for order in ORDERS:
        indexmill.lay_out(index, order, out=site.new(order), workers=site.workers)
        yield order, site.new(order)
    reverse = site.new("reverse.npy")
    np.save(reverse, np.arange(2000, dtype=np.uint32)[::-1])
    queries = rows(80, seed=5)
    for name, how in (
        ("file", {"order_file": reverse}),
        ("certified", {"order": "star", "certify": True}),
        ("low-effort", {"order": "gorder", "effort": "low"}),
        ("auto", {"effort": "low"}),
        ("auto-queries", {"effort": "low", "queries": queries}),
    ):
        indexmill.lay_out(index, out=site.new(name), workers=site.workers, **how)
        yield name, site.new(name)
    hasty = {
        "R": 8,
        "L": 8,
        "alpha": 1.0,
        "pq_bytes": 16,
        "builder": "vamana",
    }  # other edges are better for certain
    index = site.build("hasty", rows(2500, dim=48, apart=1.0), order="identity", **hasty)
    indexmill.lay_out(index, "agglomerative", prune_edges=True, out=site.new("pruned"), workers=site.workers)
    yield "pruned-edges", site.new("pruned")
    for name, vectors, parameters in (
        ("ip", rows(), {"metric": "ip"}),
        ("uint8", rows(dtype="uint8"), {}),
        ("sq8-nodes", rows(), {"node_dtype": "sq8", "ids": names(N), "metadata": colours(N)}),
    ):
        other = site.build(f"{name}-index", vectors, order="random", **parameters)
        indexmill.lay_out(other, "agglomerative", workers=site.workers)
        yield f"agglomerative-{name}", other
