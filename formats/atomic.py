"""Files that appear whole or not at all: temporary name, fsync, rename, fsync of the directory."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


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
