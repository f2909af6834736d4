"""Equal vectors: which there are, and the ring of those of a leaf."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.gpu import strict_gpu

from indexmill.builders.partition.carve import Leaves
from indexmill.builders.partition.equals import ALONE, equal_rows, ring
from indexmill.builders.partition.gpu import leaf_lists_on
from indexmill.builders.partition.leaf_lists import NOBODY, leaf_lists
from indexmill.reader.threads import small_blocks


@pytest.mark.parametrize(("dim", "dtype"), [(3, "uint8"), (4, "uint8"), (8, "uint8"), (3, "float32")])
def test_equal_rows_name_the_first_of_them(dim: int, dtype: str) -> None:
    rng = np.random.default_rng(1)
    vectors = rng.integers(0, 3 if dim == 3 else 2, (60, dim)).astype(dtype)
    expected = []
    for v in range(60):
        same = np.flatnonzero((vectors == vectors[v]).all(axis=1))
        expected.append(same[0] if len(same) > 1 else ALONE)
    assert len(set(expected)) > 3
    with small_blocks(7):
        assert equal_rows(vectors, threads=2).tolist() == expected


def test_no_rows_have_no_equals() -> None:
    assert equal_rows(np.empty((0, 4), np.uint8)).shape == (0,)


def test_a_ring_goes_through_equal_members_and_hides_all_but_the_first() -> None:
    firsts = np.array([0, ALONE, 2, 0, 2, 0, 6, 6], np.uint32)
    hidden, following = np.empty(7, np.int64), np.empty(7, np.int64)
    n = ring(firsts, np.array([0, 1, 2, 3, 4, 5, 7], np.uint32), hidden, following)
    assert sorted(hidden[:n]) == [3, 4, 5]
    assert following.tolist() == [3, -1, 4, 5, 2, 0, -1]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_lists_hold_the_next_equal_member_and_the_first_of_others(dtype: str, on_gpu: bool) -> None:
    values = np.array([5, 1, 5, 9, 5, 9, 4], dtype)
    vectors = np.ascontiguousarray(np.stack([values, values * 0], axis=1))
    leaves, rows = Leaves(np.arange(7, dtype=np.uint32), np.array([0, 7])), np.arange(7, dtype=np.uint32)
    gpu = strict_gpu()[0]
    lists = (
        leaf_lists_on(gpu, vectors, leaves, 3, rows) if on_gpu else leaf_lists(vectors, leaves, 3, rows)[0]
    )
    assert lists.tolist() == [
        [2, 6, 1], [6, 0, 3], [4, 0, 6], [5, 0, 6], [0, 6, 1], [3, 0, 6], [0, 1, 3],
    ]  # fmt: skip
    assert (lists != NOBODY).all()
