"""What an order is worth on paper: overlap ratio, page compactness, fill.

Proxies only: the judge of a layout is the page reads of real queries at equal recall.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.layout.order import invert

#: Pages whose compactness is computed; the mean of 4,096 has a standard error below 0.01.
COMPACTNESS_PAGES = 4096
#: Pages whose adjacency is held at a time.
_PAGES_AT_ONCE = 256


@dataclass(frozen=True)
class LayoutMetrics:
    """Proxies of one order.

    Attributes
    ----------
    overlap_ratio : float
        OR(G), mean over vertices of |page(v) n N(v)| / (|page(v)| - 1); 0 when a page holds one node.
    page_compactness : float
        Mean over sampled full pages of lambda_2 / diameter of the page's induced graph, edges taken as
        undirected (DiskANN++ Eq. 13); 0 for a page that is not connected.
    fill : float
        Bytes of nodes over bytes of pages.
    """

    overlap_ratio: float
    page_compactness: float
    fill: float


def layout_metrics(
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    order: NDArray[np.uint32],
    nodes_per_page: int,
    fill: float,
) -> LayoutMetrics:
    """Measure `order`, uint32 (n,), of a graph, uint32 (n, R) and int32 (n,), on pages of `nodes_per_page`."""
    slots = invert(order)
    b = max(nodes_per_page, 1)
    overlap = float(_overlap(neighbours, degrees, slots, b)) if b > 1 else 0.0
    pages = len(order) // b
    if pages == 0 or b == 1:
        return LayoutMetrics(overlap, 0.0, fill)
    sample = np.unique(np.linspace(0, pages - 1, min(pages, COMPACTNESS_PAGES)).astype(np.int64))
    compactness = [
        page_compactness(_page_adjacency(neighbours, degrees, order, slots, pages_at_once, b))
        for pages_at_once in np.array_split(sample, -(-len(sample) // _PAGES_AT_ONCE))
    ]
    return LayoutMetrics(overlap, float(np.concatenate(compactness).mean()), fill)


@njit(nogil=True, cache=True)
def _overlap(neighbours: Any, degrees: Any, slots: Any, b: int) -> Any:  # pragma: no cover - compiled
    n = neighbours.shape[0]
    last_page = (n - 1) // b
    total = 0.0
    for v in range(n):
        page = np.int64(slots[v]) // b
        size = b if page < last_page else n - last_page * b
        if size < 2:
            continue
        mates = 0
        for j in range(degrees[v]):
            mates += np.int64(slots[neighbours[v, j]]) // b == page
        total += mates / (size - 1)
    return total / n


@njit(nogil=True, cache=True)
def _page_adjacency(
    neighbours: Any, degrees: Any, order: Any, slots: Any, pages: Any, b: int
) -> Any:  # pragma: no cover - compiled
    """Undirected adjacency of each page's vertices, bool (n_pages, b, b)."""
    out = np.zeros((pages.size, b, b), np.bool_)
    for p in range(pages.size):
        for i in range(b):
            v = order[pages[p] * b + i]
            for j in range(degrees[v]):
                slot = np.int64(slots[neighbours[v, j]])
                if slot // b == pages[p]:
                    out[p, i, slot % b] = True
                    out[p, slot % b, i] = True
    return out


def page_compactness(adjacency: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return lambda_2 / diameter of each graph.

    Parameters
    ----------
    adjacency : bool array, shape (n_graphs, b, b)
        Symmetric, without self loops.

    Returns
    -------
    float64 array, shape (n_graphs,)
        0 for graphs that are not connected.
    """
    b = adjacency.shape[1]
    edges = adjacency.astype(np.float64)
    laplacian = np.eye(b) * edges.sum(axis=2)[:, :, None] - edges
    lambda_2 = np.linalg.eigvalsh(laplacian)[:, 1]
    reach = np.broadcast_to(np.eye(b, dtype=bool), adjacency.shape)
    diameter = np.zeros(len(adjacency))
    for steps in range(1, b):
        wider = reach | (reach.astype(np.float64) @ edges > 0)
        if (wider == reach).all():
            break
        diameter[(wider & ~reach).any(axis=(1, 2))] = steps
        reach = wider
    connected = reach.all(axis=(1, 2))
    return np.where(connected, np.maximum(lambda_2, 0) / np.maximum(diameter, 1), 0.0)
