"""Vectors in a two-dimensional data set of an HDF5 file, such as those of ann-benchmarks."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.sources.file import RowBlock, Vectors, narrow, take_by_runs, vector_dtype
from indexmill.formats.sources.filesystem import InputFile, reading

_KIND = "an HDF5 file"
#: Errors of h5py about a damaged file.
_DAMAGE = (RuntimeError, KeyError, ValueError, OverflowError)


class Hdf5Vectors:
    """One data set of an HDF5 file.

    Parameters
    ----------
    dataset : str or None
        Name of the data set; by default that of `default`, or the only two-dimensional one.
    default : str
        ``"train"`` or ``"test"``, the names of base vectors and queries in ann-benchmarks.

    Raises
    ------
    InputError
        If the file is damaged, or the data set is missing or unusable.
    """

    id_type = "none"
    metadata_schema: pa.Schema | None = None

    def __init__(self, file: InputFile, dataset: str | None, default: str) -> None:
        self.name = file.name
        self._file = file
        with self._open() as root:
            self._dataset = _choose(root, self.name, dataset, default)
            found = root[self._dataset]
            stored, shape = found.dtype, found.shape
        if shape[1] < 1:
            raise InputError(
                f"{self.name}: data set {self._dataset!r} has shape {shape}; expected dim at least 1"
            )
        self.n_rows, self.dim = shape
        self.dtype = vector_dtype(stored, f"{self.name}: data set {self._dataset!r}")
        self._row_bytes = self.dim * stored.itemsize

    def blocks(self, batch_rows: int) -> Iterator[RowBlock]:
        """Yield all rows in order; see `VectorFile.blocks`."""
        with self._open() as root:
            for first in range(0, self.n_rows, batch_rows):
                yield RowBlock(first, self._read_range(root, first, min(first + batch_rows, self.n_rows)))

    def take(self, rows: NDArray[np.int64], out: Vectors, positions: NDArray[np.int64]) -> None:
        """Read single rows; see `VectorFile.take`."""
        with self._open() as root:
            take_by_runs(rows, out, positions, self._row_bytes, lambda a, b: self._read_range(root, a, b))

    def _read_range(self, root: Any, first: int, last: int) -> Vectors:
        values: Vectors = root[self._dataset][first:last]
        return narrow(values, self.dtype, self.name, range(first, last))

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with reading(self.name, _KIND, *_DAMAGE), self._file.open() as handle, h5py.File(handle, "r") as root:
            yield root


def _choose(root: Any, name: str, dataset: str | None, default: str) -> str:
    shapes: dict[str, tuple[int, ...]] = {}

    def visit(path: str, found: Any) -> None:
        if isinstance(found, h5py.Dataset) and found.shape is not None:
            shapes[path] = found.shape

    root.visititems(visit)
    flat = [path for path, shape in shapes.items() if len(shape) == 2]
    listed = ", ".join(f"{path} {shapes[path]}" for path in flat) or "none"
    if dataset is None:
        if default in flat:
            return default
        if len(flat) == 1:
            return flat[0]
        raise InputError(
            f"{name}: no data set {default!r}; two-dimensional data sets are {listed}; name one of them with "
            "column"
        )
    wanted = dataset.strip("/")
    if wanted not in shapes:
        near = difflib.get_close_matches(wanted, shapes, n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"two-dimensional data sets are {listed}"
        raise InputError(f"{name}: column: no data set {dataset!r}; {advice}")
    if wanted not in flat:
        raise InputError(
            f"{name}: data set {wanted!r} has shape {shapes[wanted]}; expected (n_vectors, dim); choose one "
            f"of: {listed}"
        )
    return wanted
