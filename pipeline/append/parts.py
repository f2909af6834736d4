"""The small parts of an extended index: layout of the new vertices, entry vertices, navigation graph."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.vamana.build import list_capacity
from indexmill.builders.vamana.extend import extend_graph
from indexmill.builders.vamana.graph import Graph
from indexmill.builders.vamana.navigation import NAVIGATION_VAMANA, in_slot_order, navigation_size
from indexmill.formats.graph.entries import EntryVertices
from indexmill.formats.graph.navigation import Navigation
from indexmill.formats.pagefile.mapped import create_npy, scratch_array
from indexmill.layout.order import Adjacency, InputShape
from indexmill.layout.portfolio import ORDERS, USES_POINTS
from indexmill.pipeline.append.memory import tail_bytes
from indexmill.pipeline.append.scratch import GrowingGraph
from indexmill.pipeline.draws import NAVIGATION, generator
from indexmill.pipeline.generations.node_space import NodeSpace
from indexmill.pipeline.kinds.graph.order import order_bytes, order_threads

#: Centroids compared with the new vectors at a time: 64 MiB of distances a block.
_CENTROIDS_AT_ONCE = 1024
#: Vertices whose lists are looked at at a time.
_BLOCK = 65536


def tail_order(
    graph: GrowingGraph, order: str, nodes_per_page: int, max_degree: int, seed: int, threads: int
) -> NDArray[np.uint32]:
    """Lay out all vertices added since the last build or layout behind the built ones, which keep their slots.

    Star packing sees the graph that the tail induces: of a few new vertices alone there would be hardly a star,
    and a hundred small appends would leave a hundred stretches of pages without order. Where the last built page
    has room, the end of the order goes there, so that whole pages start on page bounds.

    Memory: lists of the tail, and `append.memory.tail_bytes`, scratch space of the order included. An order that takes
    more on one thread gives way to star packing; that does not depend on the budget or on `threads`, so neither do the
    bytes.

    Returns
    -------
    uint32 array, shape (n - built,)
        Vertices of the tail, counted from 0, in slot order.
    """
    built, size = graph.built, len(graph.vectors) - graph.built
    per_page = max(nodes_per_page, 1)
    allowed = tail_bytes(size, max_degree, order)
    shape = InputShape(size, max_degree, graph.vectors.shape[1], graph.vectors.dtype)
    need = order_bytes(order, size, per_page, max_degree, 1, divided=False)
    if need + ORDERS[order].scratch_bytes(shape) > allowed:
        order = "star"
    points = graph.vectors[built:] if order in USES_POINTS else None
    available = allowed - ORDERS[order].scratch_bytes(shape)
    usable = order_threads(order, size, per_page, max_degree, threads, available, divided=False)
    tail = ORDERS[order].fit(induced_lists(graph), points, per_page, seed, threads=usable)
    first = min(-built % per_page, size) if order != "identity" else 0
    return np.concatenate([tail[size - first :], tail[: size - first]])


def whole_order(
    graph: GrowingGraph, order: str, nodes_per_page: int, max_degree: int, seed: int, threads: int, scratch: Path,
    available: int,
) -> NDArray[np.uint32]:  # fmt: skip
    """Lay out all vertices, old and new, by the order called `order`.

    Memory: at most `available` bytes, or what the order takes on one thread, `order_bytes`; lists and what else it maps
    lie in directory `scratch`.

    Returns
    -------
    uint32 array, shape (n,)
        Vertex in each slot.
    """
    n = len(graph.vectors)
    lists = create_npy(scratch / "lists.npy", np.uint32, (n, max_degree))
    for first in range(0, n, _BLOCK):
        lists[first : first + _BLOCK] = graph.neighbours[first : first + _BLOCK, :max_degree]
    points = graph.vectors if order in USES_POINTS else None
    per_page = max(nodes_per_page, 1)
    usable = order_threads(order, n, per_page, max_degree, threads, available, divided=False)
    adjacency = Adjacency(lists, graph.degrees)
    return ORDERS[order].fit(
        adjacency, points, per_page, seed, threads=usable, scratch=partial(scratch_array, scratch)
    )


def induced_lists(graph: GrowingGraph) -> Adjacency:
    """Return the lists of the tail without built ones: uint32 (n - built, R) and int32 (n - built,), from 0."""
    built, size = graph.built, len(graph.vectors) - graph.built
    width = int(graph.degrees[built:].max())
    neighbours = np.zeros((size, max(width, 1)), np.uint32)
    degrees = np.zeros(size, np.int32)
    for first in range(0, size, _BLOCK):
        last = min(first + _BLOCK, size)
        lists = graph.neighbours[built + first : built + last, :width]
        inside = np.arange(width) < graph.degrees[built + first : built + last, None]
        inside &= lists >= built
        counts = inside.sum(axis=1)
        places = np.arange(neighbours.shape[1]) < counts[:, None]
        neighbours[first:last][places] = lists[inside] - np.uint32(built)
        degrees[first:last] = counts
    return Adjacency(neighbours, degrees)


def nearer_entries(
    graph: GrowingGraph, space: NodeSpace, entries: EntryVertices, threads: int
) -> EntryVertices:
    """Keep the centroids; a new vertex that is nearer to one than its vertex, exactly measured, takes its place."""
    new = space.as_given(graph.vectors[graph.present :])
    vertices = entries.vertices.copy()
    for first in range(0, len(vertices), _CENTROIDS_AT_ONCE):
        part = slice(first, first + _CENTROIDS_AT_ONCE)
        points = entries.centroids[part]
        nearest, distances = exact_neighbours(new, points, 1, threads)
        old = space.as_given(graph.vectors[vertices[part]]).astype(np.float64) - points
        nearer = distances[:, 0] < np.einsum("ij,ij->i", old, old).astype(np.float32)
        vertices[part][nearer] = nearest[nearer, 0] + graph.present
    return EntryVertices(entries.medoid, entries.centroids, vertices)


def grown_navigation(
    graph: GrowingGraph,
    navigation: Navigation,
    fraction: float,
    slots: NDArray[np.uint32],
    seed: int,
    threads: int,
) -> Navigation:
    """Insert sampled new vertices into the navigation graph, as many as a build of all vectors would have more.

    Parameters
    ----------
    fraction : float
        Share of the vectors that a build samples.
    slots : uint32 array, shape (n,)
        Slot of every vertex of `graph`.
    """
    n, old = len(graph.vectors), len(navigation.slots)
    wanted = min(max(navigation_size(fraction, n) - old, 0), n - graph.present)
    parameters = replace(NAVIGATION_VAMANA, max_degree=navigation.max_degree)
    rng = generator(seed, NAVIGATION, graph.present)
    sampled = graph.present + np.sort(rng.choice(n - graph.present, wanted, replace=False))
    vertices = np.concatenate([navigation.slots, sampled])  # an old vertex is its slot
    neighbours = np.zeros((len(vertices), list_capacity(parameters.max_degree)), np.uint32)
    degrees = np.zeros(len(vertices), np.int32)
    degrees[:old] = np.diff(navigation.offsets)
    places = np.arange(neighbours.shape[1]) < degrees[:, None]
    neighbours[places] = navigation.neighbours
    vectors = graph.vectors[vertices]
    if wanted:
        extend_graph(
            vectors, neighbours, degrees, old, navigation.entry, parameters, seed=seed, threads=threads
        )
    lists = np.ascontiguousarray(neighbours[:, : parameters.max_degree])
    grown = in_slot_order(Graph(lists, degrees, navigation.entry), slots[vertices])
    return replace(grown, max_degree=parameters.max_degree)
