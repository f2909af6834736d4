"""Folders that end with the process that made them: a later process removes those of a killed one.

The process holds a lock on a file in its folder, which the system frees when the process is gone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK_NAME = ".held"
#: Seconds after which a folder without that file is no new one: the process that made it was killed then.
_NEW_SECONDS = 3600.0


@contextmanager
def held_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a folder for the length of a block."""
    folder, lock = _made(parent, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_left(parent: Path, prefix: str) -> None:
    """Remove folders of processes that are gone."""
    for folder in parent.glob(f"{prefix}*"):
        with suppress(FileNotFoundError):  # its process, or another one that looks, removes it now
            _remove_if_left(folder)


def _made(parent: Path, prefix: str) -> tuple[Path, int]:
    """Return a new folder and the descriptor of its lock; another one if a process that looks was faster."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.stat(folder / _LOCK_NAME)
        except (BlockingIOError, FileNotFoundError):
            os.close(lock)
            continue
        except BaseException:
            os.close(lock)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder, lock


def _remove_if_left(folder: Path) -> None:
    try:
        lock = os.open(folder / _LOCK_NAME, os.O_RDWR)
    except FileNotFoundError:
        if time.time() - folder.stat().st_mtime > _NEW_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return
    finally:
        os.close(lock)
