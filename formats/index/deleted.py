"""deleted-NNNNNN.imx: the slots of deleted vectors (docs/formats/deleted.md)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.index.manifest import FileEntry, Manifest, file_sha256
from indexmill.formats.index.names import deleted_name
from indexmill.formats.kinds import DELETED_KIND
from indexmill.formats.pagefile.frame import corrupt
from indexmill.formats.pagefile.reader import PageFile
from indexmill.formats.pagefile.writer import PageFileWriter, stamp_build_id


def write_deleted(path: str | Path, n: int, slots: NDArray[np.integer], build_id: bytes) -> None:
    """Write the slots of the deleted vectors of an index.

    Parameters
    ----------
    n : int
        Slots of the index.
    slots : integer array, shape (m,)
        At least one; ascending, each below n and no two equal.
    build_id : bytes
        The 16 bytes that every page file of the index has.

    Raises
    ------
    ValueError
        If the slots are not such.
    """
    if not len(slots) or not _are_ascending(slots, n):
        raise ValueError(f"deleted slots: not ascending in [0, {n})")
    with PageFileWriter(path, DELETED_KIND, {"n_vertices": n, "n_deleted": len(slots)}) as file:
        file.array("slots", slots, "<u4")
    stamp_build_id(path, build_id)


def next_generation(
    directory: str | Path, manifest: Manifest, n: int, slots: NDArray[np.integer]
) -> Manifest:
    """Write the file of deletions of the generation after `manifest`; return its manifest, which is not written yet.

    Parameters
    ----------
    n, slots
        As in `write_deleted`; the slots are all that are deleted then.
    """
    generation = manifest.generation + 1
    name = deleted_name(generation)
    path = Path(directory) / name
    write_deleted(path, n, slots, manifest.page_file_build_id)
    entry = FileEntry(name, path.stat().st_size, file_sha256(path))
    return replace(
        manifest,
        generation=generation,
        deleted={"file": name, "vectors": len(slots), "previous": manifest.generation},
        files=tuple(sorted([*manifest.built_files, entry], key=lambda file: file.name)),
    )


def read_deleted(directory: str | Path, manifest: Manifest, n: int) -> NDArray[np.uint32]:
    """Return the slots of the deleted vectors of an index of `n` slots, ascending: uint32 (m,), read-only.

    Raises
    ------
    FormatError
        If the file that the manifest names is damaged, or not of this index.
    """
    if manifest.deleted is None:
        return np.empty(0, np.uint32)
    path, vectors = Path(directory) / manifest.deleted["file"], manifest.deleted["vectors"]
    with PageFile(path, DELETED_KIND, manifest.page_file_build_id) as file:
        file.field("n_vertices", n, n)
        file.field("n_deleted", vectors, vectors)
        slots = file.array("slots", "<u4", vectors)
    if not _are_ascending(slots, n):
        raise corrupt(path, "section 'slots'", f"ascending slots below {n}", "others")
    return slots


def are_deleted(slots: NDArray[np.integer], deleted: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return which of `slots`, in any order, are among the `deleted` ones, which ascend."""
    if not len(deleted):
        return np.zeros(len(slots), np.bool_)
    at = np.minimum(np.searchsorted(deleted, slots), len(deleted) - 1)
    return np.asarray(deleted[at] == slots)


def _are_ascending(slots: NDArray[np.integer], n: int) -> bool:
    wide = slots.astype(np.int64)
    return bool((np.diff(wide) > 0).all()) and int(wide[0]) >= 0 and int(wide[-1]) < n
