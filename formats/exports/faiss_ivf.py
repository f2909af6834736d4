"""Export to faiss's IndexIVFFlat, IndexIVFScalarQuantizer, IndexIVFPQ and IndexIVFRaBitQ with our lists.

Transforms in front of the IndexIVF represent what it lacks (docs/formats/imports.md): they add to queries the component
that inner product needs, and zeros where chunks of a PQ differ in size, normalize queries for cosine, and rotate them.
Zeros of chunks are added behind a rotation, since it has none.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.exports import faiss_file, faiss_rabitq
from indexmill.formats.exports.faiss_file import FILE_NAME, ID_BITS
from indexmill.formats.exports.lists import ExportedLists
from indexmill.formats.exports.rows import ID_MAP_NAME, Advance
from indexmill.formats.exports.target import Target, cannot_hold, kept
from indexmill.formats.graph.codes import MAX_CENTRES
from indexmill.formats.ivf.rabitq_in_faiss import code_bytes
from indexmill.formats.ivf.transforms_in_faiss import MATRIX, NORMALIZE, REMAP, ROTATION

NAME, DISK_NAME = "faiss-ivf", "faiss-ivf-disk"
#: File with the lists of an index whose lists stay on disk.
LISTS_NAME = "index.ivfdata"
_L2, _IP = faiss_file.METRICS["l2"], faiss_file.METRICS["ip"]
#: faiss's numbers of scalar quantizers: for sq8, and for plain components.
_SQ8 = 0
_AS_THEY_ARE = {"float16": 4, "uint8": 5, "int8": 8}
#: Alignment of lists on disk, and of their room in rows, so that ids are at multiples of 8 bytes.
_PAGE, _ROOM = 4096, 8


@dataclass(frozen=True)
class _Shape:
    """Arrangement of components in faiss.

    Attributes
    ----------
    components : int64 array, shape (dim of faiss,)
        Our stored component for each one; -1 for zero.
    """

    components: NDArray[np.int64]

    @property
    def dim(self) -> int:
        return len(self.components)

    def spread(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return stored components (m, stored dim) in faiss's arrangement, (m, dim)."""
        spread = np.zeros((len(values), self.dim), np.float32)
        there = self.components >= 0
        spread[:, there] = values[:, self.components[there]]
        return spread


def _shape(index: ExportedLists) -> _Shape:
    shared = index.shared
    components = np.arange(shared.dim)
    if shared.codebook is not None:
        offsets = shared.codebook.offsets.astype(np.int64)
        places = offsets[:-1, None] + np.arange(np.diff(offsets).max())
        components = np.where(places < offsets[1:, None], places, -1).ravel()
    return _Shape(components)


def check(name: str, index: ExportedLists) -> None:
    """Refuse ids that are not i64, and inner products of rotated codes, which faiss estimates by another rule."""
    index.check_ids(name, ID_BITS)
    if index.metric == "ip" and index.shared.rabitq is not None:
        action = "build with another --codec"
        raise cannot_hold(name, "inner products of lists with codec", "rabitq", "those with another", action)


def write(index: ExportedLists, folder: Path, advance: Advance) -> None:
    """Write the file. Memory: a part of a list, and the ids."""
    with open(folder / FILE_NAME, "xb") as file:
        _write_head(index, file)
        sizes = index.lists.sizes
        file.write(struct.pack("<4sQQ4s", b"ilar", len(sizes), _row_bytes(index), b"full"))
        file.write(struct.pack("<Q", len(sizes)) + sizes.astype("<u8").tobytes())
        for number in np.flatnonzero(sizes).tolist():
            _write_list(index, number, file)
            advance(int(sizes[number]))


def write_on_disk(index: ExportedLists, folder: Path, advance: Advance) -> None:
    """Write the file, and another one with the lists, each on its own pages. Memory: see `write`."""
    sizes, row_bytes = index.lists.sizes, _row_bytes(index)
    rooms = -(-sizes // _ROOM) * _ROOM
    taken = -(-rooms * (row_bytes + 8) // _PAGE) * _PAGE
    ends = np.cumsum(taken)
    with open(folder / FILE_NAME, "xb") as file:
        _write_head(index, file)
        file.write(struct.pack("<4sQQ", b"ilod", len(sizes), row_bytes))
        table = np.column_stack([sizes, rooms, ends - taken]).astype("<u8")
        file.write(struct.pack("<Q", len(sizes)) + table.tobytes())
        file.write(struct.pack("<Q", 0))  # no free places
        file.write(struct.pack("<Q", len(LISTS_NAME)) + LISTS_NAME.encode())
        file.write(struct.pack("<Q", int(ends[-1])))
    with open(folder / LISTS_NAME, "xb") as file:
        for number in np.flatnonzero(sizes).tolist():
            spare = int(rooms[number] - sizes[number])
            _write_list(index, number, file, spare)
            file.write(bytes(int(ends[number]) - file.tell()))
            advance(int(sizes[number]))


def _row_bytes(index: ExportedLists) -> int:
    """Return the bytes of a row in faiss."""
    rabitq = index.shared.rabitq
    return index.shared.row_bytes if rabitq is None else code_bytes(rabitq)


def _rows(index: ExportedLists, number: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the rows of a list as faiss has them."""
    rabitq = index.shared.rabitq
    sign = np.uint8(0x80 if index.shared.codec == "flat" and index.shared.dtype == "int8" else 0)
    for rows in index.lists.rows(number):
        if rabitq is not None:
            yield faiss_rabitq.codes_of(rows, rabitq)
        else:
            yield rows ^ sign if sign else rows


def _write_list(index: ExportedLists, number: int, file: BinaryIO, spare: int = 0) -> None:
    """Write the rows of a list, room for `spare` more, and its ids."""
    for rows in _rows(index, number):
        file.write(rows.data)
    file.write(bytes(spare * _row_bytes(index)))
    for names in index.whole_names(number):
        file.write(names.astype("<i8", copy=False).data)


def _write_head(index: ExportedLists, file: BinaryIO) -> None:
    """Write everything except the lists: transforms, centroids, codec."""
    shared, shape, n = index.shared, _shape(index), index.n_rows
    metric = _L2 if index.metric == "l2" or (index.metric == "cosine" and shared.codec != "flat") else _IP
    _write_transforms(index, shape, n, metric, file)
    flat = shared.codec == "flat" and shared.dtype == "float32"
    kind = b"IwPQ" if shared.codebook is not None else b"IwFl" if flat else b"IwSq"
    if shared.rabitq is not None:
        kind = faiss_rabitq.name_of(shared.rabitq)
    file.write(kind + faiss_file.header_of(shape.dim, n, metric))
    file.write(struct.pack("<QQ", shared.n_lists, index.probes))
    file.write(b"IxF2" + faiss_file.header_of(shape.dim, shared.n_lists, _L2))
    file.write(struct.pack("<Q", shared.n_lists * shape.dim))
    file.write(shape.spread(shared.centroids).astype("<f4").data)
    file.write(struct.pack("<BQ", 0, 0))  # no map from ids to lists
    if shared.codebook is not None:
        m, dsub = shared.row_bytes, shape.dim // shared.row_bytes
        file.write(struct.pack("<BQQQQQ", 1, m, shape.dim, m, 8, MAX_CENTRES * shape.dim))  # of residuals
        pivots = np.zeros((MAX_CENTRES, shape.dim), "<f4")
        pivots[: len(shared.codebook.pivots)] = shape.spread(shared.codebook.pivots)
        by_chunk = pivots.reshape(MAX_CENTRES, m, dsub).transpose(1, 0, 2)
        file.write(np.ascontiguousarray(by_chunk).data)
    elif shared.rabitq is not None:
        faiss_rabitq.write_quantizer(shared.rabitq, metric, file)
    elif not flat:
        _write_scalar_quantizer(index, shape, file)


def _write_transforms(index: ExportedLists, shape: _Shape, n: int, metric: int, file: BinaryIO) -> None:
    """Write the transforms of a query."""
    shared, dim = index.shared, index.dim
    transforms: list[bytes] = []
    if index.metric == "cosine":
        transforms.append(NORMALIZE.encode() + struct.pack("<fiiB", 2.0, dim, dim, 1))
    if shared.rotation is not None:
        name = MATRIX if shared.rabitq is None else ROTATION
        transforms += _moved(np.arange(shared.dim), dim)
        transforms.append(_rotated(name, shared.rotation))
        transforms += _moved(shape.components, shared.dim)
    else:
        transforms += _moved(shape.components, dim)
    if transforms:
        head = faiss_file.header_of(dim, n, metric) + struct.pack("<i", len(transforms))
        file.write(b"IxPT" + head + b"".join(transforms))


def _moved(components: NDArray[np.int64], before: int) -> list[bytes]:
    """Return the transform that puts these of `before` components in their places; none if they are all in order."""
    if len(components) == before:
        return []
    places = np.where(components < before, components, -1).astype("<i4")
    sizes = struct.pack("<iiB", before, len(places), 1)
    return [REMAP.encode() + struct.pack("<Q", len(places)) + places.tobytes() + sizes]


def _rotated(name: str, rotation: NDArray[np.float32]) -> bytes:
    """Return the transform ``x @ rotation`` under its name; it adds nothing."""
    dim = len(rotation)
    matrix = np.ascontiguousarray(rotation.T, "<f4").tobytes()
    return name.encode() + struct.pack("<BQ", 0, dim * dim) + matrix + struct.pack("<QiiB", 0, dim, dim, 1)


def _write_scalar_quantizer(index: ExportedLists, shape: _Shape, file: BinaryIO) -> None:
    """Write the encoding of components; faiss decodes code c of sq8 to low + span (c + 1/2) / 255."""
    shared = index.shared
    trained = np.empty(0, "<f4")
    kind = _AS_THEY_ARE.get(shared.dtype, _SQ8)
    if shared.scale is not None:
        kind = _SQ8
        low, step = shared.scale.astype(np.float64)
        trained = np.concatenate([low - step / 2, 255 * step]).astype("<f4")
    # kind, method of training a range, components, bytes of a row
    file.write(struct.pack("<iifQQ", kind, 0, 0.0, shape.dim, shared.row_bytes))
    file.write(struct.pack("<Q", len(trained)) + trained.tobytes())
    file.write(struct.pack("<QB", shared.row_bytes, 0))  # of vectors, not residuals


def snippet(index: ExportedLists, folder: Path) -> str:
    """Return Python that opens the export."""
    return _snippet(index, f"faiss.read_index({str(folder / FILE_NAME)!r})")


def snippet_on_disk(index: ExportedLists, folder: Path) -> str:
    """Return Python that opens the export, with the lists in the same directory."""
    return _snippet(index, f"faiss.read_index({str(folder / FILE_NAME)!r}, faiss.IO_FLAG_ONDISK_SAME_DIR)")


def _snippet(index: ExportedLists, opened: str) -> str:
    note = f"# ids are vector ids: {ID_MAP_NAME} has the user id of each\n" if index.ids == "slot" else ""
    if index.repeats:
        note += (
            "# a vector may stand in several lists: ask for more than 10, and pass over what comes again\n"
        )
    return f"""\
import numpy as np
import faiss  # faiss-cpu
index = {opened}
faiss.extract_index_ivf(index).nprobe = {index.probes}
query = np.ones((1, {index.dim}), np.float32)
scores, ids = index.search(query, 10)
{note}print(ids, scores)
"""


def _target(
    name: str,
    where: str,
    pages: str,
    write: Callable[[ExportedLists, Path, Advance], None],
    snippet: Callable[[ExportedLists, Path], str],
) -> Target[ExportedLists]:
    return Target(
        name=name,
        holds=(ExportedLists,),
        engine=f"faiss (1.15), lists {where}",
        keeps=kept(
            codes="yes", clusters="yes", order="in lists", pages=pages, ids="63 bits", metadata="beside it"
        ),
        rebuilds="nothing; with pq, distance tables when opened",
        check=partial(check, name),
        write=write,
        snippet=snippet,
    )


TARGET = _target(NAME, "in memory", "no", write, snippet)
DISK_TARGET = _target(DISK_NAME, "on the disk", "lists on pages", write_on_disk, snippet_on_disk)
