"""Memory of a run that writes hash tables anew, or added tables beside those that stay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from indexmill.formats.lsh.pair import TablePair
from indexmill.formats.lsh.shape import LshShape
from indexmill.pipeline.generations.tables.chains import PIECE_ENTRIES, entries_bytes, piece_bytes
from indexmill.pipeline.generations.tables.form import TablesForm
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.parts import (
    SORTED_BYTES,
    SPAN_ROWS,
    group_bytes,
    hashed_bytes,
    span_bytes,
)
from indexmill.pipeline.kinds.common.certify import QUERIES, K
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, THREAD_BYTES, check_need, exact_bytes

#: Bytes a vector: its ids, its number in the result, and whether it is deleted.
_VECTOR_BYTES = 24
#: Bytes of an entry of a piece, measured: of three pieces on their way, no two are at their largest at once.
_EXPECTED_ENTRY_BYTES = 60
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


def certified_bytes(index: OpenedTables, n: int, threads: int) -> int:
    """Return the memory of the certificate of tables made of `n` vectors of `index`."""
    shape, functions = TablesForm.common([index]).shape(n), index.files.functions
    searched = _bitmap_bytes(shape) + 2 * functions.projections.nbytes
    return _held_bytes([index], n) + searched + exact_bytes(n, functions.dim, QUERIES, K, threads)


def expected_bytes(indexes: Sequence[OpenedTables], shape: LshShape, hashed: int, form: TablesForm) -> int:
    """Return about the memory of writing tables of `shape`, of which `hashed` vectors are hashed.

    Without the process itself, and with pieces of as many entries as a table has, if these are few.
    """
    base = form.of.files
    need = _arrays_bytes(indexes, shape.n_vectors) + _EXPECTED_ENTRY_BYTES * min(
        PIECE_ENTRIES, shape.n_covered
    )
    if hashed:
        span = span_bytes(shape, base.functions.n_functions, base.functions.dim, hashed)
        # rows of floats are not copied, others once
        copied = 8 if base.vectors.row_format.element_dtype == np.float32 else 4
        span -= copied * min(SPAN_ROWS, hashed) * base.functions.dim
        # vectors are projected before their hashes are sorted
        need += hashed * group_bytes(shape) + max(span, hashed * SORTED_BYTES)
    return need


def expected_certificate_bytes(index: OpenedTables, n: int, threads: int) -> int:
    """Return about the memory of the certificate of tables made of `n` vectors of `index`, without the process."""
    functions, is_bytes = index.files.functions, index.files.vectors.row_format.element_dtype.itemsize == 1
    compared = exact_bytes(0 if is_bytes else n, functions.dim, QUERIES, K, threads)
    return _arrays_bytes([index], n) + compared


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
    return FIXED_BYTES + THREAD_BYTES + _STREAM_BYTES + _arrays_bytes(indexes, n)


def _arrays_bytes(indexes: Sequence[OpenedTables], n: int) -> int:
    """Return the bytes of ids, numbers of vectors and hash functions."""
    before = sum(index.n for index in indexes)
    ids = 3 * sum(index.ids_bytes for index in indexes) * max(n, before) // before
    functions = sum(2 * index.files.functions.projections.nbytes for index in indexes)
    return _VECTOR_BYTES * (n + before) + ids + functions


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
