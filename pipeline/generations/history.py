"""Generations in one directory: manifest.json names the files of the present one.

Those that share files with it have manifests beside it: a manifest that another one replaces is kept under its number
first. Those with other files have folders (`pipeline.mill.earlier`). The manifest is always written last and as a
whole: a run that was killed leaves the generation before or the one after it, and at most files that nothing names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from indexmill.formats.errors import FormatError
from indexmill.formats.index.manifest import Manifest, parse_manifest, write_manifest
from indexmill.formats.index.names import MANIFEST_NAME, kept_generation, kept_name
from indexmill.formats.kinds import KINDS
from indexmill.formats.pagefile.atomic import atomic_write
from indexmill.formats.pagefile.frame import corrupt
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.generations.opened import check_there
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.mill.earlier import folders, names_in
from indexmill.pipeline.mill.publish import index_lock


@dataclass(frozen=True)
class Generation:
    """One generation of an index.

    Attributes
    ----------
    manifest : Manifest
    path : Path
        Its manifest, which lies beside its files.
    written : datetime
    present : bool
    """

    manifest: Manifest
    path: Path
    written: datetime
    present: bool

    def facts(self, others: Iterable[Generation]) -> dict[str, Any]:
        """Return what `inspect --history` tells, ready for JSON.

        Parameters
        ----------
        others : iterable of Generation
            All that are kept.
        """
        manifest = self.manifest
        return {
            "generation": manifest.generation,
            "present": self.present,
            "written": self.written.isoformat(timespec="seconds"),
            "vectors": manifest.input["n_vectors"] - manifest.n_deleted,
            "deleted": manifest.n_deleted,
            "previous": made_from(manifest, (one.manifest for one in others)),
        }


def made_from(manifest: Manifest, others: Iterable[Manifest]) -> int | None:
    """Return the number of the generation that another one was made from; None for a build, or if `others` lack it.

    The deletions of a generation name it. What else writes an index anew names the build id of the one before, which
    several generations may have; the last of those was present then.
    """
    if manifest.deleted is not None:
        return int(manifest.deleted["previous"])
    parent = next(iter(manifest.parents), None)
    earlier = [one.generation for one in others if one.build_id == parent]
    return max((number for number in earlier if number < manifest.generation), default=None)


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
    with index_lock(directory), told_when_full(partial(_disk_full_message, directory, remedy)):
        check_there(directory)
        yield directory


def _disk_full_message(directory: Path, remedy: str, path: str, reason: str) -> str:
    return f"{path or directory}: {reason}; the present generation is as it was; {remedy}"


def publish_next(directory: Path, present: Manifest, following: Manifest) -> None:
    """Make `following`, with its files in place, the present generation; the manifest of `present` is kept."""
    keep_manifest(directory, present.generation)
    publish_manifest(directory, following)


def publish_manifest(directory: Path, following: Manifest) -> None:
    """Write the present manifest."""
    failpoint("publish-copied")
    write_manifest(directory, following)
    failpoint("publish-done")


def following_number(directory: Path, present: Manifest) -> int:
    """Return the number of the generation after `present`: larger than any that is kept, whose files must stay."""
    return max([*kept_manifests(directory), present.generation]) + 1


def keep_manifest(directory: Path, number: int) -> None:
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
    kept = kept_manifests(directory)
    present = present_generation(directory)  # after the others: what is published meanwhile is none of them
    kept.pop(present.manifest.generation, None)
    found, damaged = [], []
    for number in sorted(kept):
        try:
            found.append(read_kept(kept[number]))
        except (FormatError, FileNotFoundError) as error:
            if kept[number].exists():  # else `gc` or a run that wrote the index anew removed it meanwhile
                damaged.append(str(error))
    return [*found, present], damaged


def own_bytes(generations: Sequence[Generation]) -> list[int]:
    """Return the bytes of the files of each generation that no later one of them has, by whatever name.

    They are freed when the generation and all before it are removed, unless a directory elsewhere has the files, too.
    """
    seen, found = set[tuple[int, int]](), list[int]()
    for one in reversed(generations):
        own = 0
        for entry in one.manifest.files:
            with suppress(FileNotFoundError):
                status = (one.path.parent / entry.name).stat()
                if (status.st_dev, status.st_ino) not in seen:
                    seen.add((status.st_dev, status.st_ino))
                    own += entry.bytes
        found.append(own)
    return found[::-1]


def present_generation(directory: Path) -> Generation:
    """Read the present generation; raises FormatError if its manifest is not there or damaged."""
    return _generation(directory / MANIFEST_NAME, True)


def read_kept(path: Path) -> Generation:
    """Read a generation that is kept, by its manifest; raises FormatError if that is not there or damaged."""
    return _generation(path, False)


def _generation(path: Path, present: bool) -> Generation:
    manifest = parse_manifest(path.parent, KINDS, path.name)
    n_vectors = manifest.input.get("n_vectors")
    if type(n_vectors) is not int:
        raise corrupt(path, "key 'input': n_vectors", "a whole number", repr(n_vectors))
    return Generation(manifest, path, datetime.fromtimestamp(int(path.stat().st_mtime), UTC), present)


def kept_manifests(directory: Path) -> dict[int, Path]:
    """Return the manifests of kept generations by number, those that share files with the present one and others.

    After a run that was killed, that of the present one may be among them.
    """
    found = dict[int, Path]()
    for number, folder in folders(directory).items():
        found |= _kept_in(folder)
        if (folder / MANIFEST_NAME).is_file():
            found[number] = folder / MANIFEST_NAME
    return found | _kept_in(directory)


def _kept_in(folder: Path) -> dict[int, Path]:
    numbers = {kept_generation(name): folder / name for name in names_in(folder)}
    return {number: path for number, path in numbers.items() if number is not None}
