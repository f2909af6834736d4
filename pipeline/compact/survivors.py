"""What remains of an index: its vertices under new numbers, their repaired lists, and where searches start."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.vamana.entries import entry_vertices
from indexmill.builders.vamana.graph import Graph
from indexmill.builders.vamana.navigation import build_navigation, navigation_size
from indexmill.formats.graph.entries import EntryVertices
from indexmill.pipeline.draws import NAVIGATION, generator
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.relayout.unpacked import Numbering


def numbered(vector_ids: NDArray[np.uint32], deleted: NDArray[np.uint32]) -> Numbering:
    """Number the vertices: those that remain first, then the deleted ones, both in the order of their vector ids.

    So the new vector ids are the positions in an input without the deleted vectors.

    Parameters
    ----------
    vector_ids : uint32 array, shape (n,)
        By slot.
    deleted : uint32 array, shape (d,)
        Slots.
    """
    n, living = len(vector_ids), len(vector_ids) - len(deleted)
    gone = np.zeros(n, np.bool_)
    gone[vector_ids[deleted]] = True
    numbers = np.empty(n, np.uint32)
    numbers[~gone] = np.arange(living, dtype=np.uint32)
    numbers[gone] = np.arange(living, n, dtype=np.uint32)
    return Numbering(numbers[vector_ids], living)


def remaining_medoid(index: OpenedIndex, numbering: Numbering, points: NDArray[Any], threads: int) -> int:
    """Return the vertex where searches start: the medoid of the index, or the vertex nearest to it if it is deleted.

    Parameters
    ----------
    points : uint8 or float32 array, shape (m, dim)
        Compared vectors of the vertices that remain.
    """
    slot = index.entries.medoid
    medoid = int(numbering.vertices[slot])
    if medoid < numbering.living:
        return medoid
    middle = index.compared(slot, index.graph.read_nodes(slot, 1))
    return int(exact_neighbours(points, middle, 1, threads)[0][0, 0])


def renewed_entries(
    index: OpenedIndex, numbering: Numbering, points: NDArray[Any], graph: Graph, threads: int
) -> EntryVertices:
    """Keep the centroids; where the vertex of one is deleted, a search of the repaired `graph` finds another."""
    vertices, centroids = numbering.vertices[index.entries.vertices], index.entries.centroids
    gone = np.flatnonzero(vertices >= numbering.living)
    if len(gone):
        wanted = centroids[gone]
        if index.space.node.dtype == "int8":  # compared rows are shifted into uint8
            wanted = wanted + np.float32(0x80)
        vertices[gone] = entry_vertices(points, graph, wanted, threads)
    return EntryVertices(graph.entry, centroids, vertices)


def renewed_navigation(
    index: OpenedIndex, numbering: Numbering, points: NDArray[Any], threads: int
) -> tuple[NDArray[np.uint32], Graph] | None:
    """Build the navigation graph anew, of the sampled vertices that remain and as many others as a build would have.

    Returns
    -------
    sample : uint32 array, shape (s,), ascending
    graph : Graph
        Its vertices are rows of `sample`.
    """
    if index.navigation is None:
        return None
    p, living = index.parameters, numbering.living
    sample = numbering.vertices[index.navigation.slots]
    sample = np.sort(sample[sample < living])
    wanted = max(navigation_size(p.navigation, living), 1)
    if len(sample) < wanted:
        others = np.ones(living, np.bool_)
        others[sample] = False
        drawn = generator(p.seed, NAVIGATION, living).choice(
            np.flatnonzero(others), wanted - len(sample), replace=False
        )
        sample = np.sort(np.concatenate([sample, drawn])).astype(np.uint32)
    return sample, build_navigation(points[sample], seed=p.seed, threads=threads)
