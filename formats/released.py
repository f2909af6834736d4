"""Memory of a part of an array, given back to the system before the array ends."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

from numpy.typing import NDArray

_LIBC = ctypes.CDLL(None)


def release(part: NDArray[Any]) -> None:
    """Give back the whole pages of a contiguous part of an array, whose content is lost.

    It is advice: a system that does not take it keeps the memory until the array ends.
    """
    first = -(-part.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (part.ctypes.data + part.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        _LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED)
