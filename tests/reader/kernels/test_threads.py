"""Blocks are the same, in the same order, for any number of threads."""

from __future__ import annotations

import threading

import pytest

from indexmill.reader.threads import BlockPool, map_blocks


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("n", "block"), [(0, 3), (1, 3), (3, 3), (10, 3), (200, 1)])
def test_a_pool_returns_what_one_thread_would(threads: int, n: int, block: int) -> None:
    expected = list(map_blocks(lambda first, last: (first, last), n, block, 1))
    with BlockPool(threads) as pool:
        assert pool.run(lambda first, last: (first, last), n, block) == expected
        assert pool.run(lambda first, last: last - first, n, block) == [b - a for a, b in expected]


def test_blocks_run_beside_each_other() -> None:
    both = threading.Barrier(2, timeout=10)
    with BlockPool(2) as pool:
        assert sorted(pool.run(lambda first, last: both.wait(), 2, 1)) == [0, 1]


@pytest.mark.parametrize("threads", [1, 3])
def test_what_a_block_raises_reaches_the_caller(threads: int) -> None:
    def block(first: int, last: int) -> int:
        if first == 7:
            raise ValueError("block 7")
        return first

    with BlockPool(threads) as pool:
        with pytest.raises(ValueError, match="block 7"):
            pool.run(block, 20, 1)
        assert pool.run(lambda first, last: first, 3, 1) == [0, 1, 2]
