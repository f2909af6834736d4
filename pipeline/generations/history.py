"""Generations in one directory: manifest.json names the files of the present one, and shares them with others.

A manifest that another one replaces is kept under its number first, so that an earlier generation can be made the
present one again. The manifest is always written last and as a whole: a run that was killed leaves the generation
before or the one after it, and at most files that nothing names.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from indexmill.formats.errors import ConfigError, CorruptFile, ForeignFile, FormatError
from indexmill.formats.index.manifest import (
    Manifest,
    check_digest,
    check_size,
    parse_manifest,
    write_manifest,
)
from indexmill.formats.index.names import MANIFEST_NAME, kept_generation, kept_name
from indexmill.formats.kinds import KINDS
from indexmill.formats.pagefile.atomic import atomic_write
from indexmill.formats.pagefile.frame import corrupt
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.generations.opened import check_there
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.mill.publish import index_lock


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
    _keep(directory, present.generation)
    _publish(directory, following)


def _publish(directory: Path, following: Manifest) -> None:
    failpoint("publish-copied")
    write_manifest(directory, following)
    failpoint("publish-done")


def following_number(directory: Path, present: Manifest) -> int:
    """Return the number of the generation after `present`: larger than any that is kept, whose files must stay."""
    return max(kept_numbers(directory) | {present.generation}) + 1


def _keep(directory: Path, number: int) -> None:
    """Keep the present manifest under the number of its generation."""
    source, kept = directory / MANIFEST_NAME, directory / kept_name(number)
    status = source.stat()
    with atomic_write(kept) as file:
        file.write(source.read_bytes())
    os.utime(kept, ns=(status.st_atime_ns, status.st_mtime_ns))


def history(index: str | os.PathLike[str]) -> tuple[list[Generation], list[str]]:
    """Return the generations that are kept, in order, and why manifests of others cannot be read.

    The last one is the present one.

    Raises
    ------
    FormatError
        If the present manifest is damaged.
    """
    directory = Path(index)
    numbers = kept_numbers(directory)
    present = read_generation(directory)  # after the others: what is published meanwhile is none of them
    found, damaged = [], []
    for number in sorted(numbers - {present.manifest.generation}):
        try:
            found.append(read_generation(directory, number))
        except (FormatError, FileNotFoundError) as error:
            if (directory / kept_name(number)).exists():  # else `gc` removed it meanwhile
                damaged.append(str(error))
    return [*found, present], damaged


def read_generation(directory: Path, kept: int | None = None) -> Generation:
    """Read the present generation, or one that is kept.

    Raises
    ------
    FormatError
        If its manifest is not there or damaged.
    """
    name = MANIFEST_NAME if kept is None else kept_name(kept)
    manifest = parse_manifest(directory, KINDS, name)
    n_vectors = manifest.input.get("n_vectors")
    if type(n_vectors) is not int:
        raise corrupt(directory / name, "key 'input': n_vectors", "a whole number", repr(n_vectors))
    written = datetime.fromtimestamp(int((directory / name).stat().st_mtime), UTC)
    return Generation(manifest, written, kept is None)


def kept_numbers(directory: Path) -> set[int]:
    """Return the numbers of kept manifests; after a run that was killed, that of the present one may be among them."""
    found = (kept_generation(name) for name in os.listdir(directory))
    return {number for number in found if number is not None}


def run_rollback(index: str | os.PathLike[str], to: int | None = None) -> dict[str, Any]:
    """Make an earlier generation the present one again, as a new generation, so that numbers only grow.

    If the present manifest is damaged it is kept as it is, under a number that no generation had.

    Parameters
    ----------
    to : int, optional
        Its number; by default that of the generation that the present one was made from or, if the present manifest is
        damaged, of the newest one whose manifest and files are sound.

    Returns
    -------
    dict
        What became of it: ``generation``, ``restored``, ``damaged`` (what was damaged, or None), and as
        `Generation.facts`.

    Raises
    ------
    ConfigError
        If there is no such generation, or it is not kept any more.
    FormatError
        If its manifest is damaged, or a file of it is missing, or its file of deletions is damaged.
    """
    with changing(index) as directory:
        try:
            present = parse_manifest(directory)
        except (CorruptFile, ForeignFile) as error:
            return _replace_damaged(directory, to, str(error))
        kept = kept_numbers(directory) - {present.generation}
        if to is None:
            if not kept:
                raise ConfigError(
                    f"{index}: there is no generation to go back to: {present.generation} is the only one; `gc` "
                    "removes earlier ones, and a build, append, merge, layout, compaction or upgrade begins anew"
                )
            if present.deleted is None:
                raise ConfigError(
                    f"{index}: generation {present.generation} has no earlier one that it was made from; name one with "
                    f"--to; kept beside the present one: {_known(kept)}"
                )
            to = present.deleted["previous"]
        wanted = _sound(directory, to, kept)
        following = replace(wanted, generation=following_number(directory, present))
        publish_next(directory, present, following)
        return {**read_generation(directory).facts(), "restored": to, "damaged": None}


def _replace_damaged(directory: Path, to: int | None, damage: str) -> dict[str, Any]:
    """Make a kept generation the present one where the manifest of the present one is damaged."""
    kept = kept_numbers(directory)
    damages = [damage]
    if to is None:
        for number in sorted(kept, reverse=True):
            try:
                wanted, to = _sound(directory, number, kept), number
                break
            except (CorruptFile, ForeignFile) as error:
                damages.append(str(error))
        else:
            raise CorruptFile(
                f"{damage}; and no earlier generation is sound: {'; '.join(damages[1:]) or 'none is kept'}"
            )
    else:
        wanted = _sound(directory, to, kept)
    number = max(kept, default=0) + 1
    _keep(directory, number)
    _publish(directory, replace(wanted, generation=number + 1))
    return {**read_generation(directory).facts(), "restored": to, "damaged": "; ".join(damages)}


def _sound(directory: Path, number: int, kept: Collection[int]) -> Manifest:
    """Return the manifest of a kept generation, the files of which are there."""
    if number not in kept:
        raise ConfigError(
            f"to: generation {number} of {directory} is not kept; kept beside the present one: {_known(kept)}"
        )
    wanted = read_generation(directory, number).manifest
    for entry in wanted.files:
        check_size(directory, entry)
        if wanted.deleted is not None and entry.name == wanted.deleted["file"]:
            check_digest(directory, entry)
    return wanted


def _known(kept: Collection[int]) -> str:
    return ", ".join(map(str, sorted(kept))) or "none"
