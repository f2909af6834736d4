"""The decorator of compiled functions, whose cache several processes can fill at once."""

from __future__ import annotations

import fcntl
import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile

#: The kernels of this process that have a cache.
_CACHED: list[Any] = []


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile `function` for each combination of types it is called with, and keep the machine code beside its source.

    The function runs without Python's global lock. Where no folder of machine code can be written (that of the source,
    that of the user, or NUMBA_CACHE_DIR), one warning says so, and each process compiles for itself.

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
    try:
        dispatcher._cache = _Cache(function)
        _CACHED.append(dispatcher)
    except RuntimeError:  # numba's, of a function whose cache has no place
        _warn_uncached()
    return dispatcher


def cache_folder() -> Path | None:
    """Return a folder of machine code, always the same one; None where none can be written."""
    try:
        return Path(_Cache(cache_folder).cache_path)
    except RuntimeError:  # see `kernel`
        return None


def used_kernels() -> dict[str, list[Any]]:
    """Return the index file in the cache of each kernel that this process has called; and what tells its source.

    Returns
    -------
    dict
        By the path of the index file: path, time and size of the source.
    """
    return {
        cache.index_path: [cache.source, *_stamp(cache.source)]
        for cache in (dispatcher._cache for dispatcher in _CACHED if dispatcher.signatures)
    }


def are_kept(used: Mapping[str, list[Any]]) -> bool:
    """Tell whether kernels of `used_kernels`, perhaps of another process, are cached, and their sources as then."""
    try:
        return all(os.path.exists(index) and _stamp(was[0]) == was[1:] for index, was in used.items())
    except OSError:  # a source is gone
        return False


def _stamp(source: str) -> list[int]:
    status = os.stat(source)
    return [status.st_mtime_ns, status.st_size]


@cache
def _warn_uncached() -> None:
    warnings.warn(
        "no folder for compiled kernels can be written: each process compiles them, which takes a minute and "
        "up to 0.5 GiB more than is planned; set NUMBA_CACHE_DIR to a folder that can be written",
        stacklevel=2,
    )


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
        self.source = inspect.getfile(function)
        self.index_path = os.path.join(locator.get_cache_path(), f"{self._impl.filename_base}.nbi")
