"""Memory of an import: that of the stages of a build, except those that build a graph."""

from __future__ import annotations

from indexmill.formats.errors import BudgetError
from indexmill.formats.imports.index import BLOCK_VERTICES, ImportedIndex
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.kinds.graph.memory import stage_bytes
from indexmill.pipeline.kinds.graph.shape import GraphShape

#: Bytes a vertex of a walk over the graph; of the places of lists, where they follow one another.
_WALK_BYTES, _PLACE_BYTES = 5, 8
#: Copies of a block of lists while it is read.
_BLOCK_COPIES = 6
#: Rounds in which a budget settles: larger tasks fit a larger budget.
_ROUNDS = 4


def import_memory(shape: GraphShape, index: ImportedIndex, workers: int, asked: int | None) -> int:
    """Return the budget of an import: `asked`, or the least that it needs.

    Raises
    ------
    BudgetError
        If `asked` is less than that, naming it.
    """
    least = FIXED_BYTES
    for _ in range(_ROUNDS):
        least = max(least, _need(shape, index, workers, least))
    if asked is None:
        return least
    need = _need(shape, index, workers, asked)
    if need > asked:
        raise BudgetError(
            f"memory: this import needs {need:,} bytes for {shape.n:,} vectors, the budget is {asked:,}; give at least "
            f"{least:,} bytes with --memory, or leave it out"
        )
    return asked


def _need(shape: GraphShape, index: ImportedIndex, workers: int, memory: int) -> int:
    stages = stage_bytes(shape, memory, workers)
    places = _PLACE_BYTES * shape.n * (index.kind in ("diskann-memory", "faiss-nsg"))
    stages["build"] = _WALK_BYTES * shape.n + _BLOCK_COPIES * BLOCK_VERTICES * 8 * index.lists.width
    if index.codes is not None:
        del stages["encode"]
    if index.entries is not None:
        del stages["entries"]
    if index.codes is not None and index.entries is not None:
        del stages["sample"]
    return max(stages.values()) + places + FIXED_BYTES
