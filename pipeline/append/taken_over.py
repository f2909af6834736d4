"""Page files that the next generation of an index takes over from the one before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from indexmill.formats.index.manifest import FileEntry, Manifest
from indexmill.formats.pagefile.atomic import link_or_copy


def take_over(index: Path, manifest: Manifest, names: Iterable[str], directory: Path) -> list[FileEntry]:
    """Give files of `index`, which has that `manifest`, a second name in `directory`; nothing of them is read.

    Returns
    -------
    list of FileEntry
        What the next manifest says of them: the digests of this one, and the build ids in their headers.
    """
    wanted, entries = set(names), []
    for entry in manifest.files:
        if entry.name in wanted:
            link_or_copy(index / entry.name, directory / entry.name)
            entries.append(replace(entry, build_id=manifest.header_build_id(entry).hex()))
    return entries
