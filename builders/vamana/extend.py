"""Insertion of new vertices into a finished graph.

New vertices are inserted as in a build (`builders.vamana.insert`), in random order, by searches from the graph's entry.
Only changed lists are pruned back to R and sorted. One walk over all edges then finds vertices that the entry no longer
reaches. No distance between two old vertices is computed except in a prune: the number of distances is proportional to
the new vertices, and only the walk to the whole graph.

A new vertex may already have neighbours, as in a merge of two graphs: they take part in its prune, and searches follow
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.streams import APPENDED_ORDER
from indexmill.builders.vamana.build import prune_long_lists, sort_lists
from indexmill.builders.vamana.connect import connect_unreachable
from indexmill.builders.vamana.graph import Growing, VamanaParameters
from indexmill.builders.vamana.insert import insert_vertices


@dataclass(frozen=True)
class Extension:
    """Summary of an extension.

    Attributes
    ----------
    distances : int
        Distances computed by the searches for the new vertices.
    changed : int
        Vertices whose lists changed, including the new ones.
    linked : int
        Edges added to vertices that the entry could not reach.
    """

    distances: int
    changed: int
    linked: int


def extend_graph(
    vectors: NDArray[Any],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    present: int,
    entry: int,
    parameters: VamanaParameters,
    *,
    seed: int,
    threads: int = 1,
    advance: Callable[[int], None] = lambda vertices: None,
) -> Extension:
    """Insert the vertices from `present` on into the graph of those before, in place.

    Parameters
    ----------
    vectors : uint8 or float32 array, shape (n_vertices, dim), C-contiguous
    neighbours : uint32 array, shape (n_vertices, `builders.vamana.build.list_capacity`)
        Entries beyond a vertex's degree are undefined, before and after.
    degrees : int32 array, shape (n_vertices,)
        Below the lists' capacity; 0 for new vertices, or the number of their neighbours.
    present : int
        Vertices of the finished graph, at least 1; each can be reached from `entry`.
    entry : int
        Below `present`.

    Returns
    -------
    Extension
        Like the graph, the same for every number of threads.
    """
    n = len(vectors)
    changed = np.zeros(n, np.bool_)
    rng = np.random.default_rng([seed, APPENDED_ORDER, present])
    order = (present + rng.permutation(n - present)).astype(np.uint32)
    growing = Growing(vectors, neighbours, degrees)
    distances = insert_vertices(
        *growing, order, entry, parameters,
        present=present, changed=changed, threads=threads, advance=advance,
    )  # fmt: skip
    prune_long_lists(growing, parameters, threads)
    sort_lists(*growing, threads, np.flatnonzero(changed))
    list_size, max_degree = parameters.build_list_size, parameters.max_degree
    linked = connect_unreachable(*growing, entry, list_size, max_degree, changed)
    return Extension(distances, int(changed.sum()), linked)
