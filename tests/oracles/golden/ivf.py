"""The contents of the golden IVF indexes: sums and products, no random numbers, so that they never change.

``python -m tests.oracles.golden.ivf tests/golden`` writes ``v1_3_ivf``, flat lists, and ``v1_3_ivf_sq8``,
``v1_3_ivf_pq``, ``v1_3_ivf_rabitq`` and ``v1_3_ivf_opq``: codes with everything that an index may have besides; and
``v3_0_ivf``, flat lists with a batch that was taken over from an earlier index.
"""

from __future__ import annotations

import struct
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.graph.codes import Codebook
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import FileEntry, Manifest, file_sha256, seal_files, write_manifest
from indexmill.formats.index.vectors import RowFormat, write_vectors
from indexmill.formats.ivf.batch import batch_name, longest_first, write_batch
from indexmill.formats.ivf.centroids import CENTROIDS_NAME, CellGraph, Centroids, Codec, write_centroids
from indexmill.formats.ivf.rabitq import RabitQ
from indexmill.formats.pagefile.writer import stamp_build_id

NAMES: dict[str, Codec] = {
    "v1_3_ivf": "flat",
    "v1_3_ivf_sq8": "sq8",
    "v1_3_ivf_pq": "pq",
    "v1_3_ivf_rabitq": "rabitq",
    "v1_3_ivf_opq": "opq",
    "v3_0_ivf": "flat",
}
#: Build id in the header of the batch that was taken over.
EARLIER = "cd" * 16
N, DIM, LISTS = 60, 4, 5
VECTORS = (np.arange(N)[:, None] * np.array([7, 11, 13, 29]) % 64).astype(np.uint8)
CENTROIDS = (np.arange(LISTS)[:, None] * np.array([10, 12, 9, 11]) + 6).astype(np.float32)
#: First vectors of the batches, and the number of vectors. No vector lies in list 3.
BATCHES = (0, 35, N)
HOME = np.arange(N) % 3 + (np.arange(N) % 7 == 0) * 2 * (np.arange(N) % 3 == 2)
#: A second list of some vectors.
SECOND = np.where(np.arange(N) % 5 == 0, (HOME + 1) % 3, -1)
#: Minimum and step of each component: codes are exact.
SCALE = np.array([[0, -8, -16, -1], [0.25, 0.5, 1, 0.5]], np.float32)
CODEBOOK = Codebook(
    (np.arange(4)[:, None] * np.array([2, 3, 5, 4]) - 8).astype(np.float32), np.array([0, 1, 4], np.uint32)
)
#: Two bits; halves and their sums are exact.
RABITQ = RabitQ(
    2, np.array([[1, -1, -1, 1], [1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1]], np.float32) / np.float32(2)
)
OPQ = Codebook(CODEBOOK.pivots, CODEBOOK.offsets, RABITQ.rotation)
GRAPH = CellGraph(np.array([[1, 2], [0, 2], [1, 3], [4, 2], [3, 4]], np.uint32), 2)
USER_IDS = pa.array([f"é{i}" for i in range(N)], pa.large_string())


def lists_of(full: bool, first: int, last: int) -> list[list[int]]:
    """Return the vectors of each list of the batch of the vectors `first` to `last`."""
    return [
        [i for i in range(first, last) if HOME[i] == number or (full and SECOND[i] == number)]
        for number in range(LISTS)
    ]


def centroids(codec: Codec) -> NDArray[np.float32]:
    """Return the centroids as an index has them."""
    return CENTROIDS @ RABITQ.rotation if codec in ("rabitq", "opq") else CENTROIDS


def row(codec: Codec, vector: int, number: int) -> NDArray[np.uint8]:
    """Return a vector as a row of a list."""
    if codec == "flat":
        return VECTORS[vector]
    if codec == "sq8":
        return ((VECTORS[vector] - SCALE[0]) / SCALE[1]).astype(np.uint8)
    residual, codes = VECTORS[vector] - CENTROIDS[number], []
    if codec == "rabitq":
        return _rotated_row((residual @ RABITQ.rotation).tolist())
    if codec == "opq":
        residual = residual @ RABITQ.rotation
    for first, last in ((0, 1), (1, 4)):
        away = ((CODEBOOK.pivots[:, first:last] - residual[first:last]) ** 2).sum(axis=1)
        codes.append(int(np.argmin(away)))
    return np.array(codes, np.uint8)


def _rotated_row(residual: list[float]) -> NDArray[np.uint8]:
    """Return a row of RaBitQ codes: components of 8 and more are far."""
    signs = low = 0
    product = 0.0
    for j, x in enumerate(residual):
        signs |= (x > 0) << j
        low |= ((x > 0) == (abs(x) >= 8)) << j
        product += abs(x) * (3 if abs(x) >= 8 else 1)
    length = sum(x * x for x in residual)
    head = struct.pack("<ff", length, length / product if product else 0)
    return np.frombuffer(head + bytes([signs, low]), np.uint8)


def write_golden(directory: Path, codec: Codec, is_extended: bool = False) -> None:
    """Write a golden IVF index in today's format; an extended one took its first batch over."""
    directory.mkdir(parents=True, exist_ok=True)
    full = codec != "flat"
    more: dict[str, Any] = {"copies": 2, "graph": GRAPH} if full else {}
    of_codec: dict[str, dict[str, Any]] = {
        "sq8": {"scale": SCALE},
        "pq": {"codebook": CODEBOOK},
        "rabitq": {"rabitq": RABITQ},
        "opq": {"codebook": OPQ},
    }
    more |= of_codec.get(codec, {})
    shared = Centroids(centroids(codec), "uint8", "l2", 0.0, N, 2, codec, **more)
    write_centroids(directory / CENTROIDS_NAME, shared)
    for number, (first, last) in enumerate(pairwise(BATCHES)):
        lists = lists_of(full, first, last)
        sizes = np.array([len(mine) for mine in lists])
        pieces = [
            (np.array(lists[one], np.uint32), np.stack([row(codec, vector, one) for vector in lists[one]]))
            for one in longest_first(sizes).tolist()
            if lists[one]
        ]
        path = directory / batch_name(number)
        write_batch(path, number, first, sizes, shared.row_bytes, pieces, last - first if full else None)
    write_ids(directory / "ids.imx", np.arange(N, dtype=np.uint32), USER_IDS)
    if full:
        write_vectors(directory / "vectors.imx", RowFormat(DIM, "uint8"), N, "l2", VECTORS)
    taken_over = []
    if is_extended:
        path = directory / batch_name(0)
        stamp_build_id(path, bytes.fromhex(EARLIER))
        taken_over.append(FileEntry(path.name, path.stat().st_size, file_sha256(path), EARLIER))
    names = {path.name for path in directory.iterdir()} - {entry.name for entry in taken_over}
    build_id, files = seal_files(directory, sorted(names), taken_over)
    manifest = Manifest(
        kind="ivf",
        build_id=build_id,
        parameters={"metric": "l2", "lists": LISTS, "note": "golden, größer"},
        input={"n_vectors": N, "dim": DIM, "dtype": "uint8", "fingerprint": "ab" * 32},
        software={"indexmill": "0.1.0"},
        ivf={"lists": LISTS, "codec": shared.codec, "row_bytes": shared.row_bytes, "batches": [35, 25]},
        certificate=None,
        files=files,
    )
    write_manifest(directory, manifest)


if __name__ == "__main__":
    for name, codec in NAMES.items():
        write_golden(Path(sys.argv[1]) / name, codec, name == "v3_0_ivf")
