"""Room in the cache of what was read at URLs: one bound for indexes that were fetched whole, and for blocks of others.

What was used longest ago goes first: an index by when it was opened, blocks by when one in the same file was read or
written. Programs that have it open keep what they opened.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

#: Names of indexes that are whole; and how names of folders begin that are being fetched or removed, and of those of
#: blocks. Nothing else is touched.
INDEX, FRESH, BLOCKS = re.compile(r"[0-9a-f]{32}"), "fetching-", "blocks-"
#: `st_blocks` counts so many bytes, on every file system.
_STAT_BYTES = 512


class _Entry(NamedTuple):
    used: float
    bytes: int
    path: Path
    goes: bool = True


def make_room(cache: Path, most: int, wanted: int, besides: Collection[Path] = ()) -> bool:
    """Remove what was used longest ago until there is room; nothing if the disk has too little even then.

    Parameters
    ----------
    cache : Path
        The directory of the cache.
    most : int
        Bytes that all of it may take.
    wanted : int
        Bytes that are to be added, on the disk as well.
    besides : collection of Path
        What does not count: the new bytes lie there, or replace it.

    Returns
    -------
    bool
        Whether they fit.
    """
    entries = sorted(entry for entry in _entries(cache) if entry.path not in besides)
    removable = [entry for entry in entries if entry.goes]
    lacking = wanted - shutil.disk_usage(cache).free
    if lacking > sum(entry.bytes for entry in removable):
        return False
    missing = max(lacking, sum(entry.bytes for entry in entries) + wanted - most)
    for entry in removable:
        if missing <= 0:
            break
        _remove(entry.path, cache)
        missing -= entry.bytes
    return missing <= 0


def _entries(cache: Path) -> Iterator[_Entry]:
    """Yield what the cache has, as far as other programs leave it there."""
    for path in list(cache.iterdir()):
        with suppress(FileNotFoundError, NotADirectoryError):
            if INDEX.fullmatch(path.name):
                yield _Entry(path.stat().st_mtime, sum(file.stat().st_size for file in path.iterdir()), path)
            elif path.name.startswith(FRESH):
                yield _Entry(path.stat().st_mtime, _bytes_below(path), path, goes=False)
            elif path.name.startswith(BLOCKS):
                yield from _files(path)


def _files(folder: Path) -> Iterator[_Entry]:
    with os.scandir(folder) as found:
        for file in found:
            with suppress(FileNotFoundError):
                stat = file.stat()
                yield _Entry(stat.st_mtime, _STAT_BYTES * stat.st_blocks, Path(file.path))


def _bytes_below(folder: Path) -> int:
    n = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                n += os.stat(os.path.join(place, name)).st_size
    return n


def _remove(path: Path, cache: Path) -> None:
    """Remove an index, which leaves its place at once, so that none is found without some of its files; or a file."""
    with suppress(FileNotFoundError):  # another program makes room as well
        if not INDEX.fullmatch(path.name):
            path.unlink()
            with suppress(OSError):  # there are others
                path.parent.rmdir()
            return
        gone = path.rename(cache / f"{FRESH}{secrets.token_hex(8)}")
        shutil.rmtree(gone, ignore_errors=True)
