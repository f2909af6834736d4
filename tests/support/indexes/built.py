"""Indexes that tests read and do not change, each built once for all of them."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


class Built:
    """Makes each index once, also for several processes that share a folder.

    ``built(make, *arguments, **parameters)`` returns the directory that ``make(out, *arguments, **parameters)`` wrote,
    whoever called it first. Tests that change an index change a copy.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def __call__(self, make: Callable[..., Any], *arguments: Any, **parameters: Any) -> Path:
        key = _key(f"{make.__module__}.{make.__qualname__}", arguments, parameters)
        home = self.folder / key
        with open(self.folder / f"{key}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (home / "done").exists():
                home.mkdir(exist_ok=True)
                make(home / "ix", *arguments, **parameters)
                (home / "done").touch()
        return home / "ix"


def _key(name: str, arguments: tuple[Any, ...], parameters: dict[str, Any]) -> str:
    digest = hashlib.sha256(name.encode())
    for what, value in [*enumerate(arguments), *sorted(parameters.items())]:
        digest.update(f"\0{what}=".encode())
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype.str} {value.shape} ".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        else:
            digest.update(repr(value).encode())
    return digest.hexdigest()[:20]
