"""The contents of the golden LSH index: sums and products, no random numbers, so that they never change.

``python -m tests.oracles.golden.lsh tests/golden/v1_3_lsh``.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from indexmill.builders.lsh.pack import BlockPacker
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import Manifest, seal_files, write_manifest
from indexmill.formats.index.vectors import RowFormat, write_vectors
from indexmill.formats.kinds import KINDS
from indexmill.formats.lsh.blocks import seal_blocks
from indexmill.formats.lsh.buckets import write_buckets
from indexmill.formats.lsh.functions import HashFunctions, SearchDefaults, write_functions
from indexmill.formats.lsh.shape import LshShape, pointers_to
from indexmill.formats.lsh.tables import write_tables

SHAPE = LshShape(n_vectors=150, n_tables=2, n_radii=2, hash_bits=2, block_bytes=128)
DIM, M = 3, 2
VECTORS = (np.arange(150)[:, None] * np.array([7, 11, 13]) % 64).astype(np.uint8)
# Halves and eighths: all sums and quotients are exact, so that no rounding decides.
FUNCTIONS = HashFunctions(
    projections=(np.arange(2 * M * DIM).reshape(2, M, DIM) % 5 - 2).astype(np.float32) / 2,
    offsets=np.array([[[0.125, 1.125], [2.125, 3.125]], [[3.125, 0.625], [1.625, 2.625]]], np.float32),
    multipliers=np.array(
        [[0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], [0x165667B19E3779F9, 0x27D4EB2F165667C5]], np.uint64
    ),
    radii=np.array([2.0, 8.0]),
    width=4.0,
)
DEFAULTS = SearchDefaults(ratio=4.0, candidates=20, probes=1)
USER_IDS = pa.array([f"é{i}" for i in range(150)], pa.large_string())


def places() -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    """(bucket, fingerprint, slot) of all vectors, sorted, by (radius, table)."""
    found = {}
    for radius in range(2):
        for table in range(2):
            mine = []
            for slot, vector in enumerate(VECTORS.tolist()):
                total = 0
                for j in range(M):
                    x = sum(
                        a * o for a, o in zip(FUNCTIONS.projections[table, j].tolist(), vector, strict=True)
                    )
                    t = (
                        x / float(FUNCTIONS.radii[radius]) + float(FUNCTIONS.offsets[radius, table, j])
                    ) / 4.0
                    total += int(FUNCTIONS.multipliers[table, j]) * math.floor(t)
                v = total % 2**64 >> 32
                mine.append((v % 4, (v >> 2) % 2**SHAPE.fingerprint_bits, slot))
            found[radius, table] = sorted(mine)
    return found


def write_golden(directory: Path) -> None:
    """Write the golden LSH index in today's format."""
    directory.mkdir(parents=True, exist_ok=True)
    pointers, pieces, longest, done = np.zeros((2, 2, 4), np.uint64), [], 0, 0
    for (radius, table), mine in places().items():
        columns = np.array(mine, np.uint32)
        packer = BlockPacker(128, SHAPE.id_bits, 0, 4)
        blocks = np.concatenate([packer.add(*columns.T), packer.finish()])
        lengths = -(-np.bincount(columns[:, 0], minlength=4) // SHAPE.capacity)
        ends = np.cumsum(lengths)
        pointers[radius, table] = pointers_to(done + ends - lengths, lengths, 128)
        left = np.repeat(ends, lengths) - np.arange(len(blocks)) - 1
        owners = np.repeat((radius * 2 + table) * 4 + np.arange(4, dtype=np.uint64), lengths)
        seal_blocks(blocks, pointers_to(done + np.arange(len(blocks)) + 1, left, 128), owners)
        pieces.append(blocks)
        longest, done = max(longest, int(lengths.max())), done + len(blocks)
    write_vectors(directory / "vectors.imx", RowFormat(DIM, "uint8"), 150, "l2", VECTORS)
    write_functions(directory / "functions.imx", SHAPE, FUNCTIONS, DEFAULTS)
    write_buckets(directory / "buckets.imx", SHAPE, done, longest, pieces)
    write_tables(directory / "tables.imx", SHAPE, pointers)
    write_ids(directory / "ids.imx", np.arange(150, dtype=np.uint32), USER_IDS)
    build_id, files = seal_files(directory, KINDS["lsh"].required)
    manifest = Manifest(
        kind="lsh",
        build_id=build_id,
        parameters={"metric": "l2", "ratio": 4.0, "note": "golden, größer"},
        input={"n_vectors": 150, "dim": DIM, "dtype": "uint8", "fingerprint": "ab" * 32},
        software={"indexmill": "0.1.0"},
        lsh={"radii": [2.0, 8.0]},
        certificate=None,
        files=files,
    )
    write_manifest(directory, manifest)


if __name__ == "__main__":
    write_golden(Path(sys.argv[1]))
