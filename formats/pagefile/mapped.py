"""Arrays in mapped files, whose space on the disk is allocated before anything is written.

If the disk is full when a page of a sparse file is written back, the process ends with SIGBUS. Allocating the space at
the start raises an error instead.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from indexmill.formats.errors import BudgetError
from indexmill.formats.pagefile.atomic import NO_SPACE

#: Names of scratch files. Those that a killed process leaves behind hold nothing that another can use.
SCRATCH_FILES = "scratch-*.bin"


def create_npy(path: str | Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Create a .npy file of zeros, and map it for reading and writing; call ``flush()`` after writing.

    Raises
    ------
    BudgetError
        If the disk has no room for it.
    OSError
        If the file cannot be created.
    """
    array = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), shape)
    _take_space(path)
    return array


def create_raw(path: str | Path, dtype: DTypeLike, n: int) -> np.memmap[Any, Any]:
    """Create a file of `n` zeros without a header, n at least 1, and map it; raises errors as `create_npy`."""
    array = np.memmap(path, np.dtype(dtype), "w+", shape=(n,))
    _take_space(path)
    return array


@contextmanager
def scratch_array(folder: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> Iterator[NDArray[Any]]:
    """Map an array of zeros in a new file of `folder`, and delete the file in the end; raises as `create_npy`."""
    begin, end = SCRATCH_FILES.split("*")
    descriptor, name = tempfile.mkstemp(end, begin, folder)
    os.close(descriptor)
    file = Path(name)
    try:
        yield np.asarray(create_raw(file, dtype, max(1, prod(shape))))[: prod(shape)].reshape(shape)
    finally:
        file.unlink(missing_ok=True)


def _take_space(path: str | Path) -> None:
    if not hasattr(os, "posix_fallocate"):  # macOS
        return
    with open(path, "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise BudgetError(
                f"scratch: {path}: {size:,} bytes do not fit the disk ({os.strerror(error.errno)}); free some space or "
                "name another directory, and run again"
            ) from error
