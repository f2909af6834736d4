"""Removing earlier generations of an index, and what killed runs left in its directory and beside it."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from indexmill.formats.errors import ConfigError, CorruptFile, ForeignFile
from indexmill.formats.index.names import MANIFEST_NAME, is_deleted_name, kept_generation, kept_name
from indexmill.formats.pagefile.atomic import fsync_dir
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.generations.history import Generation, changing, kept_numbers, read_generation
from indexmill.pipeline.generations.run import scratch_directory
from indexmill.pipeline.mill.publish import leftovers, remove_leftover

#: What a write that was killed left: `formats.pagefile.atomic.atomic_write` names it after its file.
_UNFINISHED = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")


def run_gc(index: str | os.PathLike[str], keep: int = 1) -> dict[str, Any]:
    """Remove all but the newest generations of an index, and what killed runs left in its directory and beside it.

    Readers keep the files that they have open. What a build or an import left stays: its next run resumes
    with it. So does what a compaction left, while the index has deletions.

    Parameters
    ----------
    keep : int
        Generations to keep, the present one among them.

    Returns
    -------
    dict
        ``removed`` (names of files, and of directories beside the index), ``bytes`` (their sizes) and ``generations``
        (those kept).

    Raises
    ------
    ConfigError
        If `keep` is less than 1.
    """
    if keep < 1:
        raise ConfigError(f"keep-generations: expected at least 1, the present one, got {keep}")
    with changing(index, "free some space, and run again") as directory:
        kept = _newest(directory, keep)
        named = {entry.name for one in kept for entry in one.manifest.files}
        named |= {kept_name(one.manifest.generation) for one in kept if not one.present}
        unneeded = [
            name for name in sorted(os.listdir(directory)) if _is_removable(name) and name not in named
        ]
        manifests = [name for name in unneeded if kept_generation(name) is not None]
        others = [name for name in unneeded if kept_generation(name) is None]
        # Manifests first, for good: no crash leaves one that names a missing file.
        size = _remove(directory, manifests) + _remove(directory, others)
        beside, unused = leftovers(directory), [scratch_directory(directory)]
        if kept[-1].manifest.deleted is None:  # no compaction resumes
            unused.append(scratch_directory(directory, kind="compact"))
        for path in beside:
            size += _tree_bytes(path)
            remove_leftover(path)
        for path in filter(Path.is_dir, unused):
            size += _tree_bytes(path)
            shutil.rmtree(path)
            beside.append(path)
    return {
        "removed": manifests + others + [path.name for path in beside],
        "bytes": size,
        "generations": [one.manifest.generation for one in kept],
    }


def _newest(directory: Path, count: int) -> list[Generation]:
    """Return the newest generations in order, without those whose manifest is damaged: no way leads back to them."""
    found = [read_generation(directory)]
    for number in sorted(kept_numbers(directory) - {found[0].manifest.generation}, reverse=True):
        if len(found) < count:
            with suppress(CorruptFile, ForeignFile):
                found.append(read_generation(directory, number))
    return found[::-1]


def _remove(directory: Path, names: list[str]) -> int:
    """Remove files for good; return their bytes."""
    size = 0
    for name in names:
        size += (directory / name).stat().st_size
        failpoint("gc-removing")
        (directory / name).unlink()
    fsync_dir(directory)
    return size


def _tree_bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def _is_removable(name: str) -> bool:
    """Return whether a file was written by a change of generations, finished or not."""
    unfinished = _UNFINISHED.fullmatch(name)
    written = name if unfinished is None else unfinished[1]
    is_change = is_deleted_name(written) or kept_generation(written) is not None
    return is_change or (unfinished is not None and written == MANIFEST_NAME)
