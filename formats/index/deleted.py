"""deleted-NNNNNN.imx: the slots of deleted vectors (docs/formats/deleted.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.index.manifest import FileEntry, Manifest, file_sha256
from indexmill.formats.index.names import deleted_name
from indexmill.formats.kinds import DELETED_KIND
from indexmill.formats.pagefile.frame import PAGE_BYTES, corrupt, pages_for
from indexmill.formats.pagefile.reader import PageFile
from indexmill.formats.pagefile.writer import PageFileWriter

#: Slots that are read at a time, a multiple of those of a page.
_BLOCK = 1 << 17


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
    fields = {"n_vertices": n, "n_deleted": len(slots)}
    with PageFileWriter(path, DELETED_KIND, fields, build_id) as file:
        file.array("slots", slots, "<u4")


def next_generation(
    directory: str | Path, manifest: Manifest, generation: int, n: int, slots: NDArray[np.integer]
) -> Manifest:
    """Write the file of deletions of a generation made from `manifest`; return its manifest, not written yet.

    Parameters
    ----------
    generation : int
        Its number.
    n, slots
        As in `write_deleted`; the slots are all that are deleted then.
    """
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
    """Return the slots of the deleted vectors of an index of `n` slots, ascending: uint32 (m,).

    Raises
    ------
    FormatError
        If the file that the manifest names is damaged, or not of this index.
    """
    return np.concatenate([np.empty(0, np.uint32), *_blocks(directory, manifest, n)])


def read_deleted_bits(directory: str | Path, manifest: Manifest, n: int) -> NDArray[np.uint8]:
    """Return a bit for each of `n` slots, 1 for those of deleted vectors, the lowest of a byte first.

    Memory: n / 8 bytes, and 2 MiB while the file is read; nothing if no vector was deleted.

    Returns
    -------
    uint8 array, shape (ceil(n / 8),), or (0,) if no vector was deleted

    Raises
    ------
    FormatError
        As `read_deleted`.
    """
    bits = np.zeros(0 if manifest.deleted is None else -(-n // 8), np.uint8)
    for slots in _blocks(directory, manifest, n):
        np.bitwise_or.at(bits, slots >> 3, np.left_shift(1, slots & 7).astype(np.uint8))
    return bits


def _blocks(directory: str | Path, manifest: Manifest, n: int) -> Iterator[NDArray[np.uint32]]:
    """Yield the slots in order, checked."""
    if manifest.deleted is None:
        return
    path, vectors = Path(directory) / manifest.deleted["file"], manifest.deleted["vectors"]
    with PageFile(path, DELETED_KIND, manifest.page_file_build_id) as file:
        file.field("n_vertices", n, n)
        file.field("n_deleted", vectors, vectors)
        file.payload_bytes("slots", 4 * vectors)
        least = 0
        for first in range(0, vectors, _BLOCK):
            count = min(_BLOCK, vectors - first)
            pages = file.read_pages("slots", 4 * first // PAGE_BYTES, pages_for(4 * count))
            slots = np.frombuffer(pages, "<u4", count)
            if slots[0] < least or not _are_ascending(slots, n):
                raise corrupt(path, "section 'slots'", f"ascending slots below {n}", "others")
            least = int(slots[-1]) + 1
            yield slots


def are_deleted(slots: NDArray[np.integer], deleted: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return which of `slots`, in any order, are among the `deleted` ones, which ascend."""
    if not len(deleted):
        return np.zeros(len(slots), np.bool_)
    at = np.minimum(np.searchsorted(deleted, slots), len(deleted) - 1)
    return np.asarray(deleted[at] == slots)


def _are_ascending(slots: NDArray[np.integer], n: int) -> bool:
    return bool((slots[1:] > slots[:-1]).all()) and int(slots[0]) >= 0 and int(slots[-1]) < n
