"""Scratch space of an append to inverted lists."""

from __future__ import annotations

import numpy as np

from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.pipeline.append.lists.opened import OpenedLists


def copy_bytes(index: OpenedLists, added: int) -> int:
    """Return the room of the copy of `added` vectors, with ids and metadata as large as those of the index."""
    shared = index.files.centroids
    copies = 2 if shared.metric == "ip" else 1  # as given, and with one more component
    metadata = sum(entry.bytes for entry in index.manifest.files if entry.name == METADATA_NAME)
    row_bytes = copies * shared.dim * np.dtype(shared.dtype).itemsize
    return added * row_bytes + added * (index.ids_bytes + metadata) // index.n


def written_bytes(index: OpenedLists, added: int, anew: int) -> int:
    """Return the room of all files that an append of `added` vectors writes, and of their coded rows.

    Parameters
    ----------
    anew : int
        Bytes of the batches that are written anew; all others are taken over.
    """
    shared = index.files.centroids
    batches = {entry.name for entry in index.files.batches}
    others = sum(entry.bytes for entry in index.manifest.files if entry.name not in batches)
    rows = added * shared.copies
    lists = rows * (shared.row_bytes + 4) + min(rows, shared.n_lists) * PAGE_BYTES
    return others * (index.n + added) // index.n + anew + lists + rows * shared.row_bytes
