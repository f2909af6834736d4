"""Files that appear whole or not at all: temporary name, fsync, rename, fsync of the directory."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

#: Of Linux's renameat2: paths are relative to the working directory; swap two names in one step.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
#: What kernels without it, file systems without the exchange, and sandboxes that hide either answer.
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)


def fsync_dir(directory: str | Path) -> None:
    """Make the names in `directory` durable; a rename survives a power cut only after this."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """Open a new binary file (readable and seekable too) that takes the name `path` when the block ends well.

    The temporary name starts with a dot and lies in the same directory, since a rename cannot cross file
    systems. When the block raises, the temporary file is removed and `path` stays what it was.

    Raises
    ------
    OSError
        If the file cannot be created, written or renamed.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_dir(path.parent)


def write_json_atomic(path: str | Path, value: Mapping[str, Any]) -> None:
    """Write `value` as UTF-8 JSON: two spaces of indent, keys in the mapping's order, one trailing newline.

    Raises
    ------
    ValueError
        If `value` holds NaN or infinity, which JSON cannot say.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_write(path) as file:
        file.write(text.encode())


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Give a file a second name, or a copy where the file system has no hard links or it is another one."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def exchange(first: str | Path, second: str | Path) -> bool:
    """Swap the names of two files or directories in one step, so that neither name is ever free.

    Returns
    -------
    bool
        False, with nothing changed, where the system or the file system cannot do it: systems other than Linux,
        kernels before 3.15, some network file systems.

    Raises
    ------
    OSError
        If either is missing, or on another file system than the other.
    """
    rename = _renameat2()
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error in _NO_EXCHANGE:
        return False
    raise OSError(error, os.strerror(error), str(first), None, str(second))


@cache
def _renameat2() -> Callable[..., int] | None:
    """The C library's function, in glibc since 2.28 and musl since 1.2.4."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]
