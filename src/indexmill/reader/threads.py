"""Fixed-size blocks on a few threads: the same blocks, so the same bytes, whatever the number of threads.

Threads gain where the function that they call is compiled and releases the interpreter's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
#: Blocks that `map_blocks` submits ahead for each thread.
_AHEAD = 4


#: Items of a block at most; `small_blocks` sets it.
_most_items: int | None = None


@contextmanager
def small_blocks(items: int) -> Iterator[None]:
    """Cut work of every thread into blocks of at most `items`: a test's little data is many blocks, as much data is."""
    global _most_items
    before, _most_items = _most_items, items
    try:
        yield
    finally:
        _most_items = before


class BlockPool:
    """Permanent threads for thousands of short calls; each thread fetches one block after the other.

    A block costs a few microseconds, instead of thirty to submit it to an executor. Use it as a context.

    Parameters
    ----------
    threads : int
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(max(threads - 1, 1))  # starts threads only when there is work

    def __enter__(self) -> BlockPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()

    def run(self, function: Callable[[int, int], T], n: int, block: int) -> list[T]:
        """Return ``function(first, last)`` of consecutive blocks of ``range(n)``, in order.

        `function` must not depend on other blocks.

        Raises
        ------
        Exception
            The error of a block, after the other threads have finished the remaining blocks.
        """
        block = min(block, _most_items or block)
        starts = range(0, n, block)
        results: list[Any] = [None] * len(starts)
        left = iter(range(len(starts)))  # shared by threads: `next` is atomic under the interpreter's lock

        def work() -> None:
            for i in left:
                results[i] = function(starts[i], min(starts[i] + block, n))

        helpers = [self._pool.submit(work) for _ in range(min(self._threads, len(starts)) - 1)]
        try:
            work()
        finally:
            wait(helpers)
        for helper in helpers:
            helper.result()
        return results


def run_blocks(function: Callable[[int, int], T], n: int, block: int, threads: int) -> list[T]:
    """Return ``function(first, last)`` of consecutive blocks of ``range(n)``, in order: one `BlockPool.run`."""
    with BlockPool(threads) as pool:
        return pool.run(function, n, block)


def map_blocks(
    function: Callable[[int, int], T], n: int, block: int, threads: int
) -> Generator[T, None, None]:
    """Yield ``function(first, last)`` for consecutive blocks of ``range(n)``, in order.

    Parameters
    ----------
    function : callable
        Must not depend on other blocks.
    n, block : int
        Number of items, and of items in a block; the last block may be shorter.
    threads : int
        Number of blocks computed at once.
    """
    block = min(block, _most_items or block)
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
