"""Fixed-size blocks on a few threads: the same blocks, so the same bytes, whatever the number of threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
#: Blocks submitted ahead for each thread.
_AHEAD = 4


def map_blocks(
    function: Callable[[int, int], T], n: int, block: int, threads: int
) -> Generator[T, None, None]:
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
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for first in starts:
                waiting.append(pool.submit(function, first, min(first + block, n)))
                if len(waiting) > _AHEAD * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
