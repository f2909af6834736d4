"""Sequential reader of the fields of a faiss index file, whose places follow only from the fields before."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from indexmill.formats.imports.index import check_shape
from indexmill.formats.imports.mapped import MappedFile, damaged, not_such_a_file

#: Supported metrics by faiss's numbers.
_METRICS = {0: "ip", 1: "l2"}
#: Kinds of an index around another one that gives its vectors ids.
ID_MAPS = ("IxMp", "IxM2")
#: Flat storage: by inner product, by l2, by another metric (or older).
_FLAT = ("IxFI", "IxF2", "IxFl")
_OVER_FLAT = "import from an index over IndexFlat, such as IndexHNSWFlat"


class IndexHeader(NamedTuple):
    """Header of every faiss index.

    Attributes
    ----------
    dim, n : int
    metric : str
        ``l2`` or ``ip``.
    """

    dim: int
    n: int
    metric: str


class FaissFile:
    """Reader of fields in order.

    Attributes
    ----------
    path : Path
    at : int
        Offset of the next field.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = MappedFile(path)
        self.path = self._file.path
        self.at = 0

    @property
    def left(self) -> int:
        """Bytes from the next field to the end of the file."""
        return self._file.size - self.at

    def number(self, dtype: DTypeLike, what: str) -> int:
        """Read an integer."""
        found = self._file.number(self.at, dtype, what)
        self.at += np.dtype(dtype).itemsize
        return found

    def name(self, what: str) -> str:
        """Read the four characters that name a kind of index."""
        raw = bytes(self._file.array(self.at, np.uint8, 4, what))
        self.at += 4
        return raw.decode("ascii", "backslashreplace")

    def peek(self, dtype: DTypeLike, shape: int, what: str) -> NDArray[Any]:
        """Map an array at the next field without passing it."""
        return self._file.array(self.at, dtype, shape, what)

    def array(self, dtype: DTypeLike, count: int, what: str) -> NDArray[Any]:
        """Map `count` elements; raises errors as `vector`."""
        found = self.peek(dtype, count, what)
        self.at += found.nbytes
        return found

    def vector(self, dtype: DTypeLike, what: str, columns: int = 1) -> NDArray[Any]:
        """Map a u64 length and that number of elements, each of `columns` numbers.

        Raises
        ------
        CorruptFile
            If they exceed the file.
        """
        return self.array(dtype, self.number("<u8", f"{what}: length") * columns, what)

    def span(self, first: int, last: int) -> bytes:
        """Return the bytes from offset `first` up to offset `last`, as they are."""
        return bytes(self._file.array(first, np.uint8, last - first, "fields"))

    def check_end(self) -> None:
        """Check that no field follows.

        Raises
        ------
        CorruptFile
            If more bytes follow.
        """
        if self.left:
            raise damaged(self.path, f"byte {self.at:,}", "the end of the file", f"{self.left:,} more bytes")

    def ids(self, outer: IndexHeader, n: int) -> NDArray[np.int64]:
        """Map the ids of an IndexIDMap with header `outer`, which follow its index of `n` vectors.

        Raises
        ------
        CorruptFile
            If there is not one for each vector.
        """
        begin = self.at
        ids = self.vector("<i8", "ids")
        if outer.n != n or len(ids) != n:
            got = f"{outer.n:,} vectors and {len(ids):,} ids"
            raise damaged(self.path, f"byte {begin:,}: ids", f"{n:,}, one a vector", got)
        return ids

    def header(self) -> IndexHeader:
        """Read the header of an index.

        Raises
        ------
        CorruptFile
            If a value is invalid.
        ForeignFile
            If the metric is not l2 or ip.
        """
        begin = self.at
        dim, n = self.number("<i4", "dimension"), self.number("<i8", "number of vectors")
        check_shape(self.path, n, dim)
        self.at += 16  # two numbers that faiss itself does not read
        trained, metric = self.number("u1", "flag is_trained"), self.number("<i4", "metric")
        if trained != 1:
            raise damaged(self.path, f"byte {begin + 28}: flag is_trained", 1, trained)
        if metric not in _METRICS:
            expected = f"one of {_METRICS}"
            raise not_such_a_file(
                self.path, f"byte {begin + 29}: metric", expected, metric, "build an index with one of them"
            )
        return IndexHeader(dim, n, _METRICS[metric])

    def flat_vectors(self, owner: IndexHeader) -> NDArray[np.float32]:
        """Read the flat index that holds the vectors of a graph; see `flat_index`."""
        return self.flat_index(owner)[0]

    def flat_index(
        self, owner: IndexHeader, what: str = "storage of the vectors", action: str = _OVER_FLAT
    ) -> tuple[NDArray[np.float32], str]:
        """Read a flat index with the vectors of `owner`; return them, mapped, shape (n, dim), and its metric.

        Parameters
        ----------
        what, action : str
            Name of the index, and what to do about another one, in the error.

        Raises
        ------
        CorruptFile
            If the number of vectors or components differs.
        ForeignFile
            If vectors are not stored in a flat index.
        """
        begin = self.at
        kind = self.name(what)
        if kind not in _FLAT:
            expected = f"a flat index ({', '.join(_FLAT)})"
            raise not_such_a_file(self.path, f"byte {begin}: {what}", expected, repr(kind), action)
        found = self.header()
        if (found.n, found.dim) != (owner.n, owner.dim):
            got = f"{found.n:,} x {found.dim:,}"
            raise damaged(
                self.path, f"byte {begin}: storage", f"{owner.n:,} x {owner.dim:,} as its owner", got
            )
        floats = self.vector("<f4", "vectors")
        if len(floats) != owner.n * owner.dim:
            expected = f"{owner.n:,} x {owner.dim:,} = {owner.n * owner.dim:,}"
            raise damaged(self.path, f"byte {begin}: components", expected, f"{len(floats):,}")
        return floats.reshape(owner.n, owner.dim), found.metric
