"""What the tests of exports share: small indexes, and our own search over the graph that was exported."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from indexmill.builders.distances import comparable
from indexmill.builders.vamana.greedy import search_rows
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.ivf.centroids import Centroids

K = 10


def id_map(folder: Path) -> Any:
    return pq.read_table(folder / "ids.parquet")


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "export.json").read_text())
    return found


def stored_graph(index: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return vectors, lists, degrees and medoid of an index, by slot."""
    with IndexFiles(index) as files:
        nodes = files.graph.read_all()
        return nodes.vectors, nodes.neighbours, nodes.degrees.astype(np.int32), files.entries.medoid


def our_search(index: Path, queries: np.ndarray, list_size: int, k: int = K) -> np.ndarray:
    """Slots that a greedy search from the medoid returns, (q, k)."""
    return our_search_counted(index, queries, list_size, k)[0]


def our_search_counted(
    index: Path, queries: np.ndarray, list_size: int, k: int = K
) -> tuple[np.ndarray, int]:
    """Slots that a greedy search from the medoid returns, (q, k), and distances that it computes."""
    vectors, neighbours, degrees, medoid = stored_graph(index)
    found = np.full((len(queries), k), 2**32 - 1, np.uint32)
    rows, asked = comparable(vectors), comparable(queries.astype(vectors.dtype))
    computed = search_rows(asked, rows, neighbours, degrees, medoid, list_size, found)
    return found.astype(np.int64), int(computed)


def distances(index: Path, queries: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Squared distances of `slots`, (q, k), to their queries."""
    vectors = stored_graph(index)[0].astype(np.float64)
    return ((vectors[slots] - queries[:, None].astype(np.float64)) ** 2).sum(axis=2)


def assert_same_but_for_ties(index: Path, queries: np.ndarray, theirs: np.ndarray, ours: np.ndarray) -> None:
    """Every list holds the same ids in the same order, or others at exactly the same distances."""
    assert (distances(index, queries, theirs) == distances(index, queries, ours)).all()
    tied = theirs != ours
    assert tied.mean() < 0.02
    for mine, other in zip(ours, theirs, strict=True):
        assert len(set(other.tolist())) == len(other)
        assert len(set(mine.tolist()) ^ set(other.tolist())) <= 2


def whole_points(n: int, dim: int = 16, seed: int = 0) -> np.ndarray:
    """Clustered vectors of whole numbers: every distance is exact in float32, and ties are rare."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).integers(200, 800, (12, dim))
    rows = centres[rng.integers(12, size=n)] + rng.normal(size=(n, dim)) * 90
    return np.clip(np.rint(rows), 0, 1000).astype(np.float32)


def permuted_lists(index: Path, out: Path) -> Path:
    """Write a copy of `index` whose neighbour lists belong to other vertices: what a wrong export would be."""
    from tests.oracles.rewritten import rewrite_graph

    rng = np.random.default_rng(5)

    def shuffle(neighbours: np.ndarray, degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        order = rng.permutation(len(degrees))
        return neighbours[order], degrees[order]

    return rewrite_graph(index, out, shuffle)


def paste(code: str, python: str = sys.executable) -> str:
    """Run a snippet as a user would who pastes it; returns what it printed."""
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_same_answers(
    theirs: tuple[np.ndarray, np.ndarray], ours: tuple[np.ndarray, np.ndarray], tolerance: float
) -> None:
    """Ids and scores, (q, k), are the same, or scores that `tolerance` of the largest does not tell apart.

    Ours have -1 and NaN where there is no result.
    """
    their_ids, their_scores = theirs
    our_ids, our_scores = ours
    assert np.array_equal(their_ids == -1, our_ids == -1)
    there = our_ids != -1
    near = tolerance * max(1.0, float(np.abs(our_scores[there]).max()))
    assert (np.abs(their_scores - our_scores)[there] <= near).all()
    differ = their_ids != our_ids
    assert differ.mean() < 0.02
    for query, place in np.argwhere(differ):
        others = np.flatnonzero(
            their_ids[query] == our_ids[query, place]
        )  # only where it is as near, or cut off
        scores = our_scores[query, others] if len(others) else our_scores[query, -1:]
        assert (np.abs(scores - our_scores[query, place]) <= near).all()


def whole_pivots(index: Path, out: Path) -> Path:
    """Write a copy of an IVF index whose centroids and pivots are rounded to whole numbers."""
    from tests.oracles.rewritten import rewrite_centroids

    def rounded(shared: Centroids) -> Centroids:
        assert shared.codebook is not None
        book = Codebook(np.rint(shared.codebook.pivots), shared.codebook.offsets)
        return replace(shared, centroids=np.rint(shared.centroids), codebook=book)

    return rewrite_centroids(index, out, rounded)
