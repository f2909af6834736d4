"""Stage *order*: a slot for every vertex, and the proxies of that layout."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from indexmill.formats.frame import PAGE_BYTES
from indexmill.formats.nodes import NodeFormat
from indexmill.layout.metrics import layout_metrics
from indexmill.layout.order import identity_order, random_order
from indexmill.layout.star import star_order
from indexmill.pipeline.graph import load_graph

VERSION = 1


def order_task(graph: str, order: str, node: NodeFormat, seed: int, out: str, threads: int) -> None:
    """Write ``order.npy`` and ``layout.json``.

    Parameters
    ----------
    order : {"star", "identity", "random"}
    node : NodeFormat
        Decides how many nodes share a page.
    """
    g = load_graph(Path(graph))
    n = len(g.degrees)
    per_page = max(node.nodes_per_page, 1)
    if order == "star":
        slots = star_order(g.neighbours, g.degrees, per_page)
    elif order == "random":
        slots = random_order(n, seed)
    else:
        slots = identity_order(n)
    fill = n * node.node_bytes / (node.n_pages(n) * PAGE_BYTES)
    metrics = layout_metrics(g.neighbours, g.degrees, slots, per_page, fill)
    np.save(Path(out) / "order.npy", slots)
    rounded = {name: round(value, 6) for name, value in asdict(metrics).items()}
    (Path(out) / "layout.json").write_text(json.dumps({"order": order, **rounded}))
