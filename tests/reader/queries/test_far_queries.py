"""Queries beyond the range of the codes that nodes hold: what is found by codes, and what by exact vectors apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.oracles.brute_force import exact_neighbours
from tests.support.indexes.builds import build, clustered

from indexmill.formats.graph.index import IndexFiles
from indexmill.reader.index import Index

N, DIM, K = 1200, 24, 10


def far(queries: np.ndarray) -> np.ndarray:
    """Move queries away: a little in all components, far in one, and far in all."""
    moved = queries.copy()
    moved[::3] += 5
    moved[1::3, 2] += 300
    moved[2::3] *= 50
    return moved


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("node_dtype", ["sq8", "sq16"])
def test_nodes_of_codes_are_ranked_by_what_they_decode_to(
    tmp_path: Path, metric: str, node_dtype: str
) -> None:
    queries = far(clustered(60, DIM, seed=5))
    index = build(tmp_path / "ix", clustered(N, DIM), metric=metric, node_dtype=node_dtype)
    with IndexFiles(index) as files:
        scale = files.graph.scale()
        assert scale is not None
        rows = scale[0].astype(np.float64) + scale[1].astype(np.float64) * files.graph.read_all().vectors
    asked = queries.astype(np.float64)
    if metric == "cosine":
        asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    _, wanted = exact_neighbours(rows[:, :DIM], asked, K, "ip" if metric == "ip" else "l2")
    found = Index(index).search(queries, K, L=N)
    scores = 2 - 2 * found.scores if metric == "cosine" else found.scores
    np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_exact_vectors_apart_make_answers_exact(tmp_path: Path, metric: str) -> None:
    vectors, queries = clustered(N, DIM), far(clustered(60, DIM, seed=5))
    index = build(
        tmp_path / "ix", vectors, metric=metric, node_dtype="sq8", keep_vectors=True, navigation=0.0
    )
    wanted, _ = exact_neighbours(vectors, queries, K, metric)
    found = Index(index).search(queries, K, L=N)
    missed = [
        len(set(mine) - set(theirs))
        for mine, theirs in zip(found.vector_ids.tolist(), wanted.tolist(), strict=True)
    ]
    assert sum(missed) <= 2


def test_answers_are_exact_where_a_query_is_beyond_the_range_of_a_wide_component(tmp_path: Path) -> None:
    """The vectors differ in their distance by that component as much as by all others, and by little more than a step."""
    random = np.random.default_rng(1)
    vectors = random.uniform(size=(1500, 768)).astype(np.float32)
    vectors[:, 7] *= 10
    queries = random.uniform(size=(400, 768)).astype(np.float32)
    queries[:, 7] = random.uniform(50, 200, size=400)
    index = build(tmp_path / "ix", vectors, node_dtype="sq8", keep_vectors=True, navigation=0.0)
    wanted, _ = exact_neighbours(vectors, queries, K)
    found = Index(index).search(queries, K, L=len(vectors))
    missed = [
        len(set(mine) - set(theirs))
        for mine, theirs in zip(found.vector_ids.tolist(), wanted.tolist(), strict=True)
    ]
    assert sum(missed) == 0
