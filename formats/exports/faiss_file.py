"""What the faiss targets share: headers, the vectors, ids (docs/formats/foreign.md)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from indexmill.formats.exports.target import ID_MAP_NAME, ExportedIndex, cannot_hold

FILE_NAME = "index.faiss"
#: faiss's numbers of the metrics; cosine is the inner product of unit vectors.
_METRICS = {"l2": 1, "ip": 0, "cosine": 0}
_STORAGE = {"l2": b"IxF2", "ip": b"IxFI", "cosine": b"IxFI"}
#: What faiss writes in two places of a header and never reads.
_UNUSED = 1 << 20
#: Vertices are i32 in faiss's graphs, ids i64.
_MAX_VERTICES, ID_BITS = 2**31 - 1, 63
#: Lists of candidates that a search keeps unless it says otherwise.
SEARCH_LIST = 64


def check(target: str, index: ExportedIndex) -> None:
    """Refuse more vectors than faiss's graphs number, and ids that are no i64."""
    if index.n > _MAX_VERTICES:
        action = "export the shards of an index one by one"
        raise cannot_hold(target, "vectors:", f"{index.n:,}", f"up to {_MAX_VERTICES:,}", action)
    index.whole_ids(target, ID_BITS)


def header(index: ExportedIndex) -> bytes:
    """Return what every faiss index begins with, behind the name of its kind."""
    return struct.pack("<iqqqBi", index.dim, index.n, _UNUSED, _UNUSED, 1, _METRICS[index.metric])


def begin_ids(index: ExportedIndex, file: BinaryIO) -> None:
    """Open an IndexIDMap around the index that follows, where the engine is to know user ids."""
    if index.ids == "user":
        file.write(b"IxMp" + header(index))


def end_ids(target: str, index: ExportedIndex, file: BinaryIO) -> None:
    """Write the ids behind the index."""
    if index.ids == "user":
        file.write(struct.pack("<Q", index.n))
        file.write(index.whole_ids(target, ID_BITS).astype("<i8").data)


def write_storage(index: ExportedIndex, file: BinaryIO, advance: Callable[[int], None]) -> None:
    """Write the flat index with all vectors, as float32."""
    file.write(_STORAGE[index.metric] + header(index) + struct.pack("<Q", index.n * index.dim))
    for _, block in index.blocks():
        file.write(np.ascontiguousarray(index.vectors(block), "<f4").data)
        advance(len(block))


def snippet(index: ExportedIndex, folder: Path, graph: str) -> str:
    """Return Python that opens the export; `graph` is how a search's list size is set."""
    lines = [
        "import numpy as np",
        "import faiss  # faiss-cpu",
        f"index = faiss.read_index({str(folder / FILE_NAME)!r})",
        "graph = faiss.downcast_index(index.index)" if index.ids == "user" else "graph = index",
        graph,
        f"query = np.ones((1, {index.dim}), np.float32)",
    ]
    if index.metric == "cosine":
        lines.append("faiss.normalize_L2(query)")
    lines.append("scores, ids = index.search(query, 10)")
    if index.ids == "slot":
        lines.append(f"# ids are slots: {folder / ID_MAP_NAME} has the user id of each")
    lines.append("print(ids, scores)")
    return "\n".join(lines) + "\n"


KEEPS = {
    "graph": "yes",
    "codes": "no",
    "clusters": "no",
    "order": "yes",
    "pages": "no",
    "entries": "medoid",
    "ids": "64 bits",
    "metadata": "beside it",
}
ENGINE = "faiss (1.9 to 1.15)"
REBUILDS = "nothing; vectors are float32 in memory"
