"""What a compaction of an index of any kind refuses: an index of which nothing remains."""

from __future__ import annotations

from indexmill.formats.errors import InputError
from indexmill.pipeline.append.addition import Extendable


def check_not_empty(index: Extendable, n_deleted: int) -> None:
    """Refuse an index of which nothing remains.

    Raises
    ------
    InputError
    """
    if n_deleted == index.n:
        raise InputError(
            f"{index.name}: all {index.n:,} vectors were deleted, and an index holds at least one; remove the index, "
            "or bring vectors back with `indexmill rollback`"
        )
