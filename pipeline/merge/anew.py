"""When a merge of graphs lays all vectors out anew, and when it builds their graph anew."""

from __future__ import annotations

from indexmill.pipeline.append.memory import Growth, building_bytes
from indexmill.pipeline.generations.opened import OpenedIndex

#: Share of vectors that would be laid out apart from the others, above which all are laid out anew.
LAID_OUT_ANEW_SHARE = 0.25


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
