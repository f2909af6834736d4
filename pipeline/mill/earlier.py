"""Earlier generations in folders of an index: hard links to the files of the directories that it took the place of.

A run that writes an index anew publishes a new directory. A folder of it, `generations/NNNNNN`, has the files of a
directory before, under second names: an index of its own, which takes no further space while both have the files. The
folder is filled before the new directory is published, so a run that is killed never loses the generation before.
Which generations stay is said in `pipeline.generations.keep`.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from indexmill.formats.index.names import GENERATIONS_NAME, MANIFEST_NAME
from indexmill.formats.pagefile.atomic import fsync_dir

#: Errors of file systems without hard links, or that refuse one to a file of another user or with too many names.
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
#: A folder of a generation: its number, of six digits, or more without a zero in front.
_FOLDER = re.compile("[0-9]{6}|[1-9][0-9]{6,}")


def link_files(
    source: Path, target: Path, left_out: Collection[str], manifest_name: str = MANIFEST_NAME
) -> None:
    """Give the files of an index second names in `target`, durably; folders and unfinished files stay behind.

    Parameters
    ----------
    left_out : collection of str
        Names of further files that stay behind.
    manifest_name : str
        New name of manifest.json.

    Raises
    ------
    OSError
        If a link cannot be made; some of the others are there then.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name in sorted(set(os.listdir(source)).difference(left_out)):
        if (source / name).is_file() and not name.startswith("."):
            os.link(
                os.path.realpath(source / name), target / (manifest_name if name == MANIFEST_NAME else name)
            )
    fsync_dir(target)
    fsync_dir(target.parent)


def folders(directory: Path) -> dict[int, Path]:
    """Return the folders of earlier generations by number, in order."""
    place = directory / GENERATIONS_NAME
    names = filter(_FOLDER.fullmatch, names_in(place))
    return {int(name): place / name for name in sorted(names, key=int)}


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder; none if it is not there, or no more."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(folder)
    return []
