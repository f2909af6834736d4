"""Extending a finished graph: lists that change, lists that do not, and distances computed."""

from __future__ import annotations

import numpy as np
import pytest
from tests.oracles.graph import vamana as oracle

from indexmill.builders.vamana import extend, insert
from indexmill.builders.vamana.build import build_vamana, list_capacity
from indexmill.builders.vamana.extend import extend_graph
from indexmill.builders.vamana.graph import VamanaParameters
from indexmill.reader.threads import small_blocks

SMALL = VamanaParameters(max_degree=8, build_list_size=24, alpha=1.2)


def points(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 10)).astype(np.float32)


def growing(vectors: np.ndarray, present: int) -> tuple[np.ndarray, np.ndarray]:
    """The graph of the first `present` vectors, in arrays with room for all."""
    graph = build_vamana(vectors[:present], 0, SMALL, seed=1)
    neighbours = np.full(
        (len(vectors), list_capacity(8)), 7, np.uint32
    )  # entries beyond the degree mean nothing
    degrees = np.zeros(len(vectors), np.int32)
    neighbours[:present, :8], degrees[:present] = graph.neighbours, graph.degrees
    return neighbours, degrees


@pytest.mark.parametrize(("present", "added"), [(1, 30), (400, 1), (400, 300)])
def test_an_extended_graph_obeys_the_limits_of_a_built_one(present: int, added: int) -> None:
    vectors = points(present + added, 2)
    neighbours, degrees = growing(vectors, present)
    extend_graph(vectors, neighbours, degrees, present, 0, SMALL, seed=1)
    assert oracle.reachable(neighbours, degrees, 0) == set(range(present + added))
    assert degrees.max() <= 8
    for v in range(present + added):
        row = neighbours[v, : degrees[v]].tolist()
        assert v not in row
        assert len(set(row)) == len(row)
        distances = [oracle.squared(vectors, v, u) for u in row]
        assert distances == pytest.approx(sorted(distances), rel=1e-5)


def test_lists_that_nothing_new_touched_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = points(3000, 3)
    neighbours, degrees = growing(vectors, 2990)
    before = neighbours[:2990, :8].copy()
    done = extend_graph(vectors, neighbours, degrees, 2990, 0, SMALL, seed=1)
    differ = (neighbours[:2990, :8] != before).any(axis=1)
    assert 0 < differ.sum() <= done.changed - 10 <= 10 * 8 + done.linked
    assert done.distances < 10 * 3000


def test_an_extension_is_the_same_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert, "MAX_BATCH_SHARE", 0.1)
    vectors = points(1200, 4)
    results = []
    for threads in (1, 3):
        neighbours, degrees = growing(vectors, 800)
        with small_blocks(2):
            done = extend_graph(vectors, neighbours, degrees, 800, 0, SMALL, seed=5, threads=threads)
        results.append((neighbours, degrees, done))
    assert results[0][2] == results[1][2]
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_neighbours_that_a_vertex_brings_take_part_in_its_prune() -> None:
    vectors = points(600, 5)
    vectors[300:] += 50  # two clouds: the search from the first meets few of the second
    neighbours, degrees = growing(vectors, 300)
    second = build_vamana(vectors[300:], 0, SMALL, seed=1)
    neighbours[300:, :8] = second.neighbours + 300
    degrees[300:] = second.degrees
    extend_graph(vectors, neighbours, degrees, 300, 0, SMALL, seed=1)
    kept = [
        len(
            set(neighbours[300 + v, : degrees[300 + v]])
            & set(second.neighbours[v, : second.degrees[v]] + 300)
        )
        for v in range(300)
    ]
    assert np.mean(kept) > 6
    assert oracle.reachable(neighbours, degrees, 0) == set(range(600))


def test_an_unreachable_vertex_is_linked_within_the_degree(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = points(200, 6)
    neighbours, degrees = growing(vectors, 150)
    monkeypatch.setattr(extend, "insert_vertices", lambda *a, **k: 0)  # nothing leads to a new vertex
    done = extend_graph(vectors, neighbours, degrees, 150, 0, SMALL, seed=1)
    assert done.linked == 50
    assert degrees.max() <= 8
    assert oracle.reachable(neighbours, degrees, 0) == set(range(200))
