"""Scratch space of a run that writes hash tables anew."""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.formats.index.names import METADATA_NAME
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.written import must_hash, of_size

#: Bytes of a pointer to a bucket, in a mapped file.
_POINTER_BYTES = 8


def scratch_bytes(indexes: Sequence[OpenedTables], left: Sequence[int], added: int = 0) -> int:
    """Return the room that tables of `left` vectors of each index and `added` ones fill, with what they are made from.

    That is the index, as large for each vector as the given ones; pointers; vectors that are hashed again; and the copy
    of the added ones, their ids and metadata.
    """
    first, before, n = indexes[0], sum(index.n for index in indexes), sum(left) + added
    form, shape = first.files.vectors, of_size(first.files.shape, n)
    row_bytes = form.row_format.vector_bytes
    again = sum(stay for index, stay in zip(indexes, left, strict=True) if must_hash(index, shape))
    sizes = sum(entry.bytes for index in indexes for entry in index.manifest.files)
    copies = 2 if form.metric == "ip" else 1  # as given, and with one more component
    beside = first.ids_bytes + sum(
        entry.bytes for entry in first.manifest.files if entry.name == METADATA_NAME
    )
    copy = added * copies * row_bytes + added * beside // first.n
    return sizes * max(n, before) // before + _POINTER_BYTES * shape.n_pointers + again * row_bytes + copy
