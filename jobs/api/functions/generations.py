"""Earlier generations of an index, and its format: `rollback`, `gc` and `upgrade`."""

from __future__ import annotations

import os
from typing import Any

from indexmill.formats.location import local_path


def rollback(index: str | os.PathLike[str], to: int | None = None) -> dict[str, Any]:
    """Undo a change: make an earlier generation of an index the present one again, as a new generation.

    Parameters
    ----------
    to : int, optional
        The generation; by default the one that the present one was made from.

    Returns
    -------
    dict
        ``generation``, the new one; ``restored``, the one it is like; ``vectors`` and ``deleted``; ``damaged``,
        what was wrong with the manifest that it replaces, or None.

    Raises
    ------
    ConfigError
        If there is no such generation, or `gc` removed it.
    """
    from indexmill.pipeline.generations.rollback import run_rollback

    return run_rollback(local_path(index, "index"), to)


def gc(
    index: str | os.PathLike[str], keep_generations: int = 1, *, work: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Remove all but the newest generations of an index, and what killed runs left in its directory and beside it.

    Parameters
    ----------
    keep_generations : int
        How many stay, the present one among them.
    work : path, optional
        The `work` of killed runs, which is cleaned, too. If a run was killed before it published an index
        or an export, name its ``out`` as `index`.

    Returns
    -------
    dict
        Names of the files and directories ``removed``, the ``bytes`` that this frees, and the ``generations`` that are
        left.
    """
    from indexmill.pipeline.generations.gc import run_gc

    scratch = None if work is None else local_path(work, "work")
    return run_gc(local_path(index, "index"), keep_generations, scratch)


def upgrade(index: str | os.PathLike[str], *, keep_generations: int | None = None) -> dict[str, Any]:
    """Rewrite an index of an older format in the present one, as its next generation; nothing is computed anew.

    Parameters
    ----------
    keep_generations : int, optional
        As in `append`.

    Returns
    -------
    dict
        ``from`` and ``to``, the formats of its files before and now (equal if there was nothing to do), and the present
        ``generation``.
    """
    from indexmill.pipeline.generations.upgrade import run_upgrade

    return run_upgrade(local_path(index, "index"), keep_generations)
