"""Which graph of a merge grows, and when all vectors are laid out anew, or their graph is built anew.

Runs and plans decide by the functions of this module.
"""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.pipeline.append.memory import Growth, building_bytes
from indexmill.pipeline.generations.opened import OpenedIndex

#: Share of vectors that would be laid out apart from the others, above which all are laid out anew.
_LAID_OUT_ANEW_SHARE = 0.25
#: Order of an index whose slots nobody will see.
ANY_ORDER = "identity"


def left_in(index: OpenedIndex) -> int:
    """Return how many vectors of `index` are not deleted."""
    return index.n - index.manifest.n_deleted


def place_of_largest(indexes: Sequence[OpenedIndex]) -> int:
    """Return the place of the index with the most vectors that are not deleted, the first of those."""
    return max(range(len(indexes)), key=lambda i: (left_in(indexes[i]), -i))


def growth_of(indexes: Sequence[OpenedIndex], at: int) -> Growth:
    """Return the sizes of a merge of `indexes`, of which the one in place `at` grows, before anything is compacted.

    No vector counts as laid out where so many would lie apart from those of the largest index that all are laid out
    anew. The choice depends on the numbers of vectors alone.
    """
    largest, n = indexes[at], sum(map(left_in, indexes))
    # a compaction lays out all that remain
    settled = largest.laid_out if largest.manifest.deleted is None else left_in(largest)
    laid_out = 0 if n - settled > _LAID_OUT_ANEW_SHARE * n else settled
    present, ids_bytes = left_in(largest), sum(index.ids_bytes for index in indexes)
    return Growth(present, n - present, laid_out, ids_bytes)


def compacting_orders(indexes: Sequence[OpenedIndex], at: int, growth: Growth) -> list[str | None]:
    """Return the order by which each index is compacted first, None of one without deletions.

    The largest alone needs its own order, and only where its vectors keep their slots.
    """
    orders = [None if index.manifest.deleted is None else ANY_ORDER for index in indexes]
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
