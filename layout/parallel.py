"""Fixed blocks on a few threads: the same blocks, so the same bytes, whatever the number of threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def map_blocks(function: Callable[[int, int], T], n: int, block: int, threads: int) -> list[T]:
    """Return ``function(first, last)`` for consecutive blocks of ``range(n)``, in their order.

    Parameters
    ----------
    function : callable
        Must release the GIL to gain from threads, and must not depend on other blocks.
    n, block : int
        Items, and items a block; the last block may be shorter.
    threads : int
        Blocks computed at once.
    """
    bounds = [(first, min(first + block, n)) for first in range(0, n, block)]
    if threads <= 1 or len(bounds) <= 1:
        return [function(first, last) for first, last in bounds]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda b: function(*b), bounds))
