"""New vertices for a finished graph, without a distance between two vertices that were there before.

The new vertices are inserted as Vamana inserts them (`builders.vamana.insert`), in random order, searching from the
graph's entry. Only lists that changed are pruned back to R and sorted; one walk over all edges then finds what
the entry no longer reaches. So distances are proportional to the new vertices, and the walk to the whole.

A new vertex may bring neighbours, as in a merge of two graphs: they take part in its prune, and the search
walks through them as soon as it gets there.
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
from indexmill.builders.vamana.graph import VamanaParameters
from indexmill.builders.vamana.insert import insert_vertices


@dataclass(frozen=True)
class Extension:
    """What an extension did.

    Attributes
    ----------
    distances : int
        Distances that the searches of the new vertices computed.
    changed : int
        Vertices whose lists changed, the new ones among them.
    linked : int
        Edges added because the entry could not reach a vertex.
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
    """Insert the vertices from `present` on into the graph of those before, changing it in place.

    Parameters
    ----------
    vectors : uint8 or float32 array, shape (n_vertices, dim), C-contiguous
    neighbours : uint32 array, shape (n_vertices, `builders.vamana.build.list_capacity`)
        What stands beyond a vertex's degree means nothing, before and after.
    degrees : int32 array, shape (n_vertices,)
        Below the lists' capacity; those of new vertices are 0 or count the neighbours they bring.
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
    distances = insert_vertices(
        vectors,
        neighbours,
        degrees,
        order,
        entry,
        parameters,
        present=present,
        changed=changed,
        threads=threads,
        advance=advance,
    )
    prune_long_lists(vectors, neighbours, degrees, parameters, threads)
    sort_lists(vectors, neighbours, degrees, threads, np.flatnonzero(changed))
    linked = connect_unreachable(
        vectors,
        neighbours,
        degrees,
        entry,
        parameters.build_list_size,
        parameters.max_degree,
        changed,
    )
    rows = np.flatnonzero(changed)
    return Extension(distances, len(rows), linked)
