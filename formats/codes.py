"""codes.imx: the product quantizer and one code a slot (docs/formats/codes.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.frame import corrupt
from indexmill.formats.pagefile import PageFile, PageFileWriter

KIND = "CODE"
#: A code is one byte a chunk, so a chunk has at most this many centres.
MAX_CENTRES = 256


@dataclass(frozen=True, eq=False)
class Codebook:
    """A product quantizer.

    Attributes
    ----------
    pivots : float32 array, shape (K, dim)
        Centre c of chunk j is row c, columns ``offsets[j]`` to ``offsets[j + 1]``.
    offsets : uint32 array, shape (M + 1,)
        Strictly increasing from 0 to dim.
    """

    pivots: NDArray[np.float32]
    offsets: NDArray[np.uint32]


def write_codes(
    path: str | Path, codebook: Codebook, n_vertices: int, code_blocks: Iterable[NDArray[np.uint8]]
) -> None:
    """Write codes.imx; memory is one block.

    Parameters
    ----------
    n_vertices : int
        Total rows of `code_blocks`.
    code_blocks : iterable of uint8 arrays, shape (m, M)
        In slot order.

    Raises
    ------
    ValueError
        If the codebook, a block's shape or type, a code or the number of codes does not fit.
    """
    n_centres, dim = codebook.pivots.shape
    n_chunks = len(codebook.offsets) - 1
    if not 1 <= n_centres <= MAX_CENTRES or not _offsets_fit(codebook.offsets, dim):
        raise ValueError(
            f"codebook: 1..{MAX_CENTRES} centres and chunks that cover {dim} components in order"
        )
    fields = {"n_vertices": n_vertices, "dim": dim, "n_chunks": n_chunks, "n_centres": n_centres}
    written = 0
    with PageFileWriter(path, KIND, fields) as file:
        with file.section("offsets") as section:
            section.write(np.ascontiguousarray(codebook.offsets, dtype="<u4"))
        with file.section("pivots") as section:
            section.write(np.ascontiguousarray(codebook.pivots, dtype="<f4"))
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


def read_codes(path: str | Path, build_id: bytes | None = None) -> tuple[Codebook, NDArray[np.uint8]]:
    """Read codes.imx whole, every page checked.

    Parameters
    ----------
    build_id : bytes, optional
        The 16 bytes the file must carry.

    Returns
    -------
    codebook : Codebook
    codes : uint8 array, shape (n_vertices, M), read-only

    Raises
    ------
    FormatError
        If the file is not an intact codes.imx.
    """
    with PageFile(path, KIND, build_id) as file:
        n = file.field("n_vertices", 1, 2**32 - 1)
        dim = file.field("dim", 1)
        n_chunks = file.field("n_chunks", 1, dim)
        n_centres = file.field("n_centres", 1, MAX_CENTRES)
        offsets = np.frombuffer(file.section("offsets", 4 * (n_chunks + 1)), dtype="<u4")
        if not _offsets_fit(offsets, dim):
            raise corrupt(path, "section 'offsets'", f"strictly increasing from 0 to {dim}", offsets.tolist())
        pivots = np.frombuffer(file.section("pivots", 4 * n_centres * dim), dtype="<f4").reshape(-1, dim)
        codes = np.frombuffer(file.section("codes", n * n_chunks), dtype=np.uint8).reshape(n, n_chunks)
    if not np.isfinite(pivots).all():
        raise corrupt(path, "section 'pivots'", "finite numbers", "NaN or infinity")
    if codes.max() >= n_centres:
        slot = int(np.argmax((codes >= n_centres).any(axis=1)))
        raise corrupt(path, f"code of slot {slot}", f"values below {n_centres}", codes[slot].max())
    return Codebook(pivots, offsets), codes


def _offsets_fit(offsets: NDArray[np.uint32], dim: int) -> bool:
    increasing = bool((np.diff(offsets.astype(np.int64)) > 0).all())
    return len(offsets) >= 2 and offsets[0] == 0 and offsets[-1] == dim and increasing
