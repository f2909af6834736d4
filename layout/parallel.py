"""Fixed blocks on a few threads: the same blocks, so the same bytes, whatever the number of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from indexmill.reader.threads import BlockPool

T = TypeVar("T")


def map_blocks(function: Callable[[int, int], T], n: int, block: int, threads: int) -> list[T]:
    """Run one call of `BlockPool.run` on threads of its own."""
    with BlockPool(threads) as pool:
        return pool.run(function, n, block)
