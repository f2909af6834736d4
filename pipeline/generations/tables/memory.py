"""Memory of a run that writes hash tables anew, or added tables beside those that stay."""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.formats.lsh.pair import TablePair
from indexmill.formats.lsh.shape import LshShape
from indexmill.pipeline.generations.run import check_need
from indexmill.pipeline.generations.tables.chains import entries_bytes, piece_bytes
from indexmill.pipeline.generations.tables.form import TablesForm
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.parts import hashed_bytes, span_bytes
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, THREAD_BYTES

#: Bytes a vector: its ids, its number in the result, and whether it is deleted.
_VECTOR_BYTES = 24
#: Blocks of vectors and of bucket blocks that are read and written at a time.
_STREAM_BYTES = 64 << 20


def needed_bytes(
    indexes: Sequence[OpenedTables], left: Sequence[int], added: int, beside: int = 0,
    form: TablesForm | None = None,
) -> int:  # fmt: skip
    """Return the memory of writing tables of `left` vectors of each index and `added` ones.

    Mapped files do not count: the new vectors, and the pointers.

    Parameters
    ----------
    beside : int
        Vectors that an append puts into added tables before; one bucket may hold all of them.
    form : TablesForm, optional
        By default that of the first index.
    """
    form = form or TablesForm.common(indexes)
    shape = form.shape(sum(left) + added)
    again = [form.must_hash(index, shape) for index in indexes]
    hashed = added + sum(stay for stay, is_hashed in zip(left, again, strict=True) if is_hashed)
    chains = [index for index, is_hashed in zip(indexes, again, strict=True) if not is_hashed]
    read = [pair for index in chains for pair in index.files.pairs]
    need = _bytes_of(indexes, shape, read, hashed, form) + entries_bytes(beside)
    if beside and not any(pair.shape.is_added for pair in read):
        need += _bitmap_bytes(shape)
    return need


def added_bytes(indexes: Sequence[OpenedTables], shape: LshShape, added: int) -> int:
    """Return the memory of writing added tables of `shape`, with `added` vectors more than `indexes` have.

    Tables that stay are not read, except by the searches that measure reads: these hold the bitmaps of both pairs of
    files. See `needed_bytes`.
    """
    read = [pair for index in indexes for pair in index.files.pairs[1:]]
    writing = _bytes_of(indexes, shape, read, added, TablesForm.common(indexes))
    functions = indexes[0].files.functions.projections.nbytes
    return max(writing, _held_bytes(indexes, shape.n_vectors) + 2 * _bitmap_bytes(shape) + functions)


def _bytes_of(
    indexes: Sequence[OpenedTables], shape: LshShape, read: Sequence[TablePair], hashed: int, form: TablesForm
) -> int:
    """Return the memory of writing tables of `shape` from the pairs of files that are `read` and `hashed` vectors."""
    base, need = form.of.files, _held_bytes(indexes, shape.n_vectors)
    need += sum(_bitmap_bytes(pair.shape) for pair in read if pair.shape.is_added)
    need += piece_bytes(shape, sum(pair.buckets.longest_chain * pair.shape.capacity for pair in read), hashed)
    if hashed:
        need += hashed * hashed_bytes(shape)
        need += span_bytes(shape, base.functions.n_functions, base.functions.dim, hashed)
    return need


def _held_bytes(indexes: Sequence[OpenedTables], n: int) -> int:
    """Return what a run holds throughout that makes tables of `n` vectors."""
    before = sum(index.n for index in indexes)
    need = FIXED_BYTES + THREAD_BYTES + _STREAM_BYTES + _VECTOR_BYTES * (n + before)
    need += 3 * sum(index.ids_bytes for index in indexes) * max(n, before) // before
    return need + sum(2 * index.files.functions.projections.nbytes for index in indexes)


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
