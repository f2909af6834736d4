"""Metrics of an order: overlap ratio, in-page edges, page compactness, fill.

These are proxies: a layout is judged by the page reads of real queries at equal recall.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.kernel import kernel
from indexmill.layout.order import invert
from indexmill.reader.threads import run_blocks

#: Most pages whose compactness is computed; the mean of 4,096 has a standard error below 0.01.
COMPACTNESS_PAGES = 4096
#: Pages whose adjacency is in memory at a time.
_PAGES_AT_ONCE = 256
#: Vertices whose edges a thread counts at a time.
_BLOCK = 1 << 16


@dataclass(frozen=True)
class LayoutMetrics:
    """Metrics of one order.

    Attributes
    ----------
    overlap_ratio : float
        OR(G), mean over vertices of |page(v) n N(v)| / (|page(v)| - 1); 0 when a page holds one node.
    in_page_edges : float
        Share of all edges whose two ends share a page.
    page_compactness : float
        Mean over full pages of lambda_2 / diameter of the page's induced graph, edges taken as undirected
        (DiskANN++ Eq. 13); 0 for a page that is not connected. If there are more than `COMPACTNESS_PAGES`, that number
        is sampled at equal distances.
    compactness_error : float
        Standard error of that mean, as if the pages were sampled at random; 0 if all pages were measured.
    fill : float
        Bytes of nodes divided by bytes of pages.
    """

    overlap_ratio: float
    in_page_edges: float
    page_compactness: float
    compactness_error: float
    fill: float


def layout_metrics(
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    order: NDArray[np.uint32],
    nodes_per_page: int,
    fill: float,
    threads: int = 1,
) -> LayoutMetrics:
    """Measure `order`, uint32 (n,), of a graph with lists uint32 (n, R) and degrees int32 (n,), on threads."""
    slots = invert(order)
    b = max(nodes_per_page, 1)
    if b == 1:
        return LayoutMetrics(0.0, 0.0, 0.0, 0.0, fill)
    overlap, inside, all_edges = _mates((neighbours, degrees), slots, b, None, threads)
    proxies = overlap, inside / max(all_edges, 1)
    pages = len(order) // b
    if pages == 0:
        return LayoutMetrics(*proxies, 0.0, 0.0, fill)
    sample = np.unique(np.linspace(0, pages - 1, min(pages, COMPACTNESS_PAGES)).astype(np.int64))
    parts = [
        page_compactness(_page_adjacency(neighbours, degrees, order, slots, pages_at_once, b))
        for pages_at_once in np.array_split(sample, -(-len(sample) // _PAGES_AT_ONCE))
    ]
    compactness = np.concatenate(parts)
    return LayoutMetrics(*proxies, float(compactness.mean()), _standard_error(compactness, pages), fill)


def in_page_share(
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    order: NDArray[np.uint32],
    nodes_per_page: int,
    use: NDArray[Any],
) -> float:
    """Return the share of in-page edges among the edges that searches follow.

    Parameters
    ----------
    neighbours, degrees : uint32 array (n, R) and int32 array (n,)
    order : uint32 array, shape (n,)
    nodes_per_page : int
    use : integer or float array, shape (n,)
        Number of expansions of each vertex, from a trace: its edges were followed as often.

    Returns
    -------
    float
        0 if no edge was followed.

    Raises
    ------
    InputError
        If `use` has another shape or type, or a value that is negative or not finite.
    """
    n = len(order)
    if use.shape != (n,) or use.dtype.kind not in "iuf":
        raise InputError(
            f"use: expected {n} weights, got {use.dtype} of shape {use.shape}; count the expansions of each vertex"
        )
    wrong = np.flatnonzero(~((use >= 0) & (use < np.inf)))
    if len(wrong):
        raise InputError(
            f"use: vertex {wrong[0]}: expected a weight of 0 or more, got {use[wrong[0]]}; count anew"
        )
    _, inside, followed = _mates(
        (neighbours, degrees), invert(order), max(nodes_per_page, 1), use.astype(np.float64)
    )
    return float(inside / followed) if followed > 0 else 0.0


def _standard_error(sample: NDArray[np.float64], population: int) -> float:
    """Return the standard error of the mean of a sample without replacement."""
    if len(sample) == population:
        return 0.0
    return float(sample.std(ddof=1) * np.sqrt((1 - len(sample) / population) / len(sample)))


def _mates(
    graph: tuple[NDArray[np.uint32], NDArray[np.int32]], slots: NDArray[np.uint32], b: int,
    use: NDArray[np.float64] | None, threads: int = 1,
) -> tuple[float, float, float]:  # fmt: skip
    """Return the overlap ratio, and the weights of in-page edges and of all edges: an edge weighs as its source."""
    n = len(slots)
    counts = run_blocks(lambda first, last: _count(*graph, slots, b, use, first, last), n, _BLOCK, threads)
    overlap, last_overlap, inside, total = (sum(column) for column in zip(*counts, strict=True))
    return (overlap / max(b - 1, 1) + last_overlap) / n, inside, total


@kernel
def _count(
    neighbours: Any, degrees: Any, slots: Any, b: int, use: Any, first: int, last: int
) -> Any:  # pragma: no cover - compiled
    """Return four sums over a block of vertices.

    These are the page mates that are neighbours, on full pages; their share of all mates, on a last page that is not
    full; and the weights of in-page edges and of all edges.
    """
    n = slots.size
    full_pages = n // b
    mates_of_all, last_overlap, inside, total = 0.0, 0.0, 0.0, 0.0
    for v in range(first, last):
        page = np.int64(slots[v]) // b
        begin, size = page * b, b if page < full_pages else n - full_pages * b
        weight = 1.0 if use is None else use[v]
        total += weight * degrees[v]
        if size < 2:
            continue
        mates: Any = 0
        for j in range(degrees[v]):
            mates += 0 <= np.int64(slots[neighbours[v, j]]) - begin < size  # a division an edge takes longer
        if size == b:
            mates_of_all += mates
        else:
            last_overlap += mates / (size - 1)
        inside += weight * mates
    return mates_of_all, last_overlap, inside, total


@kernel
def _page_adjacency(
    neighbours: Any, degrees: Any, order: Any, slots: Any, pages: Any, b: int
) -> Any:  # pragma: no cover - compiled
    """Return the undirected adjacency of each page's vertices, bool (n_pages, b, b)."""
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
