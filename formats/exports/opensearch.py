"""A faiss file that OpenSearch's k-NN opens: an IndexIDMap around an IndexHNSW with its vectors.

Vertex i is the i-th vector of the client, and has the i-th id: k-NN's own reader requires ids that do not decrease.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.exports.faiss_file import METRICS, header_of
from indexmill.formats.exports.hnsw import HnswShape, Level, write_hnsw
from indexmill.formats.exports.rows import Advance

#: Component types of the vectors, and faiss's numbers of their scalar quantizers; float32 needs none.
QUANTIZERS = {"float32": None, "float16": 4, "int8": 8}
_FLAT = {"l2": b"IxF2", "ip": b"IxFI"}
#: In place of the storage of a graph whose vectors the client has already.
_NO_STORAGE = b"null"


@dataclass(frozen=True)
class KnnFile:
    """What the file says of its vectors.

    Attributes
    ----------
    dim : int
    metric : {"l2", "ip"}
    component : str
        One of `QUANTIZERS`.
    has_vectors : bool
        Whether vectors follow the graph.
    """

    dim: int
    metric: str
    component: str
    has_vectors: bool


def write_knn_file(
    what: KnnFile,
    shape: HnswShape,
    graph: tuple[Iterable[tuple[NDArray[np.uint32], NDArray[np.int32]]], Sequence[Level]],
    vectors: Iterable[NDArray[Any]],
    ids: Iterable[NDArray[np.int32]],
    file: BinaryIO,
    advance: Advance,
) -> None:
    """Write the file. Memory: as of `write_hnsw`, and blocks.

    Parameters
    ----------
    graph : tuple
        Blocks of level 0 and the upper levels, as `write_hnsw` takes them.
    vectors : iterable of array, shape (m, dim)
        Consecutive vectors, whose values are those of `what.component`; not read without `what.has_vectors`.
    ids : iterable of int32 array, shape (m,)
        Consecutive ids.
    """
    header = header_of(what.dim, shape.n, METRICS[what.metric])
    quantizer = QUANTIZERS[what.component]
    file.write(b"IxMp" + header)
    file.write((b"IHNf" if quantizer is None else b"IHNs") + header)
    write_hnsw(shape, *graph, file, advance)
    if not what.has_vectors:
        file.write(_NO_STORAGE)
    else:
        _begin_storage(what, shape.n, quantizer, header, file)
        for rows in vectors:
            file.write(_stored(rows, what.component).data)
            advance(len(rows))
    file.write(struct.pack("<Q", shape.n))
    for block in ids:
        file.write(block.astype("<i8").data)


def _begin_storage(what: KnnFile, n: int, quantizer: int | None, header: bytes, file: BinaryIO) -> None:
    """Write what stands before the vectors: for codes the quantizer, which learned nothing, and their bytes."""
    if quantizer is None:
        file.write(_FLAT[what.metric] + header + struct.pack("<Q", n * what.dim))
        return
    code_bytes = what.dim * np.dtype(what.component).itemsize
    file.write(b"IxSQ" + header + struct.pack("<iifQQ", quantizer, 0, 0.0, what.dim, code_bytes))
    file.write(struct.pack("<QQ", 0, n * code_bytes))


def _stored(rows: NDArray[Any], component: str) -> NDArray[Any]:
    if component == "int8":  # faiss's codes of signed bytes begin at -128
        return (rows.astype(np.int16) + 128).astype(np.uint8)
    return np.ascontiguousarray(rows, np.dtype(component).newbyteorder("<"))
