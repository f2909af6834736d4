"""The content-addressed stage store: a finished stage is found again by what went into it.

The outputs of a stage live in ``<root>/<stage>-<key>``, where the key is the SHA-256 of (stage, its code
version, its parameters, the keys of its inputs). They are written into a ``.partial`` directory that is
fsynced and renamed when the stage is complete, so a directory without that suffix is always whole: a build
that was killed goes on where it stopped, and two orders of one graph share every stage before the order.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from indexmill.formats.atomic import fsync_dir
from indexmill.formats.errors import ConfigError

#: Packages whose code decides bytes.
_SOFTWARE = ("indexmill", "numpy", "numba", "pyarrow", "scikit-learn")
_LOCK = "lock"


@cache
def software_versions() -> dict[str, str]:
    """Return the versions that stand in every key and in the manifest."""
    return {name: version(name) for name in _SOFTWARE}


class StageStore:
    """Stage outputs under one directory, locked against a second build.

    Parameters
    ----------
    root : Path
        Made if it is missing.

    Raises
    ------
    ConfigError
        If another build is using `root`, or it holds other things.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()) and not (root / _LOCK).is_file():
            raise ConfigError(f"work: {root} holds other things; name an empty or new directory with --work")
        self._lock = open(root / _LOCK, "w")  # noqa: SIM115 - held until close
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise ConfigError(
                f"work: {root} is in use by another build; wait for it or name another --work"
            ) from None

    def key(self, stage: str, code_version: int, parameters: Mapping[str, Any], inputs: Sequence[str]) -> str:
        """Return the hex key of a stage; `parameters` must be JSON."""
        text = json.dumps(
            [stage, code_version, dict(parameters), list(inputs), software_versions()], sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def path(self, stage: str, key: str) -> Path:
        """Return where the outputs of a stage live, or will."""
        return self.root / f"{stage}-{key[:16]}"

    def make(
        self, stage: str, key: str, write: Callable[[Path], None], resume: bool = False
    ) -> tuple[Path, bool]:
        """Return the stage's directory, calling ``write(directory)`` first unless it is there.

        Parameters
        ----------
        resume : bool
            Whether `write` wants to find what an earlier, killed call left in the directory.

        Returns
        -------
        path : Path
        reused : bool
        """
        path = self.path(stage, key)
        if path.exists():
            return path, True
        partial = path.with_name(path.name + ".partial")
        if partial.exists() and not resume:
            shutil.rmtree(partial)
        partial.mkdir(exist_ok=True)
        write(partial)
        for file in (p for p in partial.rglob("*") if p.is_file()):
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        fsync_dir(partial)
        partial.rename(path)
        fsync_dir(self.root)
        return path, False

    def close(self) -> None:
        """Give up the lock; the outputs stay."""
        self._lock.close()

    def remove(self) -> None:
        """Delete the store, while no other build can take it."""
        shutil.rmtree(self.root)
        self.close()
