"""Fields of faiss's files that name neither a vertex nor a list: they are read past here, and copied as they are.

Fields: docs/formats/imports.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from indexmill.formats.imports.faiss_file import FaissFile
from indexmill.formats.imports.faiss_ivf import FLAT, PQ, SCALAR
from indexmill.formats.imports.mapped import damaged, not_such_a_file
from indexmill.formats.ivf.rabitq_in_faiss import MORE_BITS
from indexmill.formats.ivf.transforms_in_faiss import MATRIX, NORMALIZE, REMAP, ROTATION

#: Bytes of RaBitQ beside its levels. No other code is longer than the floats that it stands for.
_FACTORS = 20
#: Kinds of a map from ids to lists; 0 is none.
_MAPS = {1: "an array", 2: "a hash table"}


class _Transform(NamedTuple):
    """Fields of a transform, which are passed: bytes, then vectors of 4 bytes an element, then perhaps a matrix."""

    n_bytes: int
    n_vectors: int
    has_matrix: bool


#: Transforms by their names; a matrix is u8 have_bias and two vectors. LTra is that of OPQ, PcAm and Pcam of PCA.
_TRANSFORMS = {
    NORMALIZE: _Transform(4, 0, False),
    REMAP: _Transform(0, 1, False),
    ROTATION: _Transform(0, 0, True),
    MATRIX: _Transform(0, 0, True),
    "PcAm": _Transform(9, 3, True),
    "Pcam": _Transform(13, 3, True),
}


def pass_scalar_quantizer(file: FaissFile) -> tuple[int, int]:
    """Pass a scalar quantizer; return its dimension, and the bytes of a code."""
    file.array("<i4", 3, "scalar quantizer")  # kind, method of training a range, and its parameter
    dim, code_bytes = (file.number("<u8", what) for what in ("dimension", "bytes of a code"))
    file.vector("<f4", "ranges")
    return dim, code_bytes


def pass_transforms(file: FaissFile) -> None:
    """Pass what an IndexPreTransform has before the index within.

    Raises
    ------
    ForeignFile
        If a transform is another one than those of `_TRANSFORMS`.
    """
    file.header()
    for _ in range(file.number("<i4", "number of transforms")):
        kind = file.name("kind of transform")
        if kind not in _TRANSFORMS:
            where, expected = f"byte {file.at - 4}: kind of transform", ", ".join(_TRANSFORMS)
            action = "only lists behind these are laid out"
            raise not_such_a_file(file.path, where, expected, repr(kind), action)
        fields = _TRANSFORMS[kind]
        file.array(np.uint8, fields.n_bytes, "transform")
        for _ in range(fields.n_vectors):
            file.vector("<u4", "transform")
        if fields.has_matrix:
            file.number("u1", "flag have_bias")
            file.vector("<f4", "matrix")
            file.vector("<f4", "bias")
        file.array("<i4", 2, "components before and after")
        file.number("u1", "flag is_trained")


def pass_no_map(file: FaissFile) -> None:
    """Pass the place of a direct map, which would name a list for each id.

    Raises
    ------
    ForeignFile
        If there is one.
    """
    begin = file.at
    kind = file.number("u1", "kind of the direct map")
    file.vector("<i8", "direct map")
    if kind:
        where, got = f"byte {begin}: direct map", _MAPS.get(kind, str(kind))
        action = "drop it with set_direct_map_type(faiss.DirectMap.NoMap), and write the index again"
        raise not_such_a_file(file.path, where, "none, because it numbers lists", got, action)


def pass_codec(file: FaissFile, kind: str, dim: int) -> int:
    """Pass the codec, and return the bytes of a code.

    Raises
    ------
    CorruptFile
        If its sizes are inconsistent.
    """
    begin = file.at
    if kind == FLAT:
        return 4 * dim
    if kind == SCALAR:
        found_dim, size = pass_scalar_quantizer(file)
        again = file.number("<u8", "bytes of a code, again")
        file.number("u1", "flag by_residual")
    elif kind == PQ:
        file.number("u1", "flag by_residual")
        size, found_dim, m, bits = (
            file.number("<u8", what) for what in ("bytes of a code", "dimension", "chunks", "bits of a chunk")
        )
        file.vector("<f4", "centres")
        again = -(-m * bits // 8)
    else:
        found_dim, size = (file.number("<u8", what) for what in ("dimension", "bytes of a code"))
        file.array(np.uint8, 12 if kind == MORE_BITS else 4, "metric, and bits of a component")
        again = file.number("<u8", "bytes of a code, again")
        file.array(np.uint8, 2, "flag by_residual, and bits of a query")
    most = 4 * dim + _FACTORS
    if found_dim != dim or size != again or not 1 <= size <= most:
        expected = f"{dim:,} components, and twice the same 1 to {most:,} bytes a code"
        got = f"{found_dim:,} components, {size:,} and {again:,} bytes a code"
        raise damaged(file.path, f"byte {begin}: codec", expected, got)
    return size
