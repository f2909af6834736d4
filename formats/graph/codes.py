"""codes.imx: the product quantizer, and one code for each slot (docs/formats/codes.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.pagefile.frame import MAX_STORED_DIM, PAGE_BYTES, corrupt, pages_for
from indexmill.formats.pagefile.reader import KindFile, PageFile
from indexmill.formats.pagefile.writer import PageFileWriter

KIND = "CODE"
#: Most centres of a chunk, whose code is one byte.
MAX_CENTRES = 256
#: Most bytes of a code.
MAX_BYTES = 512
#: Section names of pivots: those of rotated codes differ, so that readers without rotations refuse them.
_PIVOTS, _ROTATED_PIVOTS = "pivots", "rotated_pivots"
#: Largest deviation of a rotation column's squared length from 1: columns are float32, perhaps imported.
_LENGTH_ERROR = 1e-3
#: Codes read at a time: they fill whole pages, whatever their length.
_CODES_AT_ONCE = 16 * PAGE_BYTES


@dataclass(frozen=True, eq=False)
class Codebook:
    """A product quantizer.

    Attributes
    ----------
    pivots : float32 array, shape (K, dim)
        Centre c of chunk j is row c, columns ``offsets[j]`` to ``offsets[j + 1]``.
    offsets : uint32 array, shape (M + 1,)
        Strictly increasing from 0 to dim.
    rotation : float32 array, shape (dim, dim), optional
        An orthogonal matrix R: codes and pivots stand for ``x @ R`` of a vector x (OPQ). Without a rotation they stand
        for the vectors themselves.
    """

    pivots: NDArray[np.float32]
    offsets: NDArray[np.uint32]
    rotation: NDArray[np.float32] | None = None

    def rotated(self, vectors: NDArray[Any]) -> NDArray[np.float32]:
        """Return `vectors` (m, dim), of any type, as float32, C-contiguous and rotated; a copy only if necessary."""
        rows = np.ascontiguousarray(vectors, dtype=np.float32)
        return rows if self.rotation is None else rows @ self.rotation

    def of_rotated(self) -> Codebook:
        """Return the codebook of vectors that are rotated already."""
        return self if self.rotation is None else Codebook(self.pivots, self.offsets)

    def decoded(self, codes: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the vectors that `codes` (m, M) stand for, rotated as by `rotated`: float32 (m, dim)."""
        out = np.empty((len(codes), self.pivots.shape[1]), np.float32)
        for j, (first, last) in enumerate(pairwise(self.offsets.tolist())):
            out[:, first:last] = self.pivots[codes[:, j], first:last]
        return out


def write_codes(
    path: str | Path, codebook: Codebook, n_vertices: int, code_blocks: Iterable[NDArray[np.uint8]]
) -> None:
    """Write codes.imx. Memory: one block.

    Parameters
    ----------
    n_vertices : int
        Total number of rows of `code_blocks`.
    code_blocks : iterable of uint8 arrays, shape (m, M)
        In slot order.

    Raises
    ------
    ValueError
        If the codebook, the shape or type of a block, a code, or the number of codes is invalid.
    """
    n_centres, dim = codebook.pivots.shape
    n_chunks = len(codebook.offsets) - 1
    if not 1 <= n_centres <= MAX_CENTRES or not offsets_fit(codebook.offsets, dim):
        raise ValueError(
            f"codebook: 1..{MAX_CENTRES} centres and chunks that cover {dim} components in order"
        )
    rotation = codebook.rotation
    if rotation is not None and (rotation.shape != (dim, dim) or not has_unit_columns(rotation)):
        raise ValueError(f"codebook: a rotation of {dim} components, whose columns have length 1")
    fields = {"n_vertices": n_vertices, "dim": dim, "n_chunks": n_chunks, "n_centres": n_centres}
    written = 0
    with PageFileWriter(path, KIND, fields) as file:
        file.array("offsets", codebook.offsets, "<u4")
        if rotation is not None:
            file.array("rotation", rotation.T, "<f4")
        file.array(_PIVOTS if rotation is None else _ROTATED_PIVOTS, codebook.pivots, "<f4")
        with file.section("codes") as section:
            for codes in code_blocks:
                if codes.dtype != np.uint8 or codes.shape != (len(codes), n_chunks):
                    raise ValueError(
                        f"codes: uint8 of shape (m, {n_chunks}), not {codes.dtype} {codes.shape}"
                    )
                if codes.size and codes.max() >= n_centres:
                    raise ValueError(f"codes: {codes.max()} with only {n_centres} centres")
                section.write(np.ascontiguousarray(codes))
                written += len(codes)
        if written != n_vertices:
            raise ValueError(f"codes: {written} rows for {n_vertices} vertices")


class CodesFile(KindFile):
    """An opened codes.imx; the codebook is read at once, codes block by block.

    Attributes
    ----------
    n_vertices : int
    codebook : Codebook

    Raises
    ------
    FormatError
        If the file is not an intact codes.imx.
    """

    kind = KIND

    def _read_fields(self, file: PageFile) -> None:
        self.n_vertices = file.field("n_vertices", 1, 2**32 - 1)
        dim = file.field("dim", 1, MAX_STORED_DIM)
        self._n_chunks = file.field("n_chunks", 1, dim)
        self._n_centres = file.field("n_centres", 1, MAX_CENTRES)
        offsets = file.array("offsets", "<u4", self._n_chunks + 1)
        if not offsets_fit(offsets, dim):
            what = f"strictly increasing from 0 to {dim}"
            raise corrupt(self.path, "section 'offsets'", what, offsets.tolist())
        rotation = read_rotation(file, dim) if file.has_section("rotation") else None
        name = _PIVOTS if rotation is None else _ROTATED_PIVOTS
        pivots = file.array(name, "<f4", self._n_centres, dim, finite=True)
        self.codebook = Codebook(pivots, offsets, rotation)
        file.payload_bytes("codes", self.n_vertices * self._n_chunks)

    def blocks(self) -> Iterator[NDArray[np.uint8]]:
        """Yield all codes in slot order, uint8 arrays of shape (m, M), every page checked; raises errors as `read`."""
        for first in range(0, self.n_vertices, _CODES_AT_ONCE):
            yield self.read(first, min(_CODES_AT_ONCE, self.n_vertices - first))

    def read(self, first: int, count: int) -> NDArray[np.uint8]:
        """Return the codes of slots `first` to ``first + count``, uint8 (count, M), read-only.

        Raises
        ------
        CorruptFile
            If a page's CRC differs or a code names no centre.
        """
        start, end = first * self._n_chunks, (first + count) * self._n_chunks
        page = start // PAGE_BYTES
        data = self.file.read_pages("codes", page, pages_for(end) - page)
        codes = np.frombuffer(data, np.uint8)[start - page * PAGE_BYTES :][: end - start]
        codes = codes.reshape(count, self._n_chunks)
        if codes.size and codes.max() >= self._n_centres:
            row = int(np.argmax((codes >= self._n_centres).any(axis=1)))
            where = f"code of slot {first + row}"
            raise corrupt(self.path, where, f"values below {self._n_centres}", codes[row].max())
        return codes


def read_codes(path: str | Path, build_id: bytes | None = None) -> tuple[Codebook, NDArray[np.uint8]]:
    """Read all of codes.imx, every page checked.

    Parameters
    ----------
    build_id : bytes, optional
        The 16 bytes that the file must have.

    Returns
    -------
    codebook : Codebook
    codes : uint8 array, shape (n_vertices, M), read-only

    Raises
    ------
    FormatError
        If the file is not an intact codes.imx.
    """
    with CodesFile(path, build_id) as file:
        codes = np.concatenate(list(file.blocks()))
    codes.flags.writeable = False
    return file.codebook, codes


def read_rotation(file: PageFile, dim: int) -> NDArray[np.float32]:
    """Read section ``rotation``, whose rows are the columns of the matrix that is returned, float32 (dim, dim).

    Raises
    ------
    CorruptFile
        If it is missing, or a row has another length than 1.
    """
    found = file.array("rotation", "<f4", dim, dim).T
    if not has_unit_columns(found):
        raise corrupt(file.path, "section 'rotation'", "rows of length 1", "others")
    return found


def is_rotation(matrix: NDArray[np.float32]) -> bool:
    """Return whether a square matrix preserves distances, within the precision of float32."""
    if not has_unit_columns(matrix):
        return False
    deviation = matrix.T @ matrix - np.eye(len(matrix), dtype=np.float32)
    return bool(np.abs(deviation).max() <= _LENGTH_ERROR)


def has_unit_columns(rotation: NDArray[np.float32]) -> bool:
    """Return whether a matrix may be a rotation, by its columns alone, without a matrix product."""
    lengths = np.einsum("ij,ij->j", rotation, rotation, dtype=np.float64)
    return bool((np.abs(lengths - 1) <= _LENGTH_ERROR).all())  # false for NaN


def offsets_fit(offsets: NDArray[np.uint32], dim: int) -> bool:
    """Return whether `offsets` divide `dim` components into chunks: strictly increasing from 0 to dim."""
    increasing = bool((np.diff(offsets.astype(np.int64)) > 0).all())
    return len(offsets) >= 2 and offsets[0] == 0 and offsets[-1] == dim and increasing
