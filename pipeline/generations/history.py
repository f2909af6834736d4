"""Generations in one directory: manifest.json names the files of the present one, and shares them with others.

A manifest that another one replaces is kept under its number first, so that an earlier generation can be made the
present one again. The manifest is always written last and as a whole: a run that was killed leaves the generation
before or the one after it, and at most files that nothing names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexmill.formats.errors import ConfigError
from indexmill.formats.index.manifest import Manifest, check_size, parse_manifest, write_manifest
from indexmill.formats.index.names import MANIFEST_NAME, is_deleted_name, kept_generation, kept_name
from indexmill.formats.kinds import KINDS
from indexmill.formats.pagefile.atomic import atomic_write, fsync_dir
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.generations.opened import check_there
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.mill.publish import output_lock

#: What a write that was killed left: `formats.pagefile.atomic.atomic_write` names it after its file.
_UNFINISHED = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")


@dataclass(frozen=True)
class Generation:
    """One generation of an index, and whether it is the present one."""

    manifest: Manifest
    written: datetime
    present: bool

    def facts(self) -> dict[str, Any]:
        """Return what `inspect --history` tells, ready for JSON."""
        manifest = self.manifest
        n = int(manifest.input["n_vectors"])
        return {
            "generation": manifest.generation,
            "present": self.present,
            "written": self.written.isoformat(timespec="seconds"),
            "vectors": n - manifest.n_deleted,
            "deleted": manifest.n_deleted,
            "previous": None if manifest.deleted is None else manifest.deleted["previous"],
        }


@contextmanager
def changing(index: str | os.PathLike[str]) -> Iterator[Path]:
    """Keep other writers away from an index for the length of a block; yield its directory.

    Raises
    ------
    InputError
        If there is no index.
    ConfigError
        If another job is writing it.
    BudgetError
        If the disk is full.
    """
    directory = Path(os.path.realpath(index))
    check_there(directory)
    with output_lock(directory), told_when_full(_told):
        check_there(directory)
        yield directory


def _told(path: str, reason: str) -> str:
    return f"{path}: {reason}; the index is as it was; free some space, for example with `indexmill gc`, and run again"


def publish_next(directory: Path, present: Manifest, following: Manifest) -> None:
    """Make `following`, with its files in place, the present generation; the manifest of `present` is kept."""
    _keep(directory, present)
    failpoint("publish-copied")
    write_manifest(directory, following)
    failpoint("publish-done")


def _keep(directory: Path, present: Manifest) -> None:
    source, kept = directory / MANIFEST_NAME, directory / kept_name(present.generation)
    status = source.stat()
    with atomic_write(kept) as file:
        file.write(source.read_bytes())
    os.utime(kept, ns=(status.st_atime_ns, status.st_mtime_ns))


def history(index: str | os.PathLike[str]) -> list[Generation]:
    """Return the generations that are kept, in order; the last one is the present one.

    Raises
    ------
    FormatError
        If a manifest is damaged.
    """
    directory = Path(index)
    present = _read(directory, MANIFEST_NAME, True)
    numbers = _kept(directory)
    kept = [_read(directory, kept_name(number), False) for number in sorted(numbers)]
    # A run that was killed before its end kept the manifest of what is still the present generation.
    return [one for one in kept if one.manifest.generation != present.manifest.generation] + [present]


def _read(directory: Path, name: str, present: bool) -> Generation:
    manifest = parse_manifest(directory, KINDS, name)
    written = datetime.fromtimestamp(int((directory / name).stat().st_mtime), UTC)
    return Generation(manifest, written, present)


def _kept(directory: Path) -> set[int]:
    found = (kept_generation(name) for name in os.listdir(directory))
    return {number for number in found if number is not None}


def run_rollback(index: str | os.PathLike[str], to: int | None = None) -> dict[str, Any]:
    """Make an earlier generation the present one again, as a new generation, so that numbers only grow.

    Parameters
    ----------
    to : int, optional
        Its number; by default that of the generation that the present one was made from.

    Returns
    -------
    dict
        What became of it: ``generation``, ``restored``, and as `Generation.facts`.

    Raises
    ------
    ConfigError
        If there is no such generation, or it is not kept any more.
    FormatError
        If its manifest is damaged, or a file of it is missing.
    """
    with changing(index) as directory:
        present = parse_manifest(directory)
        kept = _kept(directory) - {present.generation}
        known = ", ".join(map(str, sorted(kept))) or "none"
        if to is None:
            if present.deleted is None:
                raise ConfigError(
                    f"{index}: generation {present.generation} has no earlier one that it was made from; name one with "
                    f"--to; kept beside the present one: {known}"
                )
            to = present.deleted["previous"]
        if to not in kept:
            raise ConfigError(
                f"to: generation {to} of {index} is not kept; kept beside the present one: {known}"
            )
        wanted = parse_manifest(directory, KINDS, kept_name(to))
        for entry in wanted.files:
            check_size(directory, entry)
        publish_next(directory, present, replace(wanted, generation=present.generation + 1))
        return {**_read(directory, MANIFEST_NAME, True).facts(), "restored": to}


def run_gc(index: str | os.PathLike[str], keep: int = 1) -> dict[str, Any]:
    """Remove all but the newest generations of an index, and what killed runs left in its directory.

    Readers keep the files that they have open.

    Parameters
    ----------
    keep : int
        Generations to keep, the present one among them.

    Returns
    -------
    dict
        ``removed`` (names of files), ``bytes`` (their sizes) and ``generations`` (those kept).

    Raises
    ------
    ConfigError
        If `keep` is less than 1.
    """
    if keep < 1:
        raise ConfigError(f"keep-generations: expected at least 1, the present one, got {keep}")
    with changing(index) as directory:
        generations = history(directory)
        kept = generations[-keep:]
        manifests = {kept_name(one.manifest.generation) for one in kept if not one.present}
        named = {entry.name for one in kept for entry in one.manifest.files} | manifests
        names = [name for name in sorted(os.listdir(directory)) if _is_removable(name) and name not in named]
        # Manifests first: a run that is killed here leaves none that names a missing file.
        names.sort(key=lambda name: kept_generation(name) is None)
        size = 0
        for name in names:
            path = directory / name
            size += path.stat().st_size
            path.unlink()
        fsync_dir(directory)
    return {"removed": names, "bytes": size, "generations": [one.manifest.generation for one in kept]}


def _is_removable(name: str) -> bool:
    """Return whether a file was written by a change of generations, finished or not."""
    unfinished = _UNFINISHED.fullmatch(name)
    written = name if unfinished is None else unfinished[1]
    is_change = is_deleted_name(written) or kept_generation(written) is not None
    return is_change or (unfinished is not None and written == MANIFEST_NAME)
