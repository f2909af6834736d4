"""Memory of a run that writes hash tables anew."""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.pipeline.generations.run import check_need
from indexmill.pipeline.generations.tables.chains import piece_bytes
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.parts import hashed_bytes, span_bytes
from indexmill.pipeline.generations.tables.written import must_hash, of_size
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, THREAD_BYTES

#: Bytes a vector: its ids, its number in the result, and whether it is deleted.
_VECTOR_BYTES = 24
#: Blocks of vectors and of bucket blocks that are read and written at a time.
_STREAM_BYTES = 64 << 20


def needed_bytes(indexes: Sequence[OpenedTables], left: Sequence[int], added: int) -> int:
    """Return the memory of writing tables of `left` vectors of each index and `added` ones.

    Mapped files do not count: the new vectors, and the pointers.
    """
    n, before, first = sum(left) + added, sum(index.n for index in indexes), indexes[0].files
    shape = of_size(first.shape, n)
    hashed = added + sum(stay for index, stay in zip(indexes, left, strict=True) if must_hash(index, shape))
    need = FIXED_BYTES + THREAD_BYTES + _STREAM_BYTES + _VECTOR_BYTES * (n + before)
    need += 3 * sum(index.ids_bytes for index in indexes) * max(n, before) // before
    need += sum(2 * index.files.functions.projections.nbytes for index in indexes)
    need += piece_bytes(shape, sum(index.files.buckets.longest_chain for index in indexes), hashed)
    if hashed:
        need += hashed * hashed_bytes(shape)
        need += span_bytes(shape, first.functions.n_functions, first.functions.dim, hashed)
    return need


def check_memory(indexes: Sequence[OpenedTables], left: Sequence[int], added: int, memory: int) -> None:
    """Refuse to write tables that do not fit `memory` bytes; parameters as of `needed_bytes`.

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    n, shape = sum(left) + added, indexes[0].files.shape
    what = f"{n:,} vectors in {shape.n_tables * shape.n_radii:,} hash tables take"
    check_need(what, needed_bytes(indexes, left, added), memory)
