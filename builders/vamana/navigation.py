"""The navigation graph: a small Vamana graph over a sample, searched in memory for good entry vertices.

Starling and PipeANN keep such a graph beside a graph on storage. A search in memory ends near the query, and the search
on storage starts there. Deviation: their graph holds the sample's vectors; ours is searched by the PQ codes, which are
in memory anyway, so its distances enter the candidate list directly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.streams import ASKED, NAVIGATION_SAMPLE
from indexmill.builders.vamana.build import build_vamana
from indexmill.builders.vamana.entries import medoid
from indexmill.builders.vamana.graph import Graph, VamanaParameters
from indexmill.formats.graph.navigation import Navigation

#: R is the main graph's default, 128 bytes a sampled vertex. L is twice R; more gains nothing on a small sample.
NAVIGATION_VAMANA = VamanaParameters(max_degree=32, build_list_size=64, alpha=1.2)
#: Least sampled vertices, if there are as many: fewer would be worse than the centroids.
LEAST_SAMPLE = 1024


def navigation_size(fraction: float, n_vertices: int) -> int:
    """Return the size of the sample: `fraction` of the vertices, at least 1,024 if possible; 0 if `fraction` is 0."""
    return max(round(fraction * n_vertices), min(n_vertices, LEAST_SAMPLE)) if fraction > 0 else 0


def navigation_sample(fraction: float, n_vertices: int, seed: int) -> NDArray[np.uint32]:
    """Draw `navigation_size` vertices without replacement: uint32, ascending."""
    size = navigation_size(fraction, n_vertices)
    chosen = np.random.default_rng([seed, NAVIGATION_SAMPLE]).choice(n_vertices, size, replace=False)
    return np.sort(chosen).astype(np.uint32)


def with_asked(sample: NDArray[np.uint32], nearest: NDArray[np.uint32], seed: int) -> NDArray[np.uint32]:
    """Return as many vertices as `sample`, ascending: half of them, where there are so many, the nearest to queries.

    Parameters
    ----------
    sample : uint32 array, shape (m,)
        As `navigation_sample` draws it, whose vertices fill the other places.
    nearest : uint32 array, shape (n_queries,)
        The vertex nearest to each query; queries are drawn.
    seed : int
    """
    random = np.random.default_rng([seed, ASKED])
    drawn = np.unique(random.permutation(nearest)[: len(sample) // 2])
    others = sample[~np.isin(sample, drawn)]
    return np.sort(np.concatenate([drawn, random.permutation(others)[: len(sample) - len(drawn)]]))


def build_navigation(vectors: NDArray[Any], *, seed: int, threads: int = 1) -> Graph:
    """Build the graph of a sample, with its medoid as the entry.

    Parameters
    ----------
    vectors : float32, float16, uint8 or int8 array, shape (n_sample, dim), C-contiguous

    Returns
    -------
    Graph
        Its vertices are rows of `vectors`; the same for every number of threads.
    """
    entry = medoid(vectors, vectors.mean(axis=0, dtype=np.float64))
    return build_vamana(vectors, entry, NAVIGATION_VAMANA, seed=seed, threads=threads)


def in_slot_order(graph: Graph, slots: NDArray[np.uint32]) -> Navigation:
    """Renumber the vertices of `graph` by slot, so that a search in memory has the locality of the pages.

    Parameters
    ----------
    graph : Graph
        With n_sample vertices.
    slots : uint32 array, shape (n_sample,)
        Slot of each vertex, all distinct.
    """
    order = np.argsort(slots)
    rank = np.empty(len(slots), np.uint32)
    rank[order] = np.arange(len(slots), dtype=np.uint32)
    degrees = graph.degrees[order]
    inside = np.arange(graph.neighbours.shape[1]) < degrees[:, None]
    return Navigation(
        slots[order],
        np.concatenate([[0], np.cumsum(degrees)]).astype(np.uint32),
        rank[graph.neighbours[order][inside]],
        int(rank[graph.entry]),
        NAVIGATION_VAMANA.max_degree,
    )
