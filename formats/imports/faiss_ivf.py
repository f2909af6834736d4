"""Import of faiss's IndexIVF: flat, with a scalar quantizer, PQ or RaBitQ, perhaps with the transforms of an export.

Lists must be probed by l2 distances to centroids, as ours are. For inner product this requires the additional component
that our export writes. Codes of PQ and RaBitQ may be of rotated vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import ForeignFile
from indexmill.formats.graph.codes import MAX_CENTRES, Codebook, is_rotation
from indexmill.formats.imports import faiss_rabitq
from indexmill.formats.imports.faiss_file import FaissFile, IndexHeader
from indexmill.formats.imports.faiss_lists import InvertedLists
from indexmill.formats.imports.lists import ImportedLists
from indexmill.formats.imports.mapped import damaged, not_such_a_file
from indexmill.formats.ivf.centroids import Centroids, Codec
from indexmill.formats.ivf.rabitq import RabitQ
from indexmill.formats.ivf.rabitq_in_faiss import KINDS, code_bytes
from indexmill.formats.ivf.transforms_in_faiss import MATRIX, NORMALIZE, REMAP, ROTATION

TRANSFORMED = "IxPT"
FLAT, SCALAR, PQ = "IwFl", "IwSq", "IwPQ"
IVF_KINDS = (FLAT, SCALAR, PQ, *KINDS)
_NAMES = {
    FLAT: "faiss-ivf-flat", SCALAR: "faiss-ivf-sq", PQ: "faiss-ivf-pq",
    **dict.fromkeys(KINDS, "faiss-ivf-rabitq"),
}  # fmt: skip
#: Supported scalar quantizers by faiss's numbers: eight bits over a range, and plain types.
_SQ8 = 0
_KEPT = {4: "float16", 5: "uint8", 8: "int8"}
_MAP_HASHED = 2
#: Most lists, and most bytes of a code, of a job.
_MOST_LISTS, _MOST_CHUNKS = 1 << 20, 512


@dataclass(frozen=True)
class _Transforms:
    """Transforms of a query in their order: whether it is normalized, sources of components, a rotation, and sources.

    Sources name a component before for each one, or -1 for zero.
    """

    user_dim: int
    unit: bool
    places: NDArray[np.int64] | None = None
    rotation: NDArray[np.float32] | None = None
    spread: NDArray[np.int64] | None = None


class _Encoding(NamedTuple):
    """Encoding of rows: codec, type of components, bytes of a row in the file, and what the codec needs."""

    codec: Codec
    dtype: str
    row_bytes: int
    scale: NDArray[np.float32] | None = None
    codebook: Codebook | None = None
    rabitq: RabitQ | None = None


def read_lists(file: FaissFile, kind: str) -> ImportedLists:
    """Read the index after the name of its outermost kind, `kind`.

    Raises
    ------
    CorruptFile
        If its numbers are inconsistent.
    ForeignFile
        If it is an unsupported index.
    """
    transforms = _Transforms(0, False)
    if kind == TRANSFORMED:
        transforms = _read_transforms(file)
        kind = _kind_behind(file, transforms)
    header = file.header()
    if kind in KINDS and header.metric != "l2":
        raise _not_read(file, file.at - 4, "codes of RaBitQ that are compared by l2", header.metric)
    n_lists = file.number("<u8", "number of lists")
    if not n_lists:
        raise damaged(file.path, f"byte {file.at - 8}: number of lists", "at least 1", 0)
    if n_lists > _MOST_LISTS:
        raise _not_read(file, file.at - 8, f"at most {_MOST_LISTS:,} lists", f"{n_lists:,}")
    file.number("<u8", "nprobe")
    begin = file.at
    centroids, coarse = file.flat_index(IndexHeader(header.dim, n_lists, "l2"))
    _skip_map(file)
    if coarse != "l2":
        raise _not_read(file, begin, "centroids that are compared by l2", "an index that compares them by ip")
    metric = "cosine" if transforms.unit else header.metric
    if metric == "ip" and (transforms.places is None or transforms.user_dim >= header.dim):
        raise _not_read(file, begin, "centroids with the component that ip adds", f"{header.dim} components")
    if kind in KINDS:
        components = np.arange(header.dim)
        form = _read_rabitq(file, kind, header.dim, transforms.rotation)
    else:
        components = _components(file, transforms, header.dim, metric)
        form = _read_codec(file, kind, header.dim, components, transforms.rotation)
    lists = InvertedLists(file, n_lists, form.row_bytes, header.n)
    stored = np.ascontiguousarray(centroids[:, components >= 0], np.float32)
    if not np.isfinite(stored).all():
        raise damaged(file.path, f"byte {begin}: centroids", "finite numbers", "NaN or infinity")
    shared = Centroids(
        stored,
        form.dtype,
        metric,
        0.0,
        header.n,
        1,
        form.codec,
        form.scale,
        form.codebook,
        rabitq=form.rabitq,
    )
    sign = np.uint8(0x80 if form.codec == "flat" and form.dtype == "int8" else 0)  # faiss flips the sign bit

    def rows(number: int, chosen: NDArray[Any]) -> NDArray[np.uint8]:
        codes = lists.codes(number, chosen)
        if form.rabitq is None:
            return codes ^ sign
        return faiss_rabitq.rows_of(codes, form.rabitq, file.path, number, chosen)

    return ImportedLists(_NAMES[kind], (file.path, *lists.files), shared, lists.sizes, lists.names, rows)


def _kind_behind(file: FaissFile, transforms: _Transforms) -> str:
    """Read the kind of the index behind transforms, which must have a place in it."""
    kind = file.name("kind of the index within")
    if kind not in IVF_KINDS:
        raise _not_read(file, file.at - 4, "an index of inverted lists", repr(kind))
    if transforms.rotation is not None and kind not in (PQ, *KINDS):
        raise _not_read(file, file.at - 4, "codes of PQ or RaBitQ behind a rotation", repr(kind))
    if (transforms.places is not None or transforms.spread is not None) and kind in KINDS:
        raise _not_read(file, file.at - 4, f"codes of RaBitQ without {REMAP!r}", "one")
    return kind


def _read_transforms(file: FaissFile) -> _Transforms:
    header, unit, places, rotation, spread = file.header(), False, None, None, None
    for _ in range(file.number("<i4", "number of transforms")):
        kind = file.name("kind of transform")
        begin = file.at
        if rotation is not None and (kind != REMAP or spread is not None):
            raise _not_read(file, begin - 4, f"nothing, or one {REMAP!r}, behind a rotation", repr(kind))
        if kind == NORMALIZE and not unit and places is None:
            unit = float(file.array("<f4", 1, "norm")[0]) == 2.0
            if not unit:
                raise _not_read(file, begin, "l2 lengths", "another norm")
        elif kind == REMAP and rotation is not None:
            spread = _read_places(file, len(rotation))
        elif kind == REMAP and places is None:
            places = _read_places(file, header.dim)
        elif kind in (ROTATION, MATRIX):
            rotation = _read_rotation(file, header.dim if places is None else len(places))
        else:
            expected = f"{NORMALIZE!r}, then {REMAP!r}, then a rotation ({ROTATION!r} or {MATRIX!r})"
            raise _not_read(file, begin - 4, expected, repr(kind))
        file.number("<i4", "components before")
        file.number("<i4", "components after")
        file.number("u1", "flag is_trained")
    return _Transforms(header.dim, unit, places, rotation, spread)


def _read_places(file: FaissFile, before: int) -> NDArray[np.int64]:
    """Read the source of each component, one of `before` in their order, or -1 for zero."""
    begin = file.at
    places = file.vector("<i4", "components").astype(np.int64)
    if not np.array_equal(places[places >= 0], np.arange(before)):
        raise _not_read(file, begin, "components in their order", "another transform")
    return places


def _read_rotation(file: FaissFile, dim: int) -> NDArray[np.float32]:
    """Read a matrix after its name, and return R of the rotation ``x @ R``.

    Raises
    ------
    ForeignFile
        If it is not an orthogonal matrix of `dim` rows, or moves vectors.
    """
    begin = file.at
    moves = file.number("u1", "flag have_bias")
    matrix = file.vector("<f4", "rotation")
    file.vector("<f4", "bias")
    if moves or len(matrix) != dim * dim or not is_rotation(matrix.reshape(dim, dim)):
        raise _not_read(file, begin, f"an orthogonal matrix of {dim} x {dim}", "another transform")
    return np.ascontiguousarray(matrix.reshape(dim, dim).T, np.float32)


def _components(file: FaissFile, transforms: _Transforms, dim: int, metric: str) -> NDArray[np.int64]:
    """Return our stored component for each component of faiss; -1 for padding of chunks."""
    rotation, components = transforms.rotation, transforms.places
    if rotation is not None:
        components = np.arange(len(rotation)) if transforms.spread is None else transforms.spread
    if components is None:
        return np.arange(dim)
    if len(components) != dim:
        raise damaged(file.path, "components after the transforms", dim, len(components))
    if rotation is not None:
        _check_rotated(file, transforms, metric)
        return components
    components = components.copy()
    if metric == "ip":  # the additional component is the first zero after the others
        behind = np.flatnonzero(components >= 0)[-1] + 1
        if behind == dim:
            raise _not_read(file, file.at, "the component that ip adds behind the others", "none")
        components[behind] = transforms.user_dim
    return components


def _check_rotated(file: FaissFile, transforms: _Transforms, metric: str) -> None:
    """Refuse components in front of a rotation, except the one that ip adds behind the others."""
    places, user_dim = transforms.places, transforms.user_dim
    added = np.append(np.arange(user_dim), -1)
    is_sound = places is None if metric != "ip" else places is not None and np.array_equal(places, added)
    if not is_sound:
        expected = f"no {REMAP!r} in front of a rotation, or for ip one that adds a component"
        raise _not_read(file, file.at, expected, "another transform")


def _read_rabitq(file: FaissFile, kind: str, dim: int, rotation: NDArray[np.float32] | None) -> _Encoding:
    rabitq = faiss_rabitq.read_quantizer(file, kind, dim, rotation)
    return _Encoding("rabitq", "float32", code_bytes(rabitq), rabitq=rabitq)


def _read_codec(
    file: FaissFile, kind: str, dim: int, components: NDArray[np.int64], rotation: NDArray[np.float32] | None
) -> _Encoding:
    if kind != PQ and (components < 0).any():
        raise _not_read(file, file.at, "chunks that are made alike in an index of codes alone", kind)
    if kind == FLAT:
        return _Encoding("flat", "float32", 4 * dim)
    if kind == SCALAR:
        return _read_scalar_quantizer(file, dim)
    begin = file.at
    by_residual, row_bytes = file.number("u1", "flag by_residual"), file.number("<u8", "bytes of a code")
    found_dim, m, bits = (file.number("<u8", what) for what in ("dimension", "chunks", "bits of a code"))
    if (by_residual, bits) != (1, 8):
        got = f"by_residual {by_residual}, {bits} bits"
        raise _not_read(file, begin, "codes of residuals, 8 bits a chunk", got)
    if found_dim != dim or row_bytes != m or not 1 <= m <= dim or dim % m:
        raise damaged(
            file.path, f"byte {begin}: product quantizer", f"one of {dim} components", f"{found_dim}, {m}"
        )
    pivots = file.vector("<f4", "centres")
    if len(pivots) != MAX_CENTRES * dim or not np.isfinite(pivots).all():
        raise damaged(
            file.path, f"byte {begin}: centres", f"{MAX_CENTRES} x {dim} finite numbers", len(pivots)
        )
    whole = pivots.reshape(m, MAX_CENTRES, dim // m).transpose(1, 0, 2).reshape(MAX_CENTRES, dim)
    sizes = (components >= 0).reshape(m, -1).sum(axis=1)
    if m > _MOST_CHUNKS:
        raise _not_read(file, begin, f"at most {_MOST_CHUNKS} bytes a code", m)
    if not sizes.all():
        raise _not_read(file, begin, "a component in every chunk", "an empty one")
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint32)
    book = Codebook(np.ascontiguousarray(whole[:, components >= 0], np.float32), offsets, rotation)
    return _Encoding("pq" if rotation is None else "opq", "float32", m, codebook=book)


def _read_scalar_quantizer(file: FaissFile, dim: int) -> _Encoding:
    begin = file.at
    quantizer = file.number("<i4", "scalar quantizer")
    file.number("<i4", "how the range was trained")
    file.array("<f4", 1, "argument of that")
    found_dim, row_bytes = file.number("<u8", "dimension"), file.number("<u8", "bytes of a code")
    trained = np.array(file.vector("<f4", "range"))
    again, by_residual = file.number("<u8", "bytes of a code"), file.number("u1", "flag by_residual")
    if by_residual or quantizer not in (_SQ8, *_KEPT):
        expected = "vectors of 8 bits a component, float16, uint8 or int8"
        raise _not_read(file, begin, expected, f"quantizer {quantizer}, by_residual {by_residual}")
    width = 2 if quantizer in _KEPT and _KEPT[quantizer] == "float16" else 1
    if (found_dim, row_bytes, again) != (dim, width * dim, width * dim):
        raise damaged(file.path, f"byte {begin}: scalar quantizer", f"{width * dim} bytes a row", row_bytes)
    if quantizer in _KEPT:
        return _Encoding("flat", _KEPT[quantizer], row_bytes)
    if len(trained) != 2 * dim or not np.isfinite(trained).all():
        raise damaged(file.path, f"byte {begin}: range", f"2 x {dim} finite numbers", len(trained))
    low, span = trained.astype(np.float64).reshape(2, dim)
    step = span / 255
    scale = np.stack([low + step / 2, step]).astype(np.float32)
    return _Encoding("sq8", "float32", row_bytes, scale=scale)


def _skip_map(file: FaissFile) -> None:
    """Skip the map from ids to lists, if there is one."""
    kind = file.number("u1", "kind of the map")
    file.vector("<i8", "map from ids to lists")
    if kind == _MAP_HASHED:
        file.vector("<i8", "map from ids to lists: numbers", 2)


def _not_read(file: FaissFile, at: int, expected: str, got: object) -> ForeignFile:
    action = "build an index from the vectors"
    return not_such_a_file(file.path, f"byte {at}", expected, got, action)
