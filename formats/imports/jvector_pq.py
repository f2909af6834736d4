"""JVector's product quantizer and codes, the ``.pqv`` file next to a graph; big-endian (docs/formats/imports.md)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.graph.codes import MAX_BYTES, MAX_CENTRES, Codebook
from indexmill.formats.imports.index import ImportedCodes
from indexmill.formats.imports.mapped import MappedFile, damaged_codes, not_such_a_file

SUFFIX = ".pqv"
_MAGIC = 0x75EC4012
#: Versions of the file, which has a weight of directions; JVector 3 writes the oldest, JVector 4 any of them.
_OLDEST, _NEWEST = 3, 6


def open_codes(graph: Path, n: int, dim: int) -> tuple[ImportedCodes | None, str]:
    """Open the codes of a graph of `n` vectors of `dim` components: the file of the same name with ``.pqv``.

    If a centre is subtracted before distances are measured, it is added to the pivots, as in `diskann_pq.open_codes`.
    The weight of directions in the choice of codes does not change their meaning.

    Returns
    -------
    codes : ImportedCodes or None
    reason : str
        Why there are no codes.

    Raises
    ------
    FormatError
        If the file is damaged, of another kind, or of another graph.
    """
    path = graph.with_suffix(SUFFIX)
    if not path.is_file():
        return None, f"there is no {path.name}"
    file = MappedFile(path)
    head = [file.number(4 * i, ">u4", "header") for i in range(3)]
    if head[0] != _MAGIC or not _OLDEST <= head[1] <= _NEWEST:
        expected = f"{_MAGIC:#x}, version {_OLDEST} to {_NEWEST}"
        action = "write PQVectors with JVector 3 or 4, or train codes with --pq-bytes"
        raise not_such_a_file(path, "byte 0", expected, f"{head[0]:#x}, {head[1]}", action)
    if head[2] not in (0, dim):
        raise damaged_codes(path, "byte 8: components of the centre", f"0 or {dim}", f"{head[2]:,}")
    centre = file.array(12, ">f4", head[2], "centre") if head[2] else np.zeros(dim, np.float32)
    book, at = _codebook(file, 12 + 4 * head[2], centre)
    shape = (file.number(at, ">u4", "number of codes"), file.number(at + 4, ">u4", "bytes of a code"))
    if shape != (n, len(book.offsets) - 1):
        expected = f"{n:,} of {len(book.offsets) - 1}, as the graph has vectors and the quantizer chunks"
        raise damaged_codes(path, f"byte {at:,}: codes", expected, f"{shape[0]:,} of {shape[1]:,}")
    if shape[1] > MAX_BYTES:
        return None, f"theirs have more than {MAX_BYTES} bytes"
    begin = at + 8
    file.check_size(begin + shape[0] * shape[1], f"{begin:,} + {shape[0]:,} x {shape[1]}")
    return ImportedCodes(path, book, file.array(begin, np.uint8, shape, "codes"), begin), ""


def _codebook(file: MappedFile, at: int, centre: NDArray[np.float32]) -> tuple[Codebook, int]:
    """Read the codebook at byte `at`, with the centre added to its pivots; return it and its end."""
    dim, n_chunks = len(centre), file.number(at, ">u4", "number of chunks")
    if not 1 <= n_chunks <= dim:
        raise damaged_codes(file.path, f"byte {at}: number of chunks", f"1 to {dim}", f"{n_chunks:,}")
    sizes = file.array(at + 4, ">i4", n_chunks, "sizes of the chunks").astype(np.int64)
    if sizes.min() < 1 or sizes.sum() != dim:
        expected = f"positive numbers that add up to {dim}"
        raise damaged_codes(file.path, f"byte {at + 4}: sizes of the chunks", expected, sizes.tolist())
    at += 8 + 4 * n_chunks  # after the weight
    n_centres = file.number(at, ">u4", "number of centres")
    if not 1 <= n_centres <= MAX_CENTRES:
        raise damaged_codes(
            file.path, f"byte {at}: number of centres", f"1 to {MAX_CENTRES}", f"{n_centres:,}"
        )
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    pivots = np.empty((n_centres, dim))
    values = file.array(at + 4, ">f4", n_centres * dim, "pivots")
    for first, last in pairwise(offsets.tolist()):
        chunk = values[n_centres * first : n_centres * last]
        pivots[:, first:last] = chunk.reshape(n_centres, last - first)
    with np.errstate(over="ignore", invalid="ignore"):
        moved = (pivots + centre).astype(np.float32)
    if not np.isfinite(moved).all():
        raise damaged_codes(file.path, "pivots and centre", "finite numbers", "NaN, infinity or an overflow")
    return Codebook(moved, offsets.astype(np.uint32)), at + 4 + 4 * n_centres * dim
