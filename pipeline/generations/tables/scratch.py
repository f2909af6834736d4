"""Scratch space of a run that writes hash tables anew, or added tables beside those that stay."""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.lsh.names import ADDED, BASE
from indexmill.formats.lsh.shape import LshShape
from indexmill.pipeline.generations.tables.form import TablesForm
from indexmill.pipeline.generations.tables.opened import OpenedTables

#: Bytes of a pointer to a bucket, in a mapped file and in a file of tables.
_POINTER_BYTES = 8


def scratch_bytes(
    indexes: Sequence[OpenedTables], left: Sequence[int], added: int = 0, form: TablesForm | None = None
) -> int:
    """Return the room that tables of `left` vectors of each index and `added` ones fill, with what they are made from.

    That is the index, its tables as large for each vector as the largest given ones; pointers; vectors that are hashed
    again; and the copy of the added ones, their ids and metadata. See `NewTables` for the parameters.
    """
    form = form or TablesForm.common(indexes)
    base, before, n = form.of, sum(index.n for index in indexes), sum(left) + added
    shape, row_bytes = form.shape(n), base.files.vectors.row_format.vector_bytes
    again = sum(stay for index, stay in zip(indexes, left, strict=True) if form.must_hash(index, shape))
    sizes = sum(entry.bytes for index in indexes for entry in index.manifest.files)
    if again:  # tables of the base have other sizes than those of others
        sizes = max(sizes, sum(entry.bytes for entry in base.manifest.files) * before // base.n)
    pointers = _POINTER_BYTES * shape.n_pointers
    return sizes * max(n, before) // before + pointers + again * row_bytes + copy_bytes(base, added)


def added_scratch_bytes(index: OpenedTables, shape: LshShape, added: int) -> int:
    """Return the room that an index with added tables of `shape` fills beside the tables that stay.

    That are added tables; the other files, as large for each vector as they were; pointers; and the copy of the `added`
    vectors. Copies of the tables, where they cannot have a second name, are counted elsewhere (`copied_bytes`).
    """
    others = others_bytes(index) * shape.n_vectors // index.n
    return pair_bytes(shape) + others + _POINTER_BYTES * shape.n_pointers + copy_bytes(index, added)


def others_bytes(index: OpenedTables) -> int:
    """Return the bytes of all files of an index but tables and buckets."""
    return sum(entry.bytes for entry in index.manifest.files if entry.name not in {*BASE, *ADDED})


def pair_bytes(shape: LshShape) -> int:
    """Return the bytes of added tables and their buckets at most.

    They have a block for each entry, or for each bucket and the full blocks, whichever are fewer.
    """
    blocks = min(shape.n_entries, shape.n_pointers + shape.n_entries // shape.capacity)
    buckets = min(shape.n_entries, shape.n_pointers)
    return blocks * shape.block_bytes + _POINTER_BYTES * buckets + shape.bitmap_bytes


def copy_bytes(index: OpenedTables, added: int) -> int:
    """Return the room of the copy of vectors that are added to `index`, of their ids and metadata."""
    form = index.files.vectors
    copies = 2 if form.metric == "ip" else 1  # as given, and with one more component
    metadata = sum(entry.bytes for entry in index.manifest.files if entry.name == METADATA_NAME)
    return added * copies * form.row_format.vector_bytes + added * (index.ids_bytes + metadata) // index.n
