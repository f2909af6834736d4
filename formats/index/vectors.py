"""vectors.imx: the vectors of an index in slot order (docs/formats/lsh.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.pagefile.field_codes import DTYPE_CODES, METRIC_CODES, PLAIN_DTYPES, name_of
from indexmill.formats.pagefile.frame import MAX_STORED_DIM, PAGE_BYTES, corrupt, f64_from_bits
from indexmill.formats.pagefile.reader import KindFile, PageFile
from indexmill.formats.pagefile.writer import PageFileWriter, SectionWriter

VECTORS_NAME = "vectors.imx"
KIND = "VECT"
#: Bytes of pages read or written at a time.
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class RowFormat:
    """Sizes and addresses of vectors on pages.

    Attributes
    ----------
    dim : int
    dtype : {"float32", "float16", "uint8", "int8"}
    """

    dim: int
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in PLAIN_DTYPES:
            raise ValueError(f"dtype: one of {', '.join(PLAIN_DTYPES)}, not {self.dtype!r}")
        if not 1 <= self.dim < 2**28:
            raise ValueError(f"dim: 1..{2**28 - 1}, not {self.dim}")

    @property
    def element_dtype(self) -> np.dtype[Any]:
        """Type of one component."""
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def vector_bytes(self) -> int:
        """Bytes of a vector, rounded up to a multiple of 4."""
        return -(-self.dim * self.element_dtype.itemsize // 4) * 4

    @property
    def rows_per_page(self) -> int:
        """Vectors on a page; 0 if a vector is larger than a page."""
        return PAGE_BYTES // self.vector_bytes

    @property
    def pages_per_row(self) -> int:
        """Pages of a vector; 1 if several vectors share a page."""
        return -(-self.vector_bytes // PAGE_BYTES)

    @property
    def rows_per_group(self) -> int:
        """Vectors read together: those of a page, or 1."""
        return max(1, self.rows_per_page)

    def n_pages(self, n_vectors: int) -> int:
        """Return the number of pages of section ``vectors``."""
        return -(-n_vectors // self.rows_per_group) * self.pages_per_row

    def pack(self, vectors: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the pages of `vectors`, shape (m, dim), of which the first starts a page: uint8."""
        group = self.rows_per_group
        n_groups = -(-len(vectors) // group)
        pages = np.zeros((n_groups, self.pages_per_row * PAGE_BYTES), np.uint8)
        rows = np.zeros((n_groups * group, self.vector_bytes), np.uint8)
        raw = np.ascontiguousarray(vectors, self.element_dtype).view(np.uint8).reshape(len(vectors), -1)
        rows[: len(vectors), : raw.shape[1]] = raw
        pages[:, : group * self.vector_bytes] = rows.reshape(n_groups, -1)
        return pages.reshape(-1)

    def unpack(self, pages: bytes) -> NDArray[Any]:
        """Return all places of whole pages, shape (places, dim); unused places are zero."""
        group, used = self.rows_per_group, self.dim * self.element_dtype.itemsize
        data = np.frombuffer(pages, np.uint8).reshape(-1, self.pages_per_row * PAGE_BYTES)
        rows = data[:, : group * self.vector_bytes].reshape(-1, self.vector_bytes)
        return np.ascontiguousarray(rows[:, :used]).view(self.element_dtype)


class VectorsWriter:
    """Writes the vectors of vectors.imx, in slot order and in pieces of any size; `writing_vectors` makes it.

    Memory: three blocks of 4 MiB.
    """

    def __init__(self, section: SectionWriter, row_format: RowFormat) -> None:
        self._section, self._format = section, row_format
        # Vectors that do not fill a page yet.
        self._rest = np.empty((0, row_format.dim), row_format.element_dtype)
        self._written = 0

    def write(self, vectors: NDArray[Any]) -> None:
        """Append `vectors`, shape (m, dim), which may be a part of a mapped file.

        Raises
        ------
        ValueError
            If their shape or type differs from the format.
        """
        f = self._format
        if vectors.ndim != 2 or vectors.shape[1] != f.dim or vectors.dtype.name != f.dtype:
            raise ValueError(f"vectors: {f}, not {vectors.dtype} {vectors.shape}")
        for rows in _blocks(f, len(vectors)):
            piece = vectors[rows]
            if len(self._rest):
                piece = np.concatenate([self._rest, piece])
            whole = len(piece) - len(piece) % f.rows_per_group
            if whole:
                self._section.write(f.pack(piece[:whole]))
            self._written += whole
            self._rest = np.array(piece[whole:])

    def finish(self) -> int:
        """Write the last page, and return the number of vectors."""
        if len(self._rest):
            self._section.write(self._format.pack(self._rest))
        return self._written + len(self._rest)


@contextmanager
def writing_vectors(
    path: str | Path, row_format: RowFormat, n_vectors: int, metric: str, max_norm: float = 0.0
) -> Iterator[VectorsWriter]:
    """Write vectors.imx piece by piece inside the block; if that raises, no file remains.

    Parameters
    ----------
    n_vectors : int
    metric : {"l2", "ip", "cosine"}
    max_norm : float
        Largest Euclidean norm of an input vector, for metric ip.

    Raises
    ------
    ValueError
        If another number of vectors was written.
    """
    if not 1 <= n_vectors < 2**32:
        raise ValueError(f"an index has 1 to 2^32 - 1 vectors, not {n_vectors}")
    fields: dict[str, int | float] = {
        "n_vectors": n_vectors,
        "dim": row_format.dim,
        "dtype": DTYPE_CODES[row_format.dtype],
        "metric": METRIC_CODES[metric],
        "vector_bytes": row_format.vector_bytes,
        "rows_per_page": row_format.rows_per_page,
        "pages_per_row": row_format.pages_per_row,
        "max_norm": float(max_norm),
    }
    with PageFileWriter(path, KIND, fields) as file, file.section("vectors") as section:
        writer = VectorsWriter(section, row_format)
        yield writer
        if (written := writer.finish()) != n_vectors:
            raise ValueError(f"vectors: {written} given for {n_vectors}")


def write_vectors(
    path: str | Path,
    row_format: RowFormat,
    n_vectors: int,
    metric: str,
    vectors: NDArray[Any],
    max_norm: float = 0.0,
) -> None:
    """Write vectors.imx of an array, shape (n_vectors, dim), which may be a mapped file; see `writing_vectors`."""
    with writing_vectors(path, row_format, n_vectors, metric, max_norm) as file:
        file.write(vectors)


def _blocks(row_format: RowFormat, n: int) -> Iterable[slice]:
    """Return the slices of rows that are read or written together; each starts a page."""
    step = row_format.rows_per_group * max(1, _BLOCK_BYTES // (row_format.pages_per_row * PAGE_BYTES))
    return (slice(first, min(first + step, n)) for first in range(0, n, step))


class VectorsFile(KindFile):
    """An opened vectors.imx; pages are checked as they are read.

    Attributes
    ----------
    n_vectors : int
    row_format : RowFormat
    metric : str
    max_norm : float

    Raises
    ------
    FormatError
        If the file is not an intact vectors.imx.
    """

    kind = KIND

    def read(self, first: int, count: int) -> NDArray[Any]:
        """Return the vectors of slots `first` to ``first + count``, shape (count, dim).

        Raises
        ------
        IndexError
            If there are fewer slots.
        CorruptFile
            If a page's CRC differs.
        """
        if first < 0 or count < 0 or first + count > self.n_vectors:
            raise IndexError(f"{self.path}: {self.n_vectors} slots, not {first}..{first + count}")
        f = self.row_format
        group = first // f.rows_per_group
        n_groups = -(-(first + count) // f.rows_per_group) - group if count else 0
        pages = self.file.read_pages("vectors", group * f.pages_per_row, n_groups * f.pages_per_row)
        skip = first - group * f.rows_per_group
        return f.unpack(pages)[skip : skip + count]

    def take(self, slots: NDArray[np.uint32]) -> NDArray[Any]:
        """Return the vectors of `slots`, in any order, (len(slots), dim). Memory: the result, and 8 MiB of pages.

        Raises
        ------
        IndexError
            If there are fewer slots.
        CorruptFile
            If a page's CRC differs.
        """
        if len(slots) and int(slots.max()) >= self.n_vectors:
            raise IndexError(f"{self.path}: {self.n_vectors} slots, not {slots.max()}")
        f = self.row_format
        found = np.empty((len(slots), f.dim), f.element_dtype)
        step = max(1, _BLOCK_BYTES // (f.pages_per_row * PAGE_BYTES))
        for first in range(0, len(slots), step):
            groups, places = np.divmod(slots[first : first + step].astype(np.int64), f.rows_per_group)
            numbers = groups[:, None] * f.pages_per_row + np.arange(f.pages_per_row)
            pages = self.file.take_pages("vectors", numbers.ravel())
            rows = f.unpack(pages.tobytes()).reshape(len(groups), f.rows_per_group, f.dim)
            found[first : first + step] = rows[np.arange(len(groups)), places]
        return found

    def blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield (first slot, vectors) in slot order, approximately 4 MiB at a time."""
        for rows in _blocks(self.row_format, self.n_vectors):
            yield rows.start, self.read(rows.start, rows.stop - rows.start)

    def _read_fields(self, file: PageFile) -> None:
        self.n_vectors = file.field("n_vectors", 1, 2**32 - 1)
        metric, dtype = file.field("metric", 1, len(METRIC_CODES)), file.field("dtype", 1, len(PLAIN_DTYPES))
        self.metric = name_of(METRIC_CODES, metric)
        self.max_norm = f64_from_bits(file.field("max_norm"))
        try:
            self.row_format = f = RowFormat(file.field("dim", 1, MAX_STORED_DIM), name_of(DTYPE_CODES, dtype))
        except ValueError as error:
            raise corrupt(self.path, "fields", "a vector that can exist", error) from error
        for name in ("vector_bytes", "rows_per_page", "pages_per_row"):
            file.field(name, getattr(f, name), getattr(f, name))
        file.payload_bytes("vectors", f.n_pages(self.n_vectors) * PAGE_BYTES)
