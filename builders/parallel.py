"""Fixed-size blocks on a few threads: the same blocks, so the same bytes, whatever the number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def map_blocks(function: Callable[[int, int], T], n: int, block: int, threads: int) -> Iterator[T]:
    """Yield ``function(first, last)`` for consecutive blocks of ``range(n)``, in order.

    Parameters
    ----------
    function : callable
        Must release the GIL to gain from threads, and must not depend on other blocks.
    n, block : int
        Items, and items a block; the last block may be shorter.
    threads : int
        Blocks computed at once.
    """
    starts = range(0, n, block)
    if threads <= 1 or len(starts) <= 1:
        for first in starts:
            yield function(first, min(first + block, n))
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(lambda first: function(first, min(first + block, n)), starts)
