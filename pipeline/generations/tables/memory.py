"""Memory of a run that writes hash tables anew, or added tables beside those that stay."""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.formats.lsh.pair import TablePair
from indexmill.formats.lsh.shape import LshShape
from indexmill.pipeline.generations.run import check_need
from indexmill.pipeline.generations.tables.chains import entries_bytes, piece_bytes
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.parts import hashed_bytes, span_bytes
from indexmill.pipeline.generations.tables.written import must_hash, of_size
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, THREAD_BYTES

#: Bytes a vector: its ids, its number in the result, and whether it is deleted.
_VECTOR_BYTES = 24
#: Blocks of vectors and of bucket blocks that are read and written at a time.
_STREAM_BYTES = 64 << 20


def needed_bytes(indexes: Sequence[OpenedTables], left: Sequence[int], added: int, beside: int = 0) -> int:
    """Return the memory of writing tables of `left` vectors of each index and `added` ones.

    Mapped files do not count: the new vectors, and the pointers.

    Parameters
    ----------
    beside : int
        Vectors that an append puts into added tables before; one bucket may hold all of them.
    """
    shape = of_size(indexes[0].files.shape, sum(left) + added)
    hashed = added + sum(stay for index, stay in zip(indexes, left, strict=True) if must_hash(index, shape))
    read = [pair for index in indexes for pair in index.files.pairs]
    need = _bytes_of(indexes, shape, read, hashed) + entries_bytes(beside)
    if beside and not any(pair.shape.is_added for pair in read):
        need += _bitmap_bytes(shape)
    return need


def added_bytes(indexes: Sequence[OpenedTables], shape: LshShape, added: int) -> int:
    """Return the memory of writing added tables of `shape`, with `added` vectors more than `indexes` have.

    Tables that stay are not read. See `needed_bytes`.
    """
    read = [pair for index in indexes for pair in index.files.pairs[1:]]
    return _bytes_of(indexes, shape, read, added)


def _bytes_of(
    indexes: Sequence[OpenedTables], shape: LshShape, read: Sequence[TablePair], hashed: int
) -> int:
    """Return the memory of writing tables of `shape` from the pairs of files that are `read` and `hashed` vectors."""
    n, before, first = shape.n_vectors, sum(index.n for index in indexes), indexes[0].files
    need = FIXED_BYTES + THREAD_BYTES + _STREAM_BYTES + _VECTOR_BYTES * (n + before)
    need += 3 * sum(index.ids_bytes for index in indexes) * max(n, before) // before
    need += sum(2 * index.files.functions.projections.nbytes for index in indexes)
    need += sum(_bitmap_bytes(pair.shape) for pair in read if pair.shape.is_added)
    need += piece_bytes(shape, sum(pair.buckets.longest_chain * pair.shape.capacity for pair in read), hashed)
    if hashed:
        need += hashed * hashed_bytes(shape)
        need += span_bytes(shape, first.functions.n_functions, first.functions.dim, hashed)
    return need


def _bitmap_bytes(shape: LshShape) -> int:
    """Return the memory of the bitmap of added tables, as it is read and as it is kept."""
    return 2 * shape.bitmap_bytes


def check_memory(shape: LshShape, need: int, memory: int) -> None:
    """Refuse to write tables of `shape`, which takes `need` bytes, with `memory` bytes.

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    n_tables = shape.n_tables * shape.n_radii
    check_need(f"{shape.n_vectors:,} vectors in {n_tables:,} hash tables take", need, memory)
