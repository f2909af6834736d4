"""Small graphs for the tests of layouts."""

from __future__ import annotations

import numpy as np

from indexmill.formats.graph.nodes import NodeFormat
from indexmill.layout.districts.order import InDistricts
from indexmill.layout.order import Adjacency, RandomOrder
from indexmill.pipeline.relayout.explained.placement import Placement


class SmallDistricts(InDistricts):
    """Districts of so few vertices that the graphs of tests have several."""

    vertices = 300


def random_graph(n: int, r: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    neighbours = np.zeros((n, r), np.uint32)
    degrees = np.zeros(n, np.int32)
    for v in range(n):
        others = rng.permutation(np.delete(np.arange(n), v))[: rng.integers(0, r + 1)]
        neighbours[v, : len(others)] = others
        degrees[v] = len(others)
    return neighbours, degrees


def clusters(n_clusters: int, size: int) -> tuple[Adjacency, np.ndarray, np.ndarray]:
    """Cliques of near points far from each other; with the cluster of each vertex."""
    rng = np.random.default_rng(0)
    of = rng.permutation(np.repeat(np.arange(n_clusters), size))
    points = (of[:, None] * 20 + rng.integers(0, 3, (len(of), 4))).astype(np.uint8)
    mates = np.array([[u for u in np.flatnonzero(of == c) if u != v] for v, c in enumerate(of)], np.uint32)
    return Adjacency(mates, np.full(len(of), size - 1, np.int32)), points, of


def as_lists(neighbours: np.ndarray, degrees: np.ndarray) -> list[list[int]]:
    return [row[:d].tolist() for row, d in zip(neighbours, degrees, strict=True)]


def no_graph(n: int) -> Adjacency:
    return Adjacency(np.zeros((n, 1), np.uint32), np.zeros(n, np.int32))


def random_order(n: int, seed: int) -> np.ndarray:
    return RandomOrder().fit(no_graph(n), None, 4, seed)


def in_nodes(node: NodeFormat, order: np.ndarray) -> Placement:
    """The format that there is: the nodes of `order` page by page."""
    shared, slots = node.nodes_per_group, np.argsort(order)
    unit = slots // shared
    mates = np.minimum(unit[:, None] * shared + np.arange(shared), len(order) - 1)
    return Placement(unit, order[mates].astype(np.int64), unit, node.pages_per_node, node.pages_per_node)
