"""Repair of lists whose neighbours were deleted, against the same rule as loops over Python lists."""

from __future__ import annotations

import numpy as np
import pytest
from tests.oracles.graph import vamana as oracle

from indexmill.builders.vamana.build import build_vamana
from indexmill.builders.vamana.graph import Graph, VamanaParameters
from indexmill.builders.vamana.repair import repair_lists
from indexmill.reader.threads import small_blocks

SMALL = VamanaParameters(max_degree=8, build_list_size=24, alpha=1.2)


def built(n: int) -> tuple[np.ndarray, Graph]:
    vectors = np.random.default_rng(1).integers(0, 200, (n, 6)).astype(np.float32)
    return vectors, build_vamana(vectors, 0, SMALL, seed=1)


def repaired(
    vectors: np.ndarray, graph: Graph, living: int, threads: int = 1
) -> tuple[np.ndarray, np.ndarray, int]:
    neighbours = np.full((living, SMALL.max_degree), 7, np.uint32)
    degrees = np.full(living, -1, np.int32)
    count = repair_lists(
        vectors[:living], graph.neighbours, graph.degrees, SMALL.rule, neighbours, degrees, threads=threads
    )
    return neighbours, degrees, count


def candidates(graph: Graph, v: int, living: int) -> set[int]:
    """The remaining neighbours of v, and those of its deleted ones; of their deleted ones while they are too few."""
    listed = [row[:degree].tolist() for row, degree in zip(graph.neighbours, graph.degrees, strict=True)]
    found = [u for u in listed[v] if u < living]
    queue = [u for u in listed[v] if u >= living]
    direct = len(queue)
    for at, u in enumerate(queue):  # the queue grows meanwhile
        if at >= direct and len(found) >= SMALL.max_degree:
            break
        found += [w for w in listed[u] if w < living and w != v]
        queue += [w for w in dict.fromkeys(listed[u]) if w >= living and w not in queue]
    return set(found)


@pytest.mark.parametrize("living", [399, 360, 200, 60, 1])
def test_lists_are_those_of_the_rule(living: int) -> None:
    vectors, graph = built(400)
    neighbours, degrees, count = repaired(vectors, graph, living)
    assert (neighbours[np.arange(8) >= degrees[:, None]] == 0).all()
    changed = 0
    for v in range(living):
        before, after = graph.neighbours[v, : graph.degrees[v]], neighbours[v, : degrees[v]].tolist()
        if (before < living).all():
            assert after == before.tolist()
            continue
        changed += 1
        wanted = oracle.robust_prune(vectors, v, sorted(candidates(graph, v, living)), 8, SMALL.alpha)
        assert after == sorted(wanted, key=lambda u: (oracle.squared(vectors, v, u), u))
    assert count == changed


def test_lists_are_the_same_for_any_number_of_threads() -> None:
    vectors, graph = built(900)
    one = repaired(vectors, graph, 700)
    with small_blocks(50):
        three = repaired(vectors, graph, 700, threads=3)
    assert one[2] == three[2] > 0
    for a, b in zip(one[:2], three[:2], strict=True):
        np.testing.assert_array_equal(a, b)
