"""Earlier generations in folders of an index: hard links to the files of the directories that it took the place of.

A run that writes an index anew publishes a new directory. A folder of it, `generations/NNNNNN`, has the files of the
directory before, under second names: an index of its own, which takes no further space while both have the files. The
folder is filled before the new directory is published, so a run that is killed never loses the generation before.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from indexmill.formats.index.names import GENERATIONS_NAME, MANIFEST_NAME, generation_folder, kept_name
from indexmill.formats.pagefile.atomic import fsync_dir

#: Errors of file systems without hard links, or that refuse one to a file of another user or with too many names.
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
#: A folder of a generation: its number, of six digits, or more without a zero in front.
_FOLDER = re.compile("[0-9]{6}|[1-9][0-9]{6,}")


def keep_earlier(directory: Path, fresh: Path, number: int) -> None:
    """Give the files of an index, the present generation of which is `number`, second names in a folder of `fresh`.

    So generations that share its files come along. Those in folders of its own do not: a run that writes an index anew
    keeps one directory before it. On a file system without hard links none is kept.

    Raises
    ------
    OSError
        If the disk is full.
    """
    try:
        link_files(directory, fresh / generation_folder(number), number)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        shutil.rmtree(fresh / GENERATIONS_NAME)


def link_files(source: Path, target: Path, number: int, manifest_name: str = MANIFEST_NAME) -> None:
    """Give the files of an index second names in `target`, durably; folders and unfinished files stay behind.

    So does a second manifest of its present generation, which a run left that was killed before it published another.

    Parameters
    ----------
    number : int
        The present generation of the index in `source`.
    manifest_name : str
        New name of manifest.json.

    Raises
    ------
    OSError
        If a link cannot be made; some of the others are there then.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name in sorted(set(os.listdir(source)) - {kept_name(number)}):
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
