"""Removing earlier generations of an index, and what killed runs left in its directory and beside it."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from indexmill.formats.index.manifest import Manifest, parse_manifest
from indexmill.formats.index.names import GENERATIONS_NAME, is_manifest_name
from indexmill.formats.pagefile.atomic import fsync_dir
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.generations.history import Generation, changing
from indexmill.pipeline.generations.jobs import JOB_KIND, can_resume
from indexmill.pipeline.generations.keep import check_keep, lies_in, newest, unneeded
from indexmill.pipeline.generations.run import scratch_directory
from indexmill.pipeline.mill.earlier import folders
from indexmill.pipeline.mill.publish import bring_back, index_lock, leftovers, remove_leftover


def run_gc(
    index: str | os.PathLike[str], keep: int = 1, work: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Remove all but the newest generations of an index, and what killed runs left in its directory and beside it.

    Readers keep the files that they have open. What a build or an import left stays: its next run resumes
    with it. So does what a compaction left, while the index has deletions, and what an update of the index left, while
    the index is as that update found it. Where there is no index yet, all that runs with this output left goes, except
    that of builds and imports.

    Parameters
    ----------
    keep : int
        Generations to keep, the present one among them.
    work : path, optional
        Another directory where runs had their scratch files.

    Returns
    -------
    dict
        ``removed`` (names of files, and of directories), ``bytes`` (that this frees) and ``generations`` (those kept).

    Raises
    ------
    ConfigError
        If `keep` is less than 1.
    InputError
        If there is neither an index nor anything that a run left.
    """
    check_keep(keep)
    path = Path(os.path.realpath(index))
    bring_back(path)
    if not path.exists() and (leftovers(path) or _scratch(path, work, None)):
        with index_lock(path):
            present = parse_manifest(path) if path.exists() else None
            removed, size = _without_left(path, work, present)
        return {"removed": removed, "bytes": size, "generations": []}
    with changing(index, "free some space, and run again") as directory:
        kept = newest(directory, keep)
        removed, size = _cleaned(directory, kept)
        for folder in folders(directory).values():
            names, freed = _cleaned(folder, kept) if lies_in(folder, kept) else _without_folder(folder)
            removed += [str(Path(GENERATIONS_NAME, folder.name, name)) for name in names]
            size += freed
        with suppress(OSError):  # not there, or not empty
            (directory / GENERATIONS_NAME).rmdir()
        names, freed = _without_left(directory, work, kept[-1].manifest)
    return {
        "removed": removed + names,
        "bytes": size + freed,
        "generations": [one.manifest.generation for one in kept],
    }


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
    size += _tree_bytes(folder)
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


def _scratch(directory: Path, work: str | os.PathLike[str] | None, present: Manifest | None) -> list[Path]:
    """Return the scratch directories of runs that failed or were killed, beside an index and in `work`.

    Those of a compaction and of an update with which their next run resumes, with the `present` index, are left out.
    """
    places = [None] if work is None else [None, work]
    found = [
        (kind, path)
        for place in places
        for kind in ("scratch", "compact", JOB_KIND)
        if (path := scratch_directory(directory, place, kind)).is_dir()
    ]
    return [path for kind, path in found if present is None or not _resumes(kind, path, present)]


def _resumes(kind: str, path: Path, present: Manifest) -> bool:
    if kind == JOB_KIND:
        return can_resume(path, present.state)
    return kind == "compact" and present.deleted is not None


def _without_left(
    directory: Path, work: str | os.PathLike[str] | None, present: Manifest | None
) -> tuple[list[str], int]:
    """Remove what runs left beside an index and in `work`, as `_scratch`; return names, and bytes freed."""
    names, size = [], 0
    for path in leftovers(directory):
        size += _tree_bytes(path)
        remove_leftover(path)
        names.append(path.name)
    for path in _scratch(directory, work, present):
        size += _tree_bytes(path)
        shutil.rmtree(path)
        names.append(path.name)
    return names, size


def _freed(path: Path) -> int:
    """Return the bytes of a file, 0 if it has another name, too."""
    status = path.stat()
    return status.st_size if status.st_nlink == 1 else 0


def _tree_bytes(path: Path) -> int:
    """Return the bytes of the files in a directory that have no name outside it."""
    found = [each.stat() for each in path.rglob("*") if each.is_file()]
    names = Counter((status.st_dev, status.st_ino) for status in found)
    sizes = {(status.st_dev, status.st_ino): (status.st_size, status.st_nlink) for status in found}
    return sum(size for file, (size, n_names) in sizes.items() if names[file] == n_names)
