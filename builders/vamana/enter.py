"""Edges that enter the list of a vertex whatever its prune would say: the list gives places to them."""

from __future__ import annotations

from typing import Any

from indexmill.builders.vamana.prune import PruneRule, robust_prune, sort_candidates
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances


@kernel
def enter_edges(
    vectors: Any, v: int, ids: Any, n: int, edges: Any, n_edges: int, rule: PruneRule, distances: Any, kept: Any,
    neighbours: Any, degrees: Any,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Make the list of `v` its first `n` neighbours in `ids` and all `edges`, in ascending order of (distance, id).

    Where places are short, robust prune decides which of the `n` neighbours stay.

    Parameters
    ----------
    ids, edges : uint32 arrays
        Neighbours that may be dropped, in ascending order of (distance, id), with room for the whole list; and the
        `n_edges` neighbours that enter, at most R. The two are disjoint.
    distances, kept : float32 and uint32 arrays, shape (at least R,)
        Scratch.
    neighbours, degrees : uint32 array (n_vertices, R) and int32 array (n_vertices,)
        Row `v` is written.
    """
    most = neighbours.shape[1]
    if n > most - n_edges:
        squared_distances(vectors, v, vectors, ids, n, distances)
        n = robust_prune(vectors, ids, distances, n, most - n_edges, rule, kept)
        ids[:n] = kept[:n]
    ids[n : n + n_edges] = edges[:n_edges]
    n += n_edges
    squared_distances(vectors, v, vectors, ids, n, distances)
    n = sort_candidates(ids, distances, n)
    neighbours[v, :n] = ids[:n]
    neighbours[v, n:] = 0
    degrees[v] = n
