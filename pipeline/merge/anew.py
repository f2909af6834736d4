"""Sizes of a merge of graphs: when it lays all vectors out anew, and when it builds their graph anew.

Runs and plans decide by the functions of this module.
"""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.pipeline.append.memory import Growth, building_bytes
from indexmill.pipeline.generations.opened import OpenedIndex

#: Share of vectors that would be laid out apart from the others, above which all are laid out anew; and that of vectors
#: of other builds, above which all codes of lists may be made anew.
ANEW_SHARE = 0.25
#: Order of an index whose slots nobody will see.
ANY_ORDER = "identity"


def largest_of(indexes: Sequence[OpenedIndex]) -> int:
    """Return the place of the index with the most vectors that remain, the first of those."""
    return max(range(len(indexes)), key=lambda i: (_left(indexes[i]), -i))


def growth_of(indexes: Sequence[OpenedIndex]) -> Growth:
    """Return the sizes of a merge, before anything is compacted; they depend on the numbers of vectors alone.

    All vectors get other slots where too many would lie apart from those of the largest index.
    """
    at, n = largest_of(indexes), sum(map(_left, indexes))
    present, settled = _left(indexes[at]), _settled(indexes[at])
    laid_out = 0 if n - settled > ANEW_SHARE * n else settled
    return Growth(present, n - present, laid_out, sum(index.ids_bytes for index in indexes))


def compacting_orders(indexes: Sequence[OpenedIndex], growth: Growth) -> list[str | None]:
    """Return the order by which each index is compacted first, None of one without deletions.

    The largest alone needs its own order, and only where its vectors keep their slots.
    """
    orders = [None if index.manifest.deleted is None else ANY_ORDER for index in indexes]
    at = largest_of(indexes)
    if orders[at] is not None and growth.laid_out:
        orders[at] = indexes[at].order
    return orders


def is_built_anew(largest: OpenedIndex, growth: Growth, memory: int) -> bool:
    """Tell whether `partition` builds a graph of all vectors, within `memory` bytes.

    It does where more vectors would be inserted than are there: that takes longer, by default parameters. A graph that
    queries shaped is kept, and so is one that `partition` did not build.
    """
    return (
        growth.added > growth.present
        and largest.parameters.builder == "partition"
        and not largest.inherited
        and building_bytes(largest, growth) <= memory
    )


def _left(index: OpenedIndex) -> int:
    return index.n - index.manifest.n_deleted


def _settled(index: OpenedIndex) -> int:
    """Return how many vectors of an index are laid out; a compaction lays all out that remain."""
    return index.laid_out if index.manifest.deleted is None else _left(index)
