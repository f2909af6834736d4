"""Removing the generations of an index that do not stay: for `gc`, and for runs that change nothing else."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from indexmill.formats.index.names import GENERATIONS_NAME, is_manifest_name
from indexmill.formats.pagefile.atomic import fsync_dir
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.generations.history import Generation
from indexmill.pipeline.generations.keep import lies_in, unneeded
from indexmill.pipeline.mill.earlier import folders


def remove_others(directory: Path, kept: Iterable[Generation]) -> tuple[list[str], int]:
    """Remove the files of all generations of an index but those `kept`; return names, and bytes freed."""
    kept = list(kept)
    removed, size = _cleaned(directory, kept)
    for folder in folders(directory).values():
        names, freed = _cleaned(folder, kept) if lies_in(folder, kept) else _without_folder(folder)
        removed += [str(Path(GENERATIONS_NAME, folder.name, name)) for name in names]
        size += freed
    with suppress(OSError):  # not there, or not empty
        (directory / GENERATIONS_NAME).rmdir()
    return removed, size


def _cleaned(folder: Path, kept: Iterable[Generation]) -> tuple[list[str], int]:
    """Remove what is unneeded from a folder; return names and bytes."""
    names = unneeded(folder, kept)
    manifests = [name for name in names if is_manifest_name(name)]
    others = [name for name in names if not is_manifest_name(name)]
    # Manifests first, for good: no crash leaves one that names a missing file.
    return manifests + others, _remove(folder, manifests) + _remove(folder, others)


def _without_folder(folder: Path) -> tuple[list[str], int]:
    """Remove the folder of generations that are not kept, its manifests first; return no further name, and bytes."""
    size = _remove(folder, [name for name in sorted(os.listdir(folder)) if is_manifest_name(name)])
    size += tree_bytes(folder)
    failpoint("gc-removing")
    shutil.rmtree(folder)
    return [""], size


def _remove(directory: Path, names: list[str]) -> int:
    """Remove files for good; return the bytes that this frees."""
    size = 0
    for name in names:
        size += _freed(directory / name)
        failpoint("gc-removing")
        (directory / name).unlink()
    fsync_dir(directory)
    return size


def _freed(path: Path) -> int:
    """Return the bytes of a file, 0 if it has another name, too."""
    status = path.stat()
    return status.st_size if status.st_nlink == 1 else 0


def tree_bytes(path: Path) -> int:
    """Return the bytes of the files in a directory that have no name outside it."""
    found = [each.stat() for each in path.rglob("*") if each.is_file()]
    names = Counter((status.st_dev, status.st_ino) for status in found)
    sizes = {(status.st_dev, status.st_ino): (status.st_size, status.st_nlink) for status in found}
    return sum(size for file, (size, n_names) in sizes.items() if names[file] == n_names)
