"""Equal vectors: which there are, that leaves hold the first of them alone, and the ring that joins them at last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.oracles.graph import vamana as oracle
from tests.support.gpu import strict_gpu

from indexmill.builders.partition import equals
from indexmill.builders.partition.build import build_partitioned
from indexmill.builders.partition.carve import LEAF_MOST, carve
from indexmill.builders.partition.equals import ALONE, equal_rows, join_equals, repeated
from indexmill.builders.vamana.graph import VamanaParameters
from indexmill.builders.vamana.prune import PruneRule
from indexmill.reader.threads import small_blocks


@pytest.mark.parametrize(("dim", "dtype"), [(3, "uint8"), (4, "uint8"), (8, "uint8"), (3, "float32")])
def test_equal_rows_name_the_first_of_them(dim: int, dtype: str) -> None:
    rng = np.random.default_rng(1)
    vectors = rng.integers(0, 3 if dim == 3 else 2, (60, dim)).astype(dtype)
    expected, is_repeated = [], []
    for v in range(60):
        same = np.flatnonzero((vectors == vectors[v]).all(axis=1))
        expected.append(same[0] if len(same) > 1 else ALONE)
        is_repeated.append(same[0] < v)
    assert len(set(expected)) > 3
    with small_blocks(7):
        firsts = equal_rows(vectors, threads=2)
    assert firsts.tolist() == expected
    assert repeated(firsts).tolist() == is_repeated


def test_no_rows_have_no_equals() -> None:
    assert equal_rows(np.empty((0, 4), np.uint8)).shape == (0,)


def test_rows_with_the_same_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def same_hash(words: NDArray[Any], first: int, last: int, keys: NDArray[np.uint64]) -> None:
        keys[first:last] = np.arange(first, last) | 5 << 32

    monkeypatch.setattr(equals, "hash_rows", same_hash)
    vectors = np.tile(np.arange(20, dtype=np.uint8)[:, None], (3, 4))
    firsts = equal_rows(vectors).reshape(3, 20)
    assert (firsts[:, :16] == np.arange(16)).all()
    assert (firsts[:, 16:] == ALONE).all()


@pytest.mark.parametrize("n", [LEAF_MOST, 5000])
def test_leaves_hold_the_first_of_equal_vectors_alone(n: int) -> None:
    rng = np.random.default_rng(2)
    vectors = rng.integers(0, 256, (n // 3, 6), dtype=np.uint8)[rng.integers(n // 3, size=n)]
    left_out = repeated(equal_rows(vectors))
    assert 0.3 * n < left_out.sum() < 0.9 * n
    leaves = carve(vectors, (4, 2), seed=1, left_out=left_out)
    assert np.array_equal(np.bincount(leaves.members, minlength=n) > 0, ~left_out)
    assert leaves.copies == carve(vectors, (4, 2), seed=1).copies


@settings(max_examples=50, deadline=None)
@given(different=st.integers(1, 12), n=st.integers(1, 60), saturate=st.booleans(), seed=st.integers(0, 99))
def test_equal_vectors_form_a_ring_and_have_the_lists_of_neighbours_of_the_first(
    different: int, n: int, saturate: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(different, 3)).astype(np.float32)[rng.integers(different, size=n)]
    firsts = equal_rows(vectors)
    shown = np.flatnonzero(~repeated(firsts))
    neighbours, degrees = np.zeros((n, 5), np.uint32), np.zeros(n, np.int32)
    for v in shown:
        near = [u for u in shown if u != v and rng.random() < 0.7][:5]
        near.sort(key=lambda u: (oracle.squared(vectors, v, u), u))
        neighbours[v, : len(near)], degrees[v] = near, len(near)
    before = {int(v): neighbours[v, : degrees[v]].tolist() for v in shown}
    join_equals(vectors, firsts, neighbours, degrees, PruneRule(1.2, saturate))
    lists = [neighbours[v, : degrees[v]].tolist() for v in range(n)]
    for first, near in before.items():
        equal = np.flatnonzero(firsts == first).tolist()
        if not equal:
            assert lists[first] == near
            continue
        for place, (v, following) in enumerate(zip(equal, [*equal[1:], first], strict=True)):
            assert lists[v][0] == following
            source = lists[first][place % len(lists[first])]
            others = before[first if place == 0 or source not in before else source]
            others = [u for u in others if u != first]
            assert set(lists[v][1:]) <= set(others)
            apart = [oracle.squared(vectors, v, u) for u in lists[v]]
            assert apart == sorted(apart)
            if place == 0:
                assert lists[v][1:] == others[:4], "the farthest alone made room"
            if len(others) < 4:  # nor did it make room for an equal vector before
                assert len(lists[v]) == len(others) + 1


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("on_gpu", [True, False])
def test_copies_of_vectors_need_no_edges_to_be_reached(dtype: str, saturate: bool, on_gpu: bool) -> None:
    rng = np.random.default_rng(3)
    vectors = np.repeat(rng.normal(size=(400, 8)) * 30 + 128, 20, axis=0).astype(dtype)
    vectors = vectors[rng.permutation(len(vectors))]
    gpu = strict_gpu()[0] if on_gpu else None
    parameters = VamanaParameters(8, 24, 1.2, saturate=saturate)
    entry = int(np.flatnonzero(repeated(equal_rows(vectors)))[-1])
    told: list[int] = []
    graph = build_partitioned(vectors, entry, parameters, seed=1, threads=2, gpu=gpu, advance=told.append)
    assert graph.edges_added < 10
    assert oracle.reachable(graph.neighbours, graph.degrees, entry) == set(range(len(vectors)))
    assert sum(told) == len(vectors)
