"""Inverted lists of a batch file, one by one, as docs/formats/ivf.md lays them out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.ivf.batch import BatchFile, ids_offset, list_pages


def read_list(batch: BatchFile, place: int) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Return the ids, uint32 (size,), and rows, uint8 (size, row_bytes), of the list at `place` in the directory.

    Raises
    ------
    CorruptFile
        If a page's CRC differs, or ids do not ascend within the batch.
    """
    entry, row_bytes = batch.directory[place], batch.row_bytes
    size = np.array(int(entry["size"]))
    data = batch.file.read_pages("lists", int(entry["first_page"]), int(list_pages(size, row_bytes)))
    rows = np.frombuffer(data, np.uint8, int(size) * row_bytes).reshape(-1, row_bytes)
    ids = np.frombuffer(data, "<u4", int(size), int(ids_offset(size, row_bytes)))
    batch.check_ids(ids, np.array([0]))
    return ids, rows
