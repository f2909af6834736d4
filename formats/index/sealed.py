"""Files of an index: their names, digests and sizes, and the build id over all of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from indexmill.formats.index.names import MANIFEST_NAME, RUN_NAME
from indexmill.formats.pagefile.atomic import fsync_dir
from indexmill.formats.pagefile.frame import BUILD_ID_BYTES, corrupt
from indexmill.formats.pagefile.reader import content_digest
from indexmill.formats.pagefile.writer import stamp_build_id

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class FileEntry:
    """One file of an index: its name in the directory, its size and the SHA-256 (hex) of its bytes."""

    name: str
    bytes: int
    sha256: str


def build_id(digests: Mapping[str, str]) -> str:
    """Return the build id (64 hex digits) of files whose content digests, by name, are `digests`."""
    lines = "".join(f"{name} {digests[name]}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 (hex) of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal_files(directory: str | Path, names: Iterable[str]) -> tuple[str, tuple[FileEntry, ...]]:
    """Compute the build id of finished files, write it into the page files, and list all files for the manifest.

    Every file is read twice, because its SHA-256 covers the build id. Repeating this changes nothing.

    Parameters
    ----------
    directory : str or Path
    names : iterable of str
        All files of the index except manifest.json and run.json.

    Returns
    -------
    build_id : str
        64 hex digits.
    files : tuple of FileEntry
    """
    directory, names = Path(directory), sorted(names)
    for name in names:
        if not is_file_name(name):
            raise ValueError(f"file name: one component of [A-Za-z0-9._-] with no dot in front, not {name!r}")
    identity = build_id({name: content_digest(directory / name) for name in names})
    entries = []
    for name in names:
        path = directory / name
        if path.suffix == ".imx":
            stamp_build_id(path, bytes.fromhex(identity)[:BUILD_ID_BYTES])
        entries.append(FileEntry(name, path.stat().st_size, file_sha256(path)))
    fsync_dir(directory)
    return identity, tuple(entries)


def check_size(directory: str | Path, entry: FileEntry) -> None:
    """Raise `CorruptFile` unless the file of `entry` exists with the stated size."""
    path = Path(directory) / entry.name
    if not path.is_file():
        raise corrupt(path, "file", f"{entry.bytes} bytes", "no such file")
    if path.stat().st_size != entry.bytes:
        raise corrupt(path, "size of the file", f"{entry.bytes} bytes", f"{path.stat().st_size} bytes")


def is_file_name(name: str) -> bool:
    """Return whether a file of an index may have this name."""
    return _NAME.fullmatch(name) is not None and name not in (MANIFEST_NAME, RUN_NAME)
