"""Distances and lengths of logged queries, which warn of a log that was meant for another index.

Queries meant for another metric, scaled in another way, or of another model lie far from all vectors, or have other
lengths. Their searches then find mostly the same few vectors, as if the queries repeated each other. Queries of another
modality lie far from the vectors, too, and belong to the index all the same (docs/guides/build.md): what is told apart
here lies still farther.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common.judge import distances_to
from indexmill.pipeline.relayout.tuning import K, as_compared, drawn_queries

if TYPE_CHECKING:
    from indexmill.reader.index import Index

#: Candidates of a search whose nearest vertices count.
LIST_SIZE = 128
#: Queries of the log, and vectors of the index, that are compared, at most.
_COMPARED = 512
#: Share of the vectors that lie within the usual distance of their own tenth neighbour. A vector that has copies lies
#: at none: what nine in ten do holds where half of the vectors have some.
_USUAL = 0.9
#: Queries of a log lie far if half of them lie this many times as far as is usual, and have another length if theirs
#: and that of the vectors nearest to them differ by this factor. Queries of sift1m, text40k and embed768 lie 0.90 to
#: 0.91 times as far as is usual, those of another modality up to 1.65 times (sets of `jobs/bench/queries_apart`), and
#: normalised queries of raw vectors hardly farther: 1.59 times on sift1m. Lengths tell these.
FAR = 4


def nearness(
    index: OpenedIndex, view: Index, points: NDArray[Any], queries: NDArray[Any], threads: int
) -> dict[str, float]:
    """Return distances and lengths of queries and of vectors, for the manifest (docs/formats/manifest.md).

    Searches look at edges and not at pages, so that the layout does not change what they find.

    Parameters
    ----------
    view : Index
        `index`, opened for searches.
    points : array, shape (n, stored dim)
        Its vectors as they are compared, by vector id.
    queries : array, shape (q, dim)
        In the type the index takes.
    """
    chosen = queries[np.linspace(0, len(queries) - 1, min(_COMPARED, len(queries))).astype(np.int64)]
    own, drawn, vectors = drawn_queries(index, points, _COMPARED)
    found, near = (_found(view, some, threads) for some in (chosen, vectors))
    near = np.where(near == own[:, None], -1, near)
    asked, of_index = (_directed(index, some, points) for some in (as_compared(index, chosen), drawn))
    facts = {
        "query_distance": float(np.median(_tenth(points, found, asked))),
        "vector_distance": float(np.quantile(_tenth(points, near, of_index), _USUAL)),
    }
    if index.graph.metric == "l2":
        nearest = index.space.as_given(points[found[:, 0]])
        facts |= {"query_length": _length(chosen), "nearest_length": _length(nearest)}
    return {name: float(f"{value:.4g}") for name, value in facts.items()}


def warning_of(facts: Mapping[str, float], metric: str) -> str | None:
    """Return in words why queries with the `facts` of `nearness` look as if they were meant for another index."""
    told = []
    far, usual = facts["query_distance"], facts["vector_distance"]
    if far > FAR * usual > 0:
        told.append(
            f"half of them lie {far:.4g} or farther from their tenth nearest vector, where at most {FAR * usual:.4g} "
            f"was expected: {FAR} times the {usual:.4g} within which nine in ten vectors of the index have theirs"
        )
    lengths = [facts[name] for name in ("query_length", "nearest_length") if name in facts]
    if lengths and max(lengths) > FAR * min(lengths):
        told.append(
            f"their length is {lengths[0]:.4g}, and that of the vectors nearest to them {lengths[1]:.4g}, where a "
            f"factor of at most {FAR} was expected"
        )
    if not told:
        return None
    return (
        f"the queries do not look like queries of this index: {'; '.join(told)}. Check that they were meant for its "
        f"metric ({metric}), were normalised (or not) as its vectors were, and come from the same model"
    )


def _found(view: Index, queries: NDArray[Any], threads: int) -> NDArray[np.int64]:
    """Return the vector ids of eleven vertices near each of `queries`, nearest first, of which one may be its own."""
    size = min(LIST_SIZE, len(view))
    found = view.search(queries, min(K + 1, size), L=size, policy="beam", threads=threads, deterministic=True)
    return found.vector_ids


def _directed(index: OpenedIndex, queries: NDArray[Any], points: NDArray[Any]) -> NDArray[np.float32]:
    """Return compared queries, by inner product as long as the longest vector: their lengths mean nothing there."""
    compared = queries.astype(np.float32)
    if index.graph.metric != "ip":
        return compared
    lengths = np.linalg.norm(compared, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = compared * (
        np.linalg.norm(points[0]) / np.maximum(lengths, np.finfo(np.float32).tiny)
    )
    return scaled


def _tenth(points: NDArray[Any], ids: NDArray[np.int64], queries: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the distance of each query to the tenth nearest of `ids` (-1: none), or to the last if there are fewer."""
    ascending = np.sort(distances_to(points, ids, queries), axis=1)  # NaN last
    farthest: NDArray[np.float64] = np.fmax.reduce(np.sqrt(ascending[:, :K]), axis=1)
    return np.nan_to_num(farthest)


def _length(rows: NDArray[Any]) -> float:
    """Return the median length of `rows`."""
    return float(np.median(np.linalg.norm(rows.astype(np.float64), axis=1)))
