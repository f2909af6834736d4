"""Reading files of an index that belong together, while another run may publish its next generation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from indexmill.formats.errors import ForeignFile, FormatError, IndexReplaced
from indexmill.formats.index.checked import manifest_bytes
from indexmill.formats.index.names import MANIFEST_NAME

T = TypeVar("T")

#: Attempts: each one fails only if the index was replaced at that moment.
_ATTEMPTS = 100


def read_together(directory: str | Path, read: Callable[[], T]) -> T:
    """Return what `read` returns; call it again if it fails and manifest.json was replaced meanwhile.

    Files of the generation that it began with may be gone then.

    Parameters
    ----------
    directory : path
        Of the index.
    read : callable
        Reads the manifest first. What it opens before it fails, it closes.

    Raises
    ------
    FormatError, IndexReplaced, OSError
        Of `read`, if the index was not replaced.
    """
    manifest = Path(directory) / MANIFEST_NAME
    for _ in range(_ATTEMPTS):
        before = _content(manifest)
        try:
            return read()
        except (FormatError, IndexReplaced, OSError):
            if _content(manifest) == before:
                raise
    return read()


def _content(path: Path) -> bytes | None:
    try:
        return manifest_bytes(path)
    except (OSError, ForeignFile):
        return None
