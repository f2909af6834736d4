"""Bytes of an index at a URL that were read by ranges, kept on a local disk for this process and all others.

They lie in files of 16 MiB of an object each, with holes where nothing was read::

    <cache>/blocks-1-<digest of the manifest>/graph.imx.<number>
        0       one uint32 for each page of 4096 bytes: its CRC32C, at least 1; or 0, and the page is not there
        16 KiB  the pages, in their places

A page is written before its checksum, and is there if it has it: neither two processes that write the same page, nor a
process or a machine that stops in between, needs any other care. The manifest names the SHA-256 of each file of the
index, so no other index has its digest. The reader reads these files as well: `reader/core/src/engine/disk.rs`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.pagefile.frame import PAGE_BYTES, checksum, page_checksums
from indexmill.pipeline.urls.cache import BYTES_VARIABLE, CACHE_VARIABLE
from indexmill.pipeline.urls.room import BLOCKS, make_room

#: Of the files below: another one has folders of its own.
_LAYOUT = 1
#: Of an object in one file, and of the checksums before it.
REGION_BYTES = 16 << 20
_HEAD_BYTES = 4 * REGION_BYTES // PAGE_BYTES
#: A process looks for room each time that it has written this part of what the cache may take, or half of what is free.
LOOKS = 64
#: Seconds after which a disk that refused to be written to is tried again.
PAUSE_S = 60.0


class _Account:
    """What a process may write into a cache, for all indexes that it has open."""

    def __init__(self) -> None:
        self.left = 0
        #: Held while room is made: by openings, and by the thread that keeps what searches read.
        self.looking = threading.Lock()
        self.closed_until = 0.0


#: By process and cache: a lock that is held at a fork is never freed in the child.
_accounts: dict[tuple[int, Path], _Account] = {}


class Blocks:
    """Ranges of the files of one index.

    Parameters
    ----------
    cache : Path
        The directory of the cache.
    manifest : bytes
        That of the index.
    sizes : mapping of str to int
        Bytes of its files, by name.
    most : int
        Bytes that all of the cache may take.

    Attributes
    ----------
    folder : Path
        Where they are; it may not exist.
    """

    def __init__(self, cache: Path, manifest: bytes, sizes: Mapping[str, int], most: int) -> None:
        self.folder = cache / f"{BLOCKS}{_LAYOUT}-{hashlib.sha256(manifest).hexdigest()[:32]}"
        self._cache, self._sizes, self._most = cache, sizes, most
        self._is_told = False

    def get(self, name: str, start: int, end: int) -> bytes | None:
        """Return bytes of a file, of whole pages except for its last one; None unless all are there and undamaged."""
        found = []
        try:
            for number, at, n in _parts(start, end):
                with _opened(self._path(name, number), os.O_RDONLY) as file:
                    with suppress(OSError):  # a disk that can only be read
                        os.utime(file)
                    data = os.pread(file, n, _HEAD_BYTES + at)
                    checksums = _checksums(memoryview(data)).tobytes()
                    if os.pread(file, len(checksums), _place_of_checksum(at)) != checksums or len(data) < n:
                        return None
                    found.append(data)
        except OSError:
            return None
        return b"".join(found)

    def put(self, name: str, start: int, data: bytes) -> None:
        """Keep bytes of a file from a whole page on; a page of which a part is missing is left out.

        A disk that refuses is told once, and left alone for a while.
        """
        end = start + len(data)
        if end < self._sizes[name]:
            end -= end % PAGE_BYTES
        if start >= end or start % PAGE_BYTES or time.monotonic() < self._account.closed_until:
            return
        parts = list(_parts(start, end))
        try:
            if self._has_room(end - start + PAGE_BYTES * len(parts)):  # with pages of checksums
                view = memoryview(data)
                for number, at, n in parts:
                    self._write(self._path(name, number), at, view[:n])
                    view = view[n:]
        except OSError as error:
            gone = error.errno == errno.ENOENT  # another process has just removed the folder, to make room
            if not gone:
                self.refused(error)

    def forget(self) -> None:
        """Remove all: some of it is not what was published."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def refused(self, error: OSError) -> None:
        """Take note that the disk refused."""
        self._account.closed_until = time.monotonic() + PAUSE_S
        if not self._is_told:
            self._is_told = True
            with suppress(UserWarning):  # where warnings are errors: a full cache is none
                warnings.warn(
                    f"{self._cache}: {error.strerror}; blocks that are read at URLs are kept in memory alone; free "
                    f"some space, lower {BYTES_VARIABLE}, or name a directory on another disk with {CACHE_VARIABLE}",
                    stacklevel=2,
                )

    @property
    def _account(self) -> _Account:
        return _accounts.setdefault((os.getpid(), self._cache), _Account())

    def _path(self, name: str, number: int) -> Path:
        return self.folder / f"{name}.{number}"

    def _has_room(self, n: int) -> bool:
        """Take `n` bytes of the room that was found last; where that is used up, look for more.

        As much again stays free, for other processes that look at the same time.
        """
        account = self._account
        with account.looking:
            if n > account.left:
                if 2 * n > self._most:
                    return False
                wanted = max(n, self._most // LOOKS)
                self._cache.mkdir(parents=True, exist_ok=True)
                room = make_room(self._cache, self._most, 2 * n, reserve=2 * (wanted - n))
                if not room:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                account.left = min(wanted, room // 2)
            account.left -= n
            return True

    def _write(self, path: Path, at: int, data: memoryview) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _opened(path, os.O_WRONLY | os.O_CREAT) as file:
            write_all(file, data, _HEAD_BYTES + at)
            write_all(file, memoryview(_checksums(data).tobytes()), _place_of_checksum(at))


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _parts(start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each file with bytes of a range, where these begin in its region, and how many they are."""
    while start < end:
        number, at = divmod(start, REGION_BYTES)
        n = min(end - start, REGION_BYTES - at)
        yield number, at, n
        start += n


def _place_of_checksum(at: int) -> int:
    return 4 * (at // PAGE_BYTES)


def _checksums(data: memoryview) -> NDArray[np.uint32]:
    """Return what stands for each page, the last of which may be cut: little-endian uint32."""
    whole = len(data) - len(data) % PAGE_BYTES
    found = page_checksums(data[:whole])
    if whole < len(data):
        found = np.append(found, np.uint32(checksum(data[whole:].tobytes())))
    return np.maximum(found, 1).astype("<u4")


def write_all(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all of `data` at an offset of a file."""
    while data:
        written = os.pwrite(descriptor, data, offset)
        offset, data = offset + written, data[written:]
