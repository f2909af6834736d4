"""Upgrade: the next generation of an index of an older format, with the same content in files of the present one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from indexmill.formats.index.deleted import next_generation, read_deleted
from indexmill.formats.index.manifest import (
    Manifest,
    check_digest,
    read_manifest,
    seal_files,
    write_manifest,
)
from indexmill.formats.index.names import RUN_NAME
from indexmill.formats.kinds import KINDS
from indexmill.formats.pagefile.atomic import copy_file
from indexmill.formats.pagefile.frame import PAGE_BYTES, VERSION, format_version, pack_header, unpack_header
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.generations.history import changing, following_number
from indexmill.pipeline.generations.keep import check_keep, keep_earlier, newest
from indexmill.pipeline.generations.removal import remove_others
from indexmill.pipeline.mill.publish import begin, give_up, swap_in


def run_upgrade(index: str | os.PathLike[str], keep: int | None = None) -> dict[str, Any]:
    """Rewrite an index whose page files state an older format; its new directory takes the place of the old one.

    Minor versions of a format only add fields and sections, so headers and identity alone differ. Space: that of the
    index once more.

    Parameters
    ----------
    keep : int, optional
        As `keep_earlier`.

    Returns
    -------
    dict
        ``from``, the oldest format of its files, ``to``, the one they have now (the same: nothing was done), and
        ``generation``, the present one.

    Raises
    ------
    CorruptFile
        If a file is not the one that the manifest names.
    ConfigError, BudgetError, FormatError
        As `changing` and `read_manifest`. The index is then as it was.
    """
    check_keep(keep)
    with changing(index, "free some space, and run again") as directory:
        present = read_manifest(directory, KINDS)
        pages = [entry.name for entry in present.files if entry.name.endswith(".imx")]
        oldest = min(format_version(_first_page(directory / name)) for name in pages)
        report = {
            "from": _words(oldest),
            "to": _words(max(oldest, VERSION)),
            "generation": present.generation,
        }
        if oldest >= VERSION:
            if keep is not None:
                remove_others(directory, newest(directory, keep))
            return report
        number = following_number(directory, present)
        fresh = begin(directory)
        try:
            _write(directory, present, fresh, number, keep)
        except BaseException:
            give_up(directory)
            raise
        swap_in(fresh, directory)
        return {**report, "generation": number}


def _write(directory: Path, present: Manifest, fresh: Path, number: int, keep: int | None) -> None:
    """Fill `fresh` with generation `number`, and with earlier ones."""
    for entry in present.built_files:
        check_digest(directory, entry)
        copy_file(directory / entry.name, fresh / entry.name)
        if entry.name.endswith(".imx"):
            _renew_header(fresh / entry.name)
    if (directory / RUN_NAME).is_file():
        copy_file(directory / RUN_NAME, fresh / RUN_NAME)
    build_id, files = seal_files(fresh, [entry.name for entry in present.built_files])
    following = replace(
        present,
        build_id=build_id,
        parents=(present.build_id,),
        ancestors=tuple(sorted(present.lineage - {present.build_id})),
        deleted=None,
        files=files,
    )
    if present.deleted is None:
        following = replace(following, generation=number)
    else:
        n = present.input["n_vectors"]
        following = next_generation(fresh, following, number, n, read_deleted(directory, present, n))
    for path in fresh.iterdir():
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    keep_earlier(directory, fresh, keep)
    failpoint("publish-copied")
    write_manifest(fresh, following)


def _renew_header(path: Path) -> None:
    """Let a page file state the present format."""
    with open(path, "r+b") as file:
        header = unpack_header(file.read(PAGE_BYTES), path, path.stat().st_size, None)
        file.seek(0)
        file.write(pack_header(header))


def _first_page(path: Path) -> bytes:
    with open(path, "rb") as file:
        page = file.read(PAGE_BYTES)
    unpack_header(page, path, path.stat().st_size, None)
    return page


def _words(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
