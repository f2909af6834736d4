"""Sequential reads of sections that bypass the page cache: O_DIRECT into aligned buffers, every page checked."""

from __future__ import annotations

import errno
import mmap
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.pagefile.frame import PAGE_BYTES, corrupt, page_checksums
from indexmill.formats.pagefile.reader import PageFile

#: Bytes of a read, a multiple of the page: large enough for sequential reads.
READ_BYTES = 8 << 20
#: Pieces read while one is checked.
_READERS = 2
#: Errors of file systems without O_DIRECT.
_NO_DIRECT = (errno.EINVAL, errno.ENOTSUP)


def aligned_buffer(n_bytes: int) -> NDArray[np.uint8]:
    """Return a uint8 array (n_bytes,) in memory aligned to a page, as O_DIRECT requires."""
    memory = mmap.mmap(-1, max(n_bytes, PAGE_BYTES))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)[:n_bytes]


def read_section(
    file: PageFile, section: str, out: NDArray[np.uint8], first_page: int = 0, pages: int | None = None
) -> None:
    """Read pages of a section into `out`, each checked, without leaving them in the page cache.

    The next two pieces are read while one is checked: a finished read waits for the interpreter's lock, which the check
    holds, and the disk must not idle meanwhile.

    Parameters
    ----------
    out : uint8 array of `aligned_buffer`, shape (at least the bytes of the pages,)
    first_page, pages : int
        Counted from the first page of the section; by default all of them.

    Raises
    ------
    CorruptFile
        At the first page whose CRC differs.
    OSError
        If the file cannot be read.
    """
    entry = file.section_entry(section)
    first, count = entry.first_page + first_page, entry.pages if pages is None else pages
    stored = file.stored_checksums(first, count)
    start, end = first * PAGE_BYTES, count * PAGE_BYTES
    pieces = range(0, end, READ_BYTES)
    with _opened(file.path) as (handle, direct), ThreadPoolExecutor(_READERS, "read-section") as readers:

        def read(done: int) -> None:
            """Read the piece that starts at `done`."""
            last = min(done + READ_BYTES, end)
            while done < last:
                took = os.preadv(handle, [out.data[done:last]], start + done)
                took -= took % PAGE_BYTES if took + done < last else 0
                if not took:
                    what = f"{end - done} more bytes"
                    raise corrupt(file.path, f"offset {start + done}", what, "the end of the file")
                done += took

        ahead = deque(readers.submit(read, at) for at in pieces[:_READERS])
        for i, at in enumerate(pieces):
            ahead.popleft().result()
            if i + _READERS < len(pieces):
                ahead.append(readers.submit(read, pieces[i + _READERS]))
            last = min(at + READ_BYTES, end)
            _check(file.path, out[at:last], first + at // PAGE_BYTES, stored, at)
        if not direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, start, end, os.POSIX_FADV_DONTNEED)


def _check(path: Path, data: NDArray[np.uint8], page: int, stored: NDArray[np.uint32], done: int) -> None:
    first = done // PAGE_BYTES
    wanted = stored[first : first + len(data) // PAGE_BYTES]
    computed = page_checksums(data.data)
    bad = np.flatnonzero(wanted != computed)
    if len(bad):
        at = page + int(bad[0])
        where = f"page {at} (offset {at * PAGE_BYTES}): CRC32C"
        raise corrupt(path, where, f"{wanted[bad[0]]:08x}", f"{computed[bad[0]]:08x}")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, bool]]:
    """Open a file for reading without the page cache, if possible; yield the handle and whether it is possible."""
    flag = getattr(os, "O_DIRECT", 0)
    direct = bool(flag)
    try:
        handle = os.open(path, os.O_RDONLY | flag)
    except OSError as error:
        if error.errno not in _NO_DIRECT:
            raise
        handle, direct = os.open(path, os.O_RDONLY), False
    try:
        yield handle, direct
    finally:
        os.close(handle)
