"""Going back: an earlier generation becomes the present one again, as a new generation."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from indexmill.formats.errors import ConfigError, CorruptFile, ForeignFile
from indexmill.formats.index.manifest import (
    Manifest,
    check_digest,
    check_size,
    parse_manifest,
    write_manifest,
)
from indexmill.formats.index.names import generation_folder, kept_name
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.generations.history import (
    changing,
    history,
    keep_manifest,
    kept_manifests,
    made_from,
    publish_manifest,
    read_kept,
)
from indexmill.pipeline.mill.earlier import NO_LINKS, folders, link_files
from indexmill.pipeline.mill.publish import begin, give_up, swap_in


def run_rollback(index: str | os.PathLike[str], to: int | None = None) -> dict[str, Any]:
    """Make an earlier generation the present one again, as a new generation, so that numbers only grow.

    If the present manifest is damaged it is kept as it is, under a number that no generation had. No file is copied:
    a generation that has a folder gets a new directory of hard links, in which the present one has a folder.

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
        kept, damaged = kept_manifests(directory), None
        try:
            number = parse_manifest(directory).generation
        except (CorruptFile, ForeignFile) as error:
            number = max(kept, default=0) + 1
            restored, wanted, damages = _newest_sound(directory, kept, to, str(error))
            damaged = "; ".join(damages)
        else:
            kept.pop(number, None)
            restored = _made_from(directory, kept) if to is None else to
            wanted = _sound(directory, restored, kept)
        following = replace(wanted, generation=max([*kept, number]) + 1)
        folder = kept[restored].parent
        if folder == directory:
            keep_manifest(directory, number)
            publish_manifest(directory, following)
        else:
            _exchange(directory, number, folder, following)
        generations = history(directory)[0]
        return {**generations[-1].facts(generations), "restored": restored, "damaged": damaged}


def _made_from(directory: Path, kept: Mapping[int, Path]) -> int:
    """Return the number of the generation that the present one was made from."""
    present = parse_manifest(directory)
    if not kept:
        raise ConfigError(
            f"{directory}: there is no generation to go back to: {present.generation} is the only one; `gc` removes "
            "earlier ones, and a build begins anew without any"
        )
    number = made_from(present, _readable(kept))
    if number is None:
        raise ConfigError(
            f"{directory}: generation {present.generation} has no earlier one that it was made from; name one with "
            f"--to; kept beside the present one: {_known(kept)}"
        )
    return number


def _readable(kept: Mapping[int, Path]) -> Iterator[Manifest]:
    for path in kept.values():
        with suppress(CorruptFile, ForeignFile):
            yield read_kept(path).manifest


def _newest_sound(
    directory: Path, kept: Mapping[int, Path], to: int | None, damage: str
) -> tuple[int, Manifest, list[str]]:
    """Return number and manifest of the generation that replaces a damaged present one, and all that is damaged."""
    damages = [damage]
    for number in sorted(kept, reverse=True) if to is None else [to]:
        try:
            return number, _sound(directory, number, kept), damages
        except (CorruptFile, ForeignFile) as error:
            if to is not None:
                raise
            damages.append(str(error))
    raise CorruptFile(
        f"{damage}; and no earlier generation is sound: {'; '.join(damages[1:]) or 'none is kept'}"
    )


def _sound(directory: Path, number: int, kept: Mapping[int, Path]) -> Manifest:
    """Return the manifest of a kept generation, the files of which are there."""
    if number not in kept:
        raise ConfigError(
            f"to: generation {number} of {directory} is not kept; kept beside the present one: {_known(kept)}"
        )
    path = kept[number]
    wanted = read_kept(path).manifest
    for entry in wanted.files:
        check_size(path.parent, entry)
        if wanted.deleted is not None and entry.name == wanted.deleted["file"]:
            check_digest(path.parent, entry)
    return wanted


def _exchange(directory: Path, present: int, folder: Path, following: Manifest) -> None:
    """Publish a new directory with the files of `folder`, and with the present generation in a folder of its own."""
    fresh = begin(directory)
    try:
        for number, earlier in folders(directory).items():
            if earlier == folder:
                link_files(folder, fresh, {kept_name(number)}, kept_name(number))
            else:
                link_files(earlier, fresh / generation_folder(number), {kept_name(number)})
        link_files(directory, fresh / generation_folder(present), {kept_name(present)})
        failpoint("publish-copied")
        write_manifest(fresh, following)
    except OSError as error:
        give_up(directory)
        if error.errno not in NO_LINKS:
            raise
        raise ConfigError(
            f"{directory}: files of {folder} get no second names ({error.strerror}), so it cannot be made the present "
            "generation; it is an index of its own: copy it to another place"
        ) from error
    except BaseException:
        give_up(directory)
        raise
    swap_in(fresh, directory)


def _known(kept: Mapping[int, Path]) -> str:
    return ", ".join(map(str, sorted(kept))) or "none"
