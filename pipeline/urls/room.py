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

#: Names of indexes that are whole; and how names of folders begin that are being fetched, that are being removed, by
#: anyone, and that have blocks. Nothing else is touched.
INDEX, FRESH, REMOVED, BLOCKS = re.compile(r"[0-9a-f]{32}"), "fetching-", "removing-", "blocks-"
#: Of a reserve, so many bytes are to be free on the disk: what others leave free there is theirs.
_DISK_RESERVE_BYTES = 64 << 20
#: `st_blocks` counts so many bytes, on every file system.
_STAT_BYTES = 512


class _Entry(NamedTuple):
    used: float
    bytes: int
    path: Path
    goes: bool = True


def make_room(cache: Path, most: int, wanted: int, reserve: int = 0, besides: Collection[Path] = ()) -> int:
    """Remove what was used longest ago until there is room; nothing if there is too little even then.

    Parameters
    ----------
    cache : Path
        The directory of the cache.
    most : int
        Bytes that all of it may take.
    wanted : int
        Bytes that are to be added, on the disk as well.
    reserve : int
        Bytes that had better be free beyond them. No whole index goes for these.
    besides : collection of Path
        What does not count: the new bytes lie there, or replace it.

    Returns
    -------
    int
        Bytes that fit now; 0 if `wanted` do not.
    """
    entries = sorted(entry for entry in _entries(cache) if entry.path not in besides)
    removable = [entry for entry in entries if entry.goes]
    bound, disk = most - sum(entry.bytes for entry in entries), shutil.disk_usage(cache).free
    if wanted - min(bound, disk) > sum(entry.bytes for entry in removable):
        return 0
    for entry in removable:
        has_reserve = min(bound - reserve, disk - min(reserve, _DISK_RESERVE_BYTES)) >= wanted
        if has_reserve or (min(bound, disk) >= wanted and INDEX.fullmatch(entry.path.name)):
            break
        if _remove(entry.path, cache):
            bound, disk = bound + entry.bytes, disk + entry.bytes
    room = min(bound, disk)
    return room if room >= wanted else 0


def _entries(cache: Path) -> Iterator[_Entry]:
    """Yield what the cache has, as far as other programs leave it there."""
    for path in list(cache.iterdir()):
        with suppress(OSError):
            if INDEX.fullmatch(path.name):
                yield _Entry(path.stat().st_mtime, sum(file.stat().st_size for file in path.iterdir()), path)
            elif path.name.startswith(REMOVED):  # before all others
                yield _Entry(0.0, _bytes_below(path), path)
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
            with suppress(OSError):
                n += os.stat(os.path.join(place, name)).st_size
    return n


def _remove(path: Path, cache: Path) -> bool:
    """Remove an index, which leaves its place at once, so that none is found without some of its files; or a file.

    Returns
    -------
    bool
        Whether it is gone.
    """
    try:
        if INDEX.fullmatch(path.name):
            path = path.rename(cache / f"{REMOVED}{secrets.token_hex(8)}")
        if path.name.startswith(REMOVED):
            shutil.rmtree(path, ignore_errors=True)
            return not path.exists()
        path.unlink()
        with suppress(OSError):  # there are others
            path.parent.rmdir()
    except FileNotFoundError:  # another program makes room as well
        return True
    except OSError:  # not ours to remove
        return False
    return True
