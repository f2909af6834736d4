"""Copies of batches on the path of a worker. What looks and copies is a task, which runs where the path is.

A path holds the files that searches of some consecutive batches read: the batches, the centroids and the deletions,
each with the bytes that the manifest of the index states. ``copies.json`` says of which index, and which batches; while
rates are measured, before the batches are divided, its `batches` is null. It is written before the first copy, and
each copy appears whole, so that the next join completes what a killed one left.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexmill.formats.chunks.tally import forget
from indexmill.formats.errors import ConfigError, CorruptFile, FormatError, StorageError
from indexmill.formats.index.checked import checked_json, write_checked_json
from indexmill.formats.index.manifest import FileEntry, Manifest, check_digest, check_size
from indexmill.formats.ivf.batch import batch_number
from indexmill.formats.ivf.centroids import CENTROIDS_NAME
from indexmill.formats.pagefile.atomic import atomic_write
from indexmill.formats.pagefile.frame import corrupt
from indexmill.pipeline.mill.disk import told_when_full

COPIES_NAME = "copies.json"
#: All copies are page files.
_COPIES = "*.imx"
_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class Place:
    """The path of a worker: its errors name both."""

    worker: str
    path: str

    def __str__(self) -> str:
        return f"platform: worker {self.worker}: {self.path}"

    @property
    def folder(self) -> Path:
        """The folder of the copies."""
        return Path(self.path)

    @property
    def gone(self) -> bool:
        """Whether the folder, or what says which copies it holds, is not there any more."""
        return not (self.folder / COPIES_NAME).is_file()

    def lost(self) -> StorageError:
        """Return the error of a path that is gone."""
        return StorageError(
            f"{self}: gone since the join began; what was found is kept: mount it and run again, or name another path"
        )


@dataclass(frozen=True)
class Held:
    """What lies on a path.

    Attributes
    ----------
    batches : range, optional
        Those that are its own, perhaps not all copied yet; None: the batches were not divided yet.
    usable : mapping of str to int
        Copies with the bytes that the index has now, and their sizes.
    free : int
        Bytes that are free on its disk once the other copies are removed.
    folder, disk : str
        Differ between two folders, and between two disks, of any machines.
    """

    batches: range | None
    usable: Mapping[str, int]
    free: int
    folder: str
    disk: str


def needed(manifest: Manifest, batches: range) -> list[FileEntry]:
    """Return the files that searches of some batches of an index read."""
    shared = {CENTROIDS_NAME, None if manifest.deleted is None else manifest.deleted["file"]}
    return [entry for entry in manifest.files if entry.name in shared or batch_number(entry.name) in batches]


def look(place: Place, manifest: Manifest) -> Held:
    """Return what lies on a path of an index, or of one that it descends from. A task.

    Raises
    ------
    ConfigError
        If there is no such folder, or it holds copies of another index, or other files.
    CorruptFile
        If ``copies.json`` is damaged.
    StorageError
        If the folder cannot be read.
    """
    if not place.folder.is_dir():
        raise ConfigError(f"{place}: no such folder; mount it, or make it")
    with _named(place):
        noted = _noted(place, manifest)
        sizes = {path.name: path.stat().st_size for path in place.folder.glob(_COPIES)}
        usable = {
            entry.name: entry.bytes
            for entry in manifest.files
            if noted.get("files", {}).get(entry.name) == entry.sha256 and sizes.get(entry.name) == entry.bytes
        }
        free = shutil.disk_usage(place.folder).free + sum(sizes.values()) - sum(usable.values())
        status, machine = place.folder.stat(), socket.gethostname()
    disk = f"{machine} {status.st_dev}"
    batches = range(*noted["batches"]) if noted and noted["batches"] else None
    return Held(batches, usable, free, f"{disk} {status.st_ino}", disk)


def copy_batches(place: Place, index: str, manifest: Manifest, batches: range) -> int:
    """Let a path hold some batches and no others; returns the bytes that were copied. A task.

    Raises
    ------
    ConfigError
        If another join uses the path.
    CorruptFile
        If a file of the index is damaged.
    BudgetError
        If its disk is full.
    IndexmillError
        As `look`.
    """
    wanted = needed(manifest, batches)
    note = _note(
        index, manifest, [batches.start, batches.stop], {entry.name: entry.sha256 for entry in wanted}
    )
    noted, usable = _noted(place, manifest), look(place, manifest).usable
    if all(entry.name in usable for entry in wanted) and {key: noted.get(key) for key in note} == note:
        return 0
    with _named(place), using(place, alone=True):
        usable = look(place, manifest).usable  # again: another join may have changed the copies meanwhile
        kept = {entry.name for entry in wanted} & set(usable)
        for copy in place.folder.glob(_COPIES):
            if copy.name not in kept:
                copy.unlink()
        return _copy_missing(place, index, note, wanted, usable)


def copy_one(place: Place, index: str, manifest: Manifest, number: int) -> int:
    """Let a path hold a batch, too; returns the bytes that were copied. A task.

    What else it holds stays, and no batches become its own that are not yet.

    Raises
    ------
    IndexmillError
        As `copy_batches`.
    """
    wanted = needed(manifest, range(number, number + 1))
    usable = look(place, manifest).usable
    if all(entry.name in usable for entry in wanted):
        return 0
    with _named(place), using(place, alone=True):
        noted, usable = _noted(place, manifest), look(place, manifest).usable
        files = noted.get("files", {}) | {entry.name: entry.sha256 for entry in wanted}
        note = _note(index, manifest, noted.get("batches"), files)
        return _copy_missing(place, index, note, wanted, usable)


def _note(index: str, manifest: Manifest, batches: list[int] | None, files: dict[str, str]) -> dict[str, Any]:
    return {"index": manifest.build_id, "path": index, "batches": batches, "files": files}


def _copy_missing(
    place: Place, index: str, note: dict[str, Any], wanted: Sequence[FileEntry], usable: Mapping[str, int]
) -> int:
    """Write a note, then copy what of the wanted files is not usable; returns the bytes that were copied."""
    missing = [entry for entry in wanted if entry.name not in usable]
    for entry in missing:  # an earlier version, which the note would call the present one
        (place.folder / entry.name).unlink(missing_ok=True)
    for leftover in place.folder.glob(".*.tmp"):  # of a join that was killed
        leftover.unlink()
    write_checked_json(place.folder / COPIES_NAME, note)
    for entry in missing:
        _copy(Path(index) / entry.name, place.folder / entry.name, entry)
    return sum(entry.bytes for entry in missing)


def check_filled(place: Place, manifest: Manifest, batches: range) -> None:
    """Check that copies are still there, under the lock of the path: it is not held between filling and searching.

    Raises
    ------
    StorageError
        If another join changed them meanwhile.
    IndexmillError
        As `look`.
    """
    usable = look(place, manifest).usable
    for entry in needed(manifest, batches):
        if entry.name not in usable:
            raise StorageError(
                f"{place}: {entry.name} is gone: another join changed the copies after this one had made them; what "
                "was found is kept: run again when that one is over"
            )


def remove_damaged(place: Place, entries: list[FileEntry]) -> None:
    """Remove those copies whose bytes are not those of the index, so that the next join makes them anew."""
    with _named(place):
        for entry in entries:
            try:
                check_size(place.folder, entry)
                check_digest(place.folder, entry)
            except CorruptFile:
                (place.folder / entry.name).unlink(missing_ok=True)


@contextmanager
def using(place: Place, *, alone: bool = False) -> Iterator[None]:
    """Hold the lock of a path for the length of a block.

    Shared, which keeps the copies from being changed, or `alone`, which keeps every other join out.

    Raises
    ------
    ConfigError
        If another join keeps this one away.
    StorageError
        If the folder is gone, or cannot be read.
    """
    if place.gone and not alone:
        raise place.lost()
    with _named(place):
        handle = os.open(place.folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_NB | (fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        except BlockingIOError:
            raise ConfigError(f"{place}: another join uses it; wait for that one and run again") from None
        yield
    finally:
        os.close(handle)


@contextmanager
def _named(place: Place) -> Iterator[None]:
    """Turn errors of the file system into ours, which name the worker."""
    advice = f"{place}: {{}}; make room on its disk, or name a path on another one"
    try:
        with told_when_full(lambda path, reason: advice.format(f"{path}: {reason}" if path else reason)):
            yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename and error.filename != place.path else ""
        raise StorageError(
            f"{place}: {where}{error.strerror or error}; see to the folder and run again"
        ) from error


def _noted(place: Place, manifest: Manifest) -> dict[str, Any]:
    """Return what ``copies.json`` says; nothing if the folder is empty."""
    path = place.folder / COPIES_NAME
    if place.gone:
        others = sorted(entry.name for entry in place.folder.iterdir() if not entry.name.startswith("."))
        if others:
            raise ConfigError(
                f"{place}: holds other files, such as {others[0]}; name an empty folder, which a join fills"
            )
        return {}
    try:
        noted = checked_json(path)
    except FormatError as error:
        raise CorruptFile(f"{place}: {error}; empty the folder, and a join fills it again") from error
    if noted["index"] not in manifest.lineage:
        raise ConfigError(
            f"{place}: holds batches of another index, {noted['path']} (build id {noted['index'][:16]}, expected "
            f"{manifest.build_id[:16]}); name another path, or empty this one"
        )
    return noted


def _copy(source: Path, target: Path, entry: FileEntry) -> None:
    """Copy a file of the index, whole or not at all, and leave neither in the page cache."""
    check_size(source.parent, entry)
    digest = hashlib.sha256()
    with open(source, "rb") as file, atomic_write(target) as copy:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            copy.write(block)
        if digest.hexdigest() != entry.sha256:
            raise corrupt(source, "SHA-256", entry.sha256, digest.hexdigest())
    forget(source)
    forget(target)
