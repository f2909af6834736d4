"""The decorator of compiled functions, whose cache several processes can fill at once."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile `function` for each combination of types it is called with, and keep the machine code beside its source.

    The function runs without Python's global lock.

    Parameters
    ----------
    function : callable, optional
        A function in numba's subset of Python; without it, the decorator is returned.
    **options
        Of `numba.njit`, such as ``fastmath``.
    """
    if function is None:
        return lambda decorated: kernel(decorated, **options)
    dispatcher = njit(nogil=True, **options)(function)
    dispatcher._cache = _Cache(function)
    return dispatcher


class CacheFiles(IndexDataCacheFile):  # type: ignore[misc]  # numba is untyped
    """Files of one function's cache, read and written by one process at a time.

    numba's own are not: it takes the first number that is free and then writes the file of that number, so of two
    processes that compile a function for different types, both may write file 1, and the index may name the one
    that was overwritten. What is loaded later is code for other types: int8 vectors would be taken for uint8.
    """

    def load(self, key: Any) -> Any:
        """Return what was saved under `key`, or None."""
        with self._alone():
            return super().load(key)

    def save(self, key: Any, data: Any) -> None:
        """Save `data` under `key`, in a file of its own."""
        with self._alone():
            super().save(key, data)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        folder = Path(self._cache_path)
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "kernels.lock", os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


class _Cache(FunctionCache):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        locator = self._impl.locator
        self._cache_file = CacheFiles(
            locator.get_cache_path(), self._impl.filename_base, locator.get_source_stamp()
        )
