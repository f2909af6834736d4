"""Atomic writes: temporary name, fsync, rename, fsync of the directory."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

#: Random bytes in the name of a temporary file.
_TOKEN_BYTES = 8
#: Names of all temporary files of `atomic_write`.
UNFINISHED_FILES = ".*.tmp"
#: A full disk, a full share of it, a file larger than may be, and a file system that can only be read.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
#: Arguments of Linux's renameat2: paths relative to the working directory; exchange two names.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
#: Errors of kernels without renameat2, of file systems without the exchange, and of sandboxes that hide either.
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)


def fsync_dir(directory: str | Path) -> None:
    """Make the names in `directory` durable: only then does a rename survive a power failure."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """Open a new binary file, also readable and seekable, which becomes `path` when the block succeeds.

    The temporary file starts with a dot and is in the same directory, because a rename cannot cross file systems. If
    the block raises, the temporary file is removed and `path` stays unchanged.

    Raises
    ------
    OSError
        If the file cannot be created, written or renamed; where the disk takes no more, the error names `path`.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(_TOKEN_BYTES)}.tmp")
    try:
        with open(temporary, "x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in NO_SPACE and error.filename is None:
            error.filename = str(path)
        raise
    fsync_dir(path.parent)


def remove_unfinished(path: str | Path) -> None:
    """Remove the temporary files that killed writers of `path` left; nobody else may be writing it now."""
    path = Path(path)
    left = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{{2 * _TOKEN_BYTES}}}\.tmp")
    for entry in path.parent.iterdir():
        if left.fullmatch(entry.name):
            entry.unlink()


def write_json_atomic(path: str | Path, value: Mapping[str, Any]) -> None:
    """Write `value` as UTF-8 JSON: two spaces of indent, keys in the mapping's order, one trailing newline.

    Raises
    ------
    ValueError
        If `value` contains NaN or infinity, which JSON cannot represent.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_write(path) as file:
        file.write(text.encode())


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Create a hard link to a file, or a copy if the file system has no hard links or is another one."""
    try:
        os.link(source, target)
    except OSError:
        copy_file(source, target)


def copy_file(source: str | Path, target: str | Path) -> None:
    """Copy the bytes of a file to a new one.

    Raises
    ------
    OSError
        Where the disk takes no more, naming `target`, the bytes that are needed and those that are free.
    """
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        with suppress(OSError):
            os.unlink(target)
        free = shutil.disk_usage(Path(target).parent).free
        needed = f"copying {source} takes {os.path.getsize(source):,} bytes, {free:,} are free"
        raise OSError(error.errno, f"{os.strerror(error.errno)}; {needed}", str(target)) from error


def can_link(source: str | Path, directory: str | Path) -> bool:
    """Tell whether `link_or_copy` would create a hard link to a file in `directory`; else it copies."""
    name = Path(directory) / f"link-{secrets.token_hex(8)}"
    try:
        os.link(source, name)
    except OSError:
        return False
    os.unlink(name)
    return True


def exchange(first: str | Path, second: str | Path) -> bool:
    """Exchange the names of two files or directories in one step, so that both names always exist.

    Returns
    -------
    bool
        False, with nothing changed, if it is not supported: systems other than Linux, kernels before 3.15, some
        network file systems.

    Raises
    ------
    OSError
        If one is missing, or they are on different file systems.
    """
    rename = renameat2()
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error in _NO_EXCHANGE:
        return False
    raise OSError(error, os.strerror(error), str(first), None, str(second))


@cache
def renameat2() -> Callable[..., int] | None:
    """Return the C library's function (glibc since 2.28, musl since 1.2.4), or None."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]
