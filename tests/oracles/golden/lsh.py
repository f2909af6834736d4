"""The contents of the golden LSH indexes: sums and products, no random numbers, so that they never change.

``python -m tests.oracles.golden.lsh tests/golden`` writes ``v1_3_lsh``, and ``v4_0_lsh`` with added tables.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from indexmill.builders.lsh.pack import BlockPacker
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import FileEntry, Manifest, file_sha256, seal_files, write_manifest
from indexmill.formats.index.vectors import RowFormat, write_vectors
from indexmill.formats.kinds import KINDS
from indexmill.formats.lsh.blocks import seal_blocks
from indexmill.formats.lsh.buckets import write_buckets
from indexmill.formats.lsh.functions import HashFunctions, SearchDefaults, write_functions
from indexmill.formats.lsh.names import BASE, names_of
from indexmill.formats.lsh.shape import LshShape, pointers_to
from indexmill.formats.lsh.tables import write_tables
from indexmill.formats.pagefile.writer import stamp_build_id

SHAPE = LshShape(n_vectors=150, n_tables=2, n_radii=2, hash_bits=2, block_bytes=128)
#: With added tables: first slot whose entries they hold, and the build id in the headers of the tables that stayed.
FIRST_ADDED, EARLIER = 128, "cd" * 16
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


def shapes(is_added: bool) -> list[LshShape]:
    """Shapes of the pairs of files."""
    base = replace(SHAPE, n_vectors=FIRST_ADDED)
    return [base, base.beside(SHAPE.n_vectors)] if is_added else [SHAPE]


def places(shape: LshShape = SHAPE) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    """(bucket, fingerprint, slot) of the vectors in tables of `shape`, sorted, by (radius, table)."""
    found = {}
    for radius in range(2):
        for table in range(2):
            mine = []
            for slot in range(shape.first_slot, shape.n_vectors):
                total = 0
                for j in range(M):
                    x = sum(
                        a * o
                        for a, o in zip(
                            FUNCTIONS.projections[table, j].tolist(), VECTORS[slot].tolist(), strict=True
                        )
                    )
                    t = (
                        x / float(FUNCTIONS.radii[radius]) + float(FUNCTIONS.offsets[radius, table, j])
                    ) / 4.0
                    total += int(FUNCTIONS.multipliers[table, j]) * math.floor(t)
                v = total % 2**64 >> 32
                mine.append((v % 4, (v >> 2) % 2**shape.fingerprint_bits, slot))
            found[radius, table] = sorted(mine)
    return found


def _write_pair(directory: Path, shape: LshShape) -> None:
    pointers, pieces, longest, done = np.zeros((2, 2, 4), np.uint64), [], 0, 0
    for (radius, table), mine in places(shape).items():
        columns = np.array(mine, np.uint32)
        packer = BlockPacker(shape.block_bytes, shape.id_bits, 0, 4)
        blocks = np.concatenate([packer.add(*columns.T), packer.finish()])
        lengths = -(-np.bincount(columns[:, 0], minlength=4) // shape.capacity)
        ends = np.cumsum(lengths)
        pointers[radius, table] = pointers_to(done + ends - lengths, lengths, 128)
        left = np.repeat(ends, lengths) - np.arange(len(blocks)) - 1
        owners = np.repeat((radius * 2 + table) * 4 + np.arange(4, dtype=np.uint64), lengths)
        seal_blocks(blocks, pointers_to(done + np.arange(len(blocks)) + 1, left, 128), owners)
        pieces.append(blocks)
        longest, done = max(longest, int(lengths.max())), done + len(blocks)
    names = names_of(shape)
    write_buckets(directory / names.buckets, shape, done, longest, pieces)
    write_tables(directory / names.tables, shape, pointers)


def write_golden(directory: Path, is_added: bool = False) -> None:
    """Write a golden LSH index in today's format; with added tables where `is_added`."""
    directory.mkdir(parents=True, exist_ok=True)
    for shape in shapes(is_added):
        _write_pair(directory, shape)
    taken_over = []
    for path in [directory / name for name in BASE] if is_added else []:
        stamp_build_id(path, bytes.fromhex(EARLIER))
        taken_over.append(FileEntry(path.name, path.stat().st_size, file_sha256(path), EARLIER))
    write_vectors(directory / "vectors.imx", RowFormat(DIM, "uint8"), 150, "l2", VECTORS)
    write_functions(directory / "functions.imx", SHAPE, FUNCTIONS, DEFAULTS)
    write_ids(directory / "ids.imx", np.arange(150, dtype=np.uint32), USER_IDS)
    written = {name for shape in shapes(is_added) for name in names_of(shape)} | KINDS["lsh"].required.keys()
    names = written - {entry.name for entry in taken_over}
    build_id, files = seal_files(directory, names, taken_over)
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
    for name, with_added in (("v1_3_lsh", False), ("v4_0_lsh", True)):
        write_golden(Path(sys.argv[1]) / name, with_added)
