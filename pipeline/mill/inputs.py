"""A watch over the input of an unfinished build, which must not change."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from indexmill.formats.errors import InputError
from indexmill.formats.pagefile.atomic import write_json_atomic
from indexmill.formats.sources.joined import JoinedSource, VectorSource
from indexmill.formats.urls.client import Seen


class ObjectWatch:
    """Remembers size and version of files at URLs while they are read more than once.

    What a file system tells as the version is its own: a tag, a generation number or a time. Where it tells none, files
    are told by their size.

    Raises
    ------
    StorageError
        Here and in `check`, if storage refuses, or does not answer.
    """

    def __init__(self, source: VectorSource) -> None:
        self._files = source.objects if isinstance(source, JoinedSource) else ()
        self._before = [file.seen() for file in self._files]

    def check(self) -> None:
        """Refuse files that are not what they were.

        Raises
        ------
        InputError
            Naming the first of them.
        """
        for file, before in zip(self._files, self._before, strict=True):
            now = file.seen()
            if now != before:
                raise InputError(
                    f"{file.name}: replaced while it was read: {_object_words(before)} before, {_object_words(now)} "
                    "now; nothing was published; run it again, and leave the file alone until it has ended"
                )


class InputWatch:
    """Remembers size and time of change of local input files while their build is unfinished, also when it was killed.

    Files at URLs are watched by every run for itself: each reads them whole, and their bytes decide which finished
    stages it takes up.

    Parameters
    ----------
    root : Path
        The work directory.

    Raises
    ------
    InputError
        If a local file has changed since, naming it.
    StorageError
        As `ObjectWatch`.
    """

    def __init__(self, root: Path, source: VectorSource) -> None:
        self._paths = [os.path.abspath(path) for path in source.paths if os.path.isfile(path)]
        self._objects = ObjectWatch(source)
        name = hashlib.sha256("\0".join(self._paths).encode()).hexdigest()[:16]
        self._record = root / f"input-{name}.json"
        if self._record.exists():
            self._seen = json.loads(self._record.read_text())
            self._check_local()
        else:
            self._seen = self._now()
            write_json_atomic(self._record, self._seen)

    def check(self) -> None:
        """Refuse files that are not what they were.

        Raises
        ------
        InputError
            Naming the first of them.
        """
        self._check_local()
        self._objects.check()

    def forget(self) -> None:
        """The build is published: its input may change."""
        self._record.unlink(missing_ok=True)

    def _check_local(self) -> None:
        for path, now in self._now().items():
            if now != self._seen.get(path):
                raise InputError(
                    f"{path}: has changed since this build began: {_words(self._seen.get(path))} then, {_words(now)} "
                    f"now; put the file back as it was; or, to build from it as it is, delete {self._record} first"
                )

    def _now(self) -> dict[str, list[int] | None]:
        return {path: _facts(path) for path in self._paths}


def _facts(path: str) -> list[int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return [status.st_size, status.st_mtime_ns]


def _words(seen: list[int] | None) -> str:
    return "absent" if seen is None else f"{seen[0]:,} bytes, changed at {seen[1] / 1e9:.3f}"


def _object_words(seen: Seen | None) -> str:
    if seen is None:
        return "absent"
    size = "of unknown size" if seen.bytes is None else f"{seen.bytes:,} bytes"
    return size if seen.version is None else f"{size}, version {seen.version}"
