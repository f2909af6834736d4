"""DiskANN's product quantizer, ``PREFIX_pq_pivots.bin``, and its codes, ``PREFIX_pq_compressed.bin``."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.graph.codes import MAX_BYTES, MAX_CENTRES, Codebook, is_rotation
from indexmill.formats.imports.diskann_bin import HEADER_BYTES, open_bin, read_bin
from indexmill.formats.imports.index import ImportedCodes
from indexmill.formats.imports.mapped import MappedFile, damaged_codes

#: Parts of the pivots file: five if components are rearranged before they are divided into chunks, else four.
_PARTS, _REARRANGED_PARTS = 4, 5


def open_codes(prefix: str, n: int, dim: int, scale: float) -> tuple[ImportedCodes | None, str]:
    """Open the codes of an index of `n` vectors of `dim` components.

    DiskANN subtracts a centroid c before it measures distances to pivots. Since ``|(x - c) - p| = |x - (c + p)|``, the
    centroid is added to the pivots. With a rotation matrix R (OPQ) the distance is ``|(x - c) R - p|``, and ``c R`` is
    added.

    Parameters
    ----------
    scale : float
        Factor of the pivots, as of the vectors, for inner product.

    Returns
    -------
    codes : ImportedCodes or None
    reason : str
        Why there are no usable codes.

    Raises
    ------
    CorruptFile
        If a file is damaged, or of another index.
    """
    pivots_path, codes_path = codes_files(prefix)
    if not pivots_path.is_file() or not codes_path.is_file():
        return None, "theirs are missing"
    codes: NDArray[np.uint8] = open_bin(codes_path, np.uint8, "codes")
    if len(codes) != n:
        raise damaged_codes(codes_path, "byte 0: number of codes", f"{n:,}, one a vector", f"{len(codes):,}")
    if codes.shape[1] > MAX_BYTES:
        return None, f"theirs have more than {MAX_BYTES} bytes"
    book, reason = _codebook(MappedFile(pivots_path), dim, codes.shape[1], scale, _rotation(prefix, dim))
    return (None if book is None else ImportedCodes(codes_path, book, codes, HEADER_BYTES)), reason


def _rotation(prefix: str, dim: int) -> NDArray[np.float32] | None:
    """Return the rotation matrix R, whose columns are the directions of rotated components, if there is one."""
    path = rotation_file(prefix)
    if not path.is_file():
        return None
    found = open_bin(path, "<f4", "rotation")
    if found.shape != (dim, dim):
        got = " x ".join(map(str, found.shape))
        raise damaged_codes(path, "byte 0: rows and columns", f"{dim} x {dim}", got)
    rotation = np.array(found, np.float32)
    if not is_rotation(rotation):
        raise damaged_codes(path, "matrix", "a rotation: columns of length 1, at right angles", "another one")
    return rotation


def _codebook(
    file: MappedFile, dim: int, n_chunks: int, scale: float, rotation: NDArray[np.float32] | None
) -> tuple[Codebook | None, str]:
    """Read the pivots with the centroid added; see `open_codes`."""
    offsets = _parts(file)
    pivots = read_bin(file, offsets[0], "<f4", "pivots")
    centroid = read_bin(file, offsets[1], "<f4", "centroid").ravel()
    chunks = read_bin(file, offsets[-2], "<u4", "chunk offsets").ravel()
    if pivots.shape[1] != dim or len(centroid) != dim or len(pivots) > MAX_CENTRES:
        got = f"{len(pivots)} of {pivots.shape[1]}, and {len(centroid)}"
        expected = f"at most {MAX_CENTRES} of {dim} components, and {dim}"
        raise damaged_codes(file.path, "pivots and centroid", expected, got)
    if len(chunks) != n_chunks + 1:
        raise damaged_codes(file.path, "chunk offsets", f"{n_chunks + 1}, a byte a chunk", len(chunks))
    if len(offsets) == _REARRANGED_PARTS:
        order = read_bin(file, offsets[2], "<u4", "rearrangement").ravel()
        if not np.array_equal(order, np.arange(dim)):
            return None, "theirs are of rearranged components"
    steps = np.diff(chunks.astype(np.int64))
    if chunks[0] != 0 or chunks[-1] != dim or (steps < 0).any():
        raise damaged_codes(file.path, "chunk offsets", f"ascending from 0 to {dim}", chunks.tolist())
    if not steps.all():
        return None, "theirs have empty chunks"
    with np.errstate(over="ignore", invalid="ignore"):
        centre = centroid.astype(np.float64)
        centre = centre if rotation is None else centre @ rotation
        moved = ((pivots.astype(np.float64) + centre) * scale).astype(np.float32)
    if not np.isfinite(moved).all():
        raise damaged_codes(
            file.path, "pivots and centroid", "finite numbers", "NaN, infinity or an overflow"
        )
    return Codebook(moved, chunks.astype(np.uint32), rotation), ""


def _parts(file: MappedFile) -> list[int]:
    """Return the start of each part of the file, and the end of the last one."""
    offsets: list[int] = read_bin(file, 0, "<u8", "table of parts").ravel().tolist()
    if len(offsets) not in (_PARTS, _REARRANGED_PARTS):
        raise damaged_codes(
            file.path, "byte 0: number of parts", f"{_PARTS} or {_REARRANGED_PARTS}", len(offsets)
        )
    for part, (first, last) in enumerate(pairwise(offsets)):
        if not first < last <= file.size:
            where = f"byte {8 + 8 * part}: part {part}"
            raise damaged_codes(
                file.path, where, f"offsets that ascend to {file.size:,}", f"{first:,}, {last:,}"
            )
    return offsets


def codes_files(prefix: str) -> tuple[Path, Path]:
    """Return the files that `open_codes` reads, except the rotation."""
    return Path(f"{prefix}_pq_pivots.bin"), Path(f"{prefix}_pq_compressed.bin")


def rotation_file(prefix: str) -> Path:
    """Return the file of the rotation, which exists only for codes of rotated vectors."""
    return Path(f"{prefix}_pq_pivots.bin_rotation_matrix.bin")
