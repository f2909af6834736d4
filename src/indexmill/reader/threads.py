"""Threads that call kernels block by block; kernels release the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

T = TypeVar("T")


class BlockPool:
    """Threads that stay, for a caller with thousands of short calls: each thread takes block after block by itself.

    A block then costs a few microseconds instead of the thirty that handing it over takes. Use it as a context.

    Parameters
    ----------
    threads : int
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(max(threads - 1, 1))  # starts no thread before there is work

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
