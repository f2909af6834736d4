"""Removing earlier generations of an index, and what killed runs left in its directory and beside it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from indexmill.formats.index.manifest import Manifest, parse_manifest
from indexmill.formats.index.names import EXPORT_NAME, MANIFEST_NAME
from indexmill.pipeline.generations.history import changing
from indexmill.pipeline.generations.keep import check_keep, link_probe, newest
from indexmill.pipeline.generations.removal import remove_others, tree_bytes
from indexmill.pipeline.generations.scratch import (
    COMPACT_KIND,
    EXPORT_KIND,
    JOB_KIND,
    SCRATCH_KIND,
    can_resume,
    scratch_directory,
)
from indexmill.pipeline.mill.publish import bring_back, index_lock, leftovers, remove_leftover


def run_gc(
    index: str | os.PathLike[str], keep: int = 1, work: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Remove all but the newest generations of an index, and what killed runs left in its directory and beside it.

    Readers keep the files that they have open. What a build or an import left stays: its next run resumes
    with it. So does what a compaction, an update, or a merge of lists or tables left, while the index is as that run
    found it. Where there is no index yet, or an export, all that runs with this output left goes, except that of builds
    and imports.

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
    for seal in (MANIFEST_NAME, EXPORT_NAME):
        bring_back(path, seal)
    if is_export(path) or (not path.exists() and (leftovers(path) or _scratch(path, work, None))):
        with index_lock(path):
            present = parse_manifest(path) if path.exists() and not is_export(path) else None
            removed, size = _without_left(path, work, present)
        return {"removed": removed, "bytes": size, "generations": []}
    with changing(index, "free some space, and run again") as directory:
        kept = newest(directory, keep)
        removed, size = remove_others(directory, kept)
        names, freed = _without_left(directory, work, kept[-1].manifest)
    return {
        "removed": removed + names,
        "bytes": size + freed,
        "generations": [one.manifest.generation for one in kept],
    }


def is_export(path: Path) -> bool:
    """Tell whether an export lies at `path`, which has no generations."""
    return (path / EXPORT_NAME).is_file()


def _scratch(directory: Path, work: str | os.PathLike[str] | None, present: Manifest | None) -> list[Path]:
    """Return the scratch directories of runs that failed or were killed, beside an index and in `work`.

    Those of runs that began with the `present` index, with which their next run resumes, are left out.
    """
    places = [None] if work is None else [None, work]
    found = [
        path
        for place in places
        for kind in (SCRATCH_KIND, COMPACT_KIND, JOB_KIND, EXPORT_KIND)
        if (path := scratch_directory(directory, place, kind)).is_dir()
    ]
    return [path for path in found if present is None or not can_resume(path, present.state)]


def _without_left(
    directory: Path, work: str | os.PathLike[str] | None, present: Manifest | None
) -> tuple[list[str], int]:
    """Remove what runs left beside an index and in `work`, as `_scratch`; return names, and bytes freed."""
    names, size = [], 0
    link_probe(directory).unlink(missing_ok=True)
    for path in leftovers(directory):
        size += tree_bytes(path)
        remove_leftover(path)
        names.append(path.name)
    for path in _scratch(directory, work, present):
        size += tree_bytes(path)
        shutil.rmtree(path)
        names.append(path.name)
    return names, size
