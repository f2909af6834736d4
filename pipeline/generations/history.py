"""Generations in one directory: manifest.json names the files of the present one, and shares them with others.

A manifest that another one replaces is kept under its number first, so that an earlier generation can be made the
present one again. The manifest is always written last and as a whole: a run that was killed leaves the generation
before or the one after it, and at most files that nothing names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from indexmill.formats.errors import ConfigError, CorruptFile, ForeignFile
from indexmill.formats.index.manifest import Manifest, check_size, parse_manifest, write_manifest
from indexmill.formats.index.names import MANIFEST_NAME, is_deleted_name, kept_generation, kept_name
from indexmill.formats.kinds import KINDS
from indexmill.formats.pagefile.atomic import atomic_write, fsync_dir
from indexmill.formats.pagefile.frame import corrupt
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.generations.opened import check_there
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.mill.publish import index_lock

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
        return {
            "generation": manifest.generation,
            "present": self.present,
            "written": self.written.isoformat(timespec="seconds"),
            "vectors": manifest.input["n_vectors"] - manifest.n_deleted,
            "deleted": manifest.n_deleted,
            "previous": None if manifest.deleted is None else manifest.deleted["previous"],
        }


@contextmanager
def changing(
    index: str | os.PathLike[str],
    remedy: str = "free some space, for example with `indexmill gc`, and run again",
) -> Iterator[Path]:
    """Keep other writers away from an index for the length of a block; yield its directory.

    Parameters
    ----------
    remedy : str
        What to do if the disk is full.

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
    with index_lock(directory), told_when_full(partial(_told, directory, remedy)):
        check_there(directory)
        yield directory


def _told(directory: Path, remedy: str, path: str, reason: str) -> str:
    return f"{path or directory}: {reason}; the present generation is as it was; {remedy}"


def publish_next(directory: Path, present: Manifest, following: Manifest) -> None:
    """Make `following`, with its files in place, the present generation; the manifest of `present` is kept."""
    _keep(directory, present)
    failpoint("publish-copied")
    write_manifest(directory, following)
    failpoint("publish-done")


def following_number(directory: Path, present: Manifest) -> int:
    """Return the number of the generation after `present`: larger than any that is kept, whose files must stay."""
    return max(_kept(directory) | {present.generation}) + 1


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
    numbers = _kept(directory)
    present = _read(directory)  # after the others: what is published meanwhile is none of them
    found = []
    for number in sorted(numbers - {present.manifest.generation}):
        try:
            found.append(_read(directory, number))
        except (ForeignFile, FileNotFoundError):
            if (directory / kept_name(number)).exists():
                raise  # else `gc` removed it meanwhile
    return [*found, present]


def _read(directory: Path, kept: int | None = None) -> Generation:
    """Read the present generation, or one that is kept."""
    name = MANIFEST_NAME if kept is None else kept_name(kept)
    manifest = parse_manifest(directory, KINDS, name)
    n_vectors = manifest.input.get("n_vectors")
    if type(n_vectors) is not int:
        raise corrupt(directory / name, "key 'input': n_vectors", "a whole number", repr(n_vectors))
    written = datetime.fromtimestamp(int((directory / name).stat().st_mtime), UTC)
    return Generation(manifest, written, kept is None)


def _kept(directory: Path) -> set[int]:
    """Return the numbers of kept manifests; after a run that was killed, that of the present one may be among them."""
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
        following = following_number(directory, present)
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
        wanted = _read(directory, to).manifest
        for entry in wanted.files:
            check_size(directory, entry)
        publish_next(directory, present, replace(wanted, generation=following))
        return {**_read(directory).facts(), "restored": to}


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
    return {
        "removed": manifests + others,
        "bytes": size,
        "generations": [one.manifest.generation for one in kept],
    }


def _newest(directory: Path, count: int) -> list[Generation]:
    """Return the newest generations in order, without those whose manifest is damaged: no way leads back to them."""
    found = [_read(directory)]
    for number in sorted(_kept(directory) - {found[0].manifest.generation}, reverse=True):
        if len(found) < count:
            with suppress(CorruptFile, ForeignFile):
                found.append(_read(directory, number))
    return found[::-1]


def _remove(directory: Path, names: list[str]) -> int:
    """Remove files for good; return their bytes."""
    size = 0
    for name in names:
        size += (directory / name).stat().st_size
        (directory / name).unlink()
    fsync_dir(directory)
    return size


def _is_removable(name: str) -> bool:
    """Return whether a file was written by a change of generations, finished or not."""
    unfinished = _UNFINISHED.fullmatch(name)
    written = name if unfinished is None else unfinished[1]
    is_change = is_deleted_name(written) or kept_generation(written) is not None
    return is_change or (unfinished is not None and written == MANIFEST_NAME)
