"""Fixed blocks on a few threads: the same blocks, so the same bytes, whatever the number of threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

T = TypeVar("T")


class BlockPool:
    """Threads that stay, for an order of many short batches: each thread takes block after block by itself.

    Use it as a context.

    Parameters
    ----------
    threads : int
        Blocks computed at once.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(max(threads - 1, 1))  # starts no thread before there is work

    def __enter__(self) -> BlockPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()

    def run(self, function: Callable[[int, int], T], n: int, block: int) -> list[T]:
        """Return ``function(first, last)`` for consecutive blocks of ``range(n)``, in their order.

        Parameters
        ----------
        function : callable
            Must release the GIL to gain from threads, and must not depend on other blocks.
        n, block : int
            Items, and items a block; the last block may be shorter.

        Raises
        ------
        Exception
            What a block raised; the other threads finish what is left first.
        """
        starts = range(0, n, block)
        results: list[Any] = [None] * len(starts)
        left = iter(range(len(starts)))  # threads share it: under the interpreter's lock `next` is atomic

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


def map_blocks(function: Callable[[int, int], T], n: int, block: int, threads: int) -> list[T]:
    """Run one call of `BlockPool.run` on threads of its own."""
    with BlockPool(threads) as pool:
        return pool.run(function, n, block)
