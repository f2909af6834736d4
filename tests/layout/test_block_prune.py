"""Block-aware pruning: the lists of its definition, on any number of threads, up to its limit of work."""

from __future__ import annotations

import numpy as np
import pytest
from tests.oracles.layout import block_prune as oracle
from tests.support.indexes.layout import as_lists, random_graph

from indexmill.layout import block_prune as module
from indexmill.layout.block_prune import block_prune
from indexmill.layout.order import Adjacency, Work

N, R, B = 403, 16, 7  # the last page is not full, and most vertices have more candidates than are looked at


@pytest.fixture(scope="module")
def graph() -> Adjacency:
    return Adjacency(*random_graph(N, R, 3))


def grid(n: int, seed: int) -> np.ndarray:
    """Points of which many are equally far from each other, and some are equal."""
    return np.random.default_rng(seed).integers(0, 6, (n, 4)).astype(np.uint8)


def shuffled(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).permutation(n).astype(np.uint32)


def pruned(
    graph: Adjacency, points: np.ndarray, order: np.ndarray, alpha: float = 1.2, **options: object
) -> tuple[Adjacency, int]:
    into = Adjacency(np.full_like(graph.neighbours, 7), np.full_like(graph.degrees, 7))
    done = block_prune(graph, points, order, B, alpha, into, **options)  # type: ignore[arg-type]
    return into, done


@pytest.mark.parametrize("alpha", [1.0, 1.2, 1.5])
def test_lists_are_those_of_the_definition(graph: Adjacency, alpha: float) -> None:
    points, order = grid(N, 2), shuffled(N)
    into, done = pruned(graph, points, order, alpha)
    wanted = oracle.block_prune(as_lists(*graph), points, order.tolist(), B, R, alpha, module.CANDIDATES)
    assert done == N
    assert as_lists(*into) == wanted
    assert not into.neighbours[np.arange(R) >= into.degrees[:, None]].any()


def test_any_number_of_threads_chooses_the_same_lists(graph: Adjacency) -> None:
    points, order = grid(N, 5), shuffled(N)
    (one, _), (three, _) = (pruned(graph, points, order, threads=threads) for threads in (1, 3))
    assert (one.neighbours == three.neighbours).all()
    assert (one.degrees == three.degrees).all()


def test_out_of_work_the_rest_keep_their_lists(graph: Adjacency) -> None:
    points, order = grid(N, 6), shuffled(N)
    all_work, some = Work(), Work(1)
    full, _ = pruned(graph, points, order, work=all_work, span=100)
    into, done = pruned(graph, points, order, work=some, span=100)
    assert done == 100
    assert as_lists(*into) == as_lists(*full)[:100] + as_lists(*graph)[100:]
    assert 0 < some.spent < all_work.spent


def test_an_edge_that_a_page_mate_covers_makes_room_for_one_that_leads_elsewhere() -> None:
    # on a line: page mates 0 and 1 at 0 and 2; 2 and 3 lie to the right and are covered by 1; 4 lies to the left
    points = np.array([[10, 0], [12, 0], [14, 0], [16, 0], [4, 0]], np.uint8)
    lists = [[1, 2], [0, 2], [1, 4], [2, 1], [0, 1]]
    graph = Adjacency(np.array(lists, np.uint32), np.full(5, 2, np.int32))
    into = Adjacency(np.zeros_like(graph.neighbours), np.zeros_like(graph.degrees))
    block_prune(graph, points, np.arange(5, dtype=np.uint32), 2, 1.2, into)
    assert as_lists(*into)[0] == [1, 4]


def test_equal_vectors_on_a_page_do_not_hide_what_lies_beyond(graph: Adjacency) -> None:
    points = grid(N, 8)
    points[:B] = points[0]
    order = np.arange(N, dtype=np.uint32)
    into, _ = pruned(graph, points, order)
    wanted = oracle.block_prune(as_lists(*graph), points, order.tolist(), B, R, 1.2, module.CANDIDATES)
    assert as_lists(*into)[:B] == wanted[:B]
    assert set(into.neighbours[0, : into.degrees[0]].tolist()) - set(range(B))
