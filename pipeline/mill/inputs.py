"""A watch over the input of an unfinished build, which must not change."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from indexmill.formats.errors import InputError
from indexmill.formats.pagefile.atomic import write_json_atomic
from indexmill.formats.sources.source import VectorSource


class InputWatch:
    """Remembers size and time of change of local input files while their build is unfinished.

    Parameters
    ----------
    root : Path
        The work directory.

    Raises
    ------
    InputError
        If a file has changed since, naming it.
    """

    def __init__(self, root: Path, source: VectorSource) -> None:
        self._paths = [os.path.abspath(path) for path in source.paths if os.path.isfile(path)]
        name = hashlib.sha256("\0".join(self._paths).encode()).hexdigest()[:16]
        self._record = root / f"input-{name}.json"
        if self._record.exists():
            self._seen = json.loads(self._record.read_text())
            self.check()
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
        for path, now in self._now().items():
            if now != self._seen.get(path):
                raise InputError(
                    f"{path}: has changed since this build began: {_words(self._seen.get(path))} then, {_words(now)} "
                    f"now; put the file back, or delete {self._record} to start over from what it holds now"
                )

    def forget(self) -> None:
        """The build is published: its input may change."""
        self._record.unlink(missing_ok=True)

    def _now(self) -> dict[str, list[int]]:
        stats = {path: os.stat(path) for path in self._paths}
        return {path: [s.st_size, s.st_mtime_ns] for path, s in stats.items()}


def _words(seen: list[int] | None) -> str:
    return "absent" if seen is None else f"{seen[0]:,} bytes, changed at {seen[1] / 1e9:.3f}"
