"""Settings of the C allocator that make freed memory go back, so that a budget counts what is held.

glibc raises its thresholds as a program frees large blocks, and keeps a heap for each thread: after a few stages a
hundred MiB are held unused. The thresholds are high enough that the arrays a kernel makes in a loop, a
few MiB each, come from a heap that stays.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

#: Parameters of glibc's ``mallopt`` (malloc.h), and what they are set to: larger blocks are mapped on their own and
#: go back when they are freed; a heap may end in so many free bytes; all threads share one heap.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_SETTINGS = {_M_MMAP_THRESHOLD: 8 << 20, _M_TRIM_THRESHOLD: 32 << 20, _M_ARENA_MAX: 1}


@cache
def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


@cache
def hold_little() -> None:
    """Let this process give back what it frees, for the rest of its life; without glibc only Arrow does.

    Best before numpy and Arrow are imported: threads that they start get heaps that later settings do not take
    away, about 30 MiB.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    library = _glibc()
    if library is not None:
        for parameter, value in _SETTINGS.items():
            library.mallopt(parameter, value)


def give_back() -> None:
    """Return free pages between used ones to the system: called between stages."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)
