"""Page files that the next generation of an index takes over from the one before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from indexmill.formats.index.manifest import FileEntry, Manifest, check_copied
from indexmill.formats.pagefile.atomic import can_link, link_or_copy


def take_over(index: Path, manifest: Manifest, names: Iterable[str], directory: Path) -> list[FileEntry]:
    """Give files of `index`, which has that `manifest`, a second name in `directory`, or copy them if that fails.

    Names fail on another file system, which ``--work`` or ``--out`` may lead to; `copied_bytes` tells.

    Returns
    -------
    list of FileEntry
        What the next manifest says of them: the digests of this one, and the build ids in their headers.

    Raises
    ------
    FormatError, FileNotFoundError
        If another index has taken the place of this one.
    """
    wanted, entries = set(names), []
    for entry in manifest.files:
        if entry.name in wanted:
            link_or_copy(index / entry.name, directory / entry.name)
            check_copied(directory, manifest, entry)
            entries.append(replace(entry, build_id=manifest.header_build_id(entry).hex()))
    return entries


def copied_bytes(index: Path, manifest: Manifest, names: Iterable[str], directory: Path) -> int:
    """Return the room that `take_over` fills in `directory`: that of the files if it copies them, else none."""
    wanted = set(names)
    entries = [entry for entry in manifest.files if entry.name in wanted]
    if not entries or can_link(index / entries[0].name, directory):
        return 0
    return sum(entry.bytes for entry in entries)
