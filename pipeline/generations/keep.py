"""The rule by which `gc` and runs that write an index anew keep its newest generations.

Generations are counted one by one, the present one among them, whether they share files or not.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from indexmill.formats.errors import ConfigError, CorruptFile, ForeignFile
from indexmill.formats.index.manifest import parse_manifest
from indexmill.formats.index.names import (
    GENERATIONS_NAME,
    MANIFEST_NAME,
    generation_folder,
    is_deleted_name,
    is_manifest_name,
    kept_name,
)
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.generations.history import (
    Generation,
    kept_manifests,
    present_generation,
    read_kept,
)
from indexmill.pipeline.mill.earlier import NO_LINKS, folders, link_files

#: What a write that was killed left: `formats.pagefile.atomic.atomic_write` names it after its file.
_UNFINISHED = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")


def check_keep(keep: int | None) -> None:
    """Refuse to keep less than the present generation.

    Raises
    ------
    ConfigError
    """
    if keep is not None and keep < 1:
        raise ConfigError(f"keep_generations: expected at least 1, the present one, got {keep}")


def check_links(directory: Path) -> None:
    """Refuse to keep files of an index where its manifest can have no second name.

    Raises
    ------
    ConfigError
    """
    probe = link_probe(directory)
    probe.unlink(missing_ok=True)  # of a run that was killed
    try:
        os.link(directory / MANIFEST_NAME, probe)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        raise _without_links(error) from error
    probe.unlink()


def link_probe(directory: Path) -> Path:
    """Return the name by which `check_links` tries whether a file of an index can have a second one."""
    return directory.with_name(f".{directory.name}.indexmill-link")


def _without_links(error: OSError) -> ConfigError:
    """Return what to say of a file that can have no second name."""
    return ConfigError(
        f"keep_generations: {error.filename} can have no second name ({error.strerror}), which a generation that is "
        "kept needs; the index is as it was; copy it if its generations are to stay, leave keep_generations out, and "
        "run again"
    )


def newest(directory: Path, count: int) -> list[Generation]:
    """Return the newest generations in order, the present one last.

    Those with damaged manifests are left out: no way leads back to them.
    """
    present = present_generation(directory)
    kept = kept_manifests(directory)
    kept.pop(present.manifest.generation, None)
    found = [present][:count]
    for number in sorted(kept, reverse=True):
        if len(found) < count:
            with suppress(CorruptFile, ForeignFile):
                found.append(read_kept(kept[number]))
    return found[::-1]


def lies_in(folder: Path, kept: Iterable[Generation]) -> list[Generation]:
    """Return those of the generations that lie in a folder."""
    return [one for one in kept if one.path.parent == folder]


def unneeded(folder: Path, kept: Iterable[Generation]) -> list[str]:
    """Return the names of files in a folder that changes of generations wrote and no kept one needs.

    Files that such a change left unfinished are among them.
    """
    here = lies_in(folder, kept)
    named = {entry.name for one in here for entry in one.manifest.files} | {one.path.name for one in here}
    return [name for name in sorted(os.listdir(folder)) if _is_of_a_change(name) and name not in named]


def _is_of_a_change(name: str) -> bool:
    unfinished = _UNFINISHED.fullmatch(name)
    written = name if unfinished is None else unfinished[1]
    return is_deleted_name(written) or is_manifest_name(written)


def keep_earlier(directory: Path, fresh: Path, keep: int | None = None) -> None:
    """Give the files of earlier generations second names in folders of `fresh`, the next generation of an index.

    Then `fresh` has what `gc` would leave there. By default none is kept where hard links are refused.

    Parameters
    ----------
    directory : Path
        The index.
    keep : int, optional
        Generations to keep, that of `fresh` among them; by default that of `fresh`, the present one of the index, and
        those that share its files.

    Raises
    ------
    TooNew
        If the manifest of one of them was written by a newer program.
    ConfigError
        If `keep` asks for generations and a hard link is refused.
    OSError
        If the disk is full.
    """
    number = parse_manifest(directory).generation
    # A run that was killed before it published another left a second manifest of the present one.
    left_out = {directory: [kept_name(number)]}
    if keep is not None:
        kept = newest(directory, keep - 1)
        places = [*folders(directory).values(), directory]
        left_out = {place: unneeded(place, kept) for place in places if lies_in(place, kept)}
    try:
        for place, names in left_out.items():
            own = generation_folder(number if place == directory else int(place.name))
            link_files(place, fresh / own, names)
            failpoint("generation-linked")
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if keep is not None:
            raise _without_links(error) from error
        shutil.rmtree(fresh / GENERATIONS_NAME)
