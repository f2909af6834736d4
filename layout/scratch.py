"""Arrays of an order that are scratch space: a mapped file where there is a directory for it, else memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from indexmill.formats.pagefile.mapped import create_raw


@contextmanager
def scratch_array(folder: Path | None, dtype: DTypeLike, shape: tuple[int, ...]) -> Iterator[NDArray[Any]]:
    """Give an array for the block; its file, ``scratch.bin`` in `folder`, is deleted in the end.

    Raises
    ------
    BudgetError
        If the disk has no room for it.
    OSError
        If the file cannot be created.
    """
    size = prod(shape)
    if folder is None or not size:
        yield np.empty(shape, dtype)
        return
    file = folder / "scratch.bin"
    try:
        yield np.asarray(create_raw(file, dtype, size)).reshape(shape)
    finally:
        file.unlink(missing_ok=True)
