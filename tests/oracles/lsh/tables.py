"""E2LSH the slow way: hashes by their formula, tables as dictionaries, files decoded field by field."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from indexmill.formats.lsh.index import LshFiles

PAGE = 4096


def cells(index: LshFiles, radius: int, table: int, vector: np.ndarray) -> list[float]:
    """t_j of one vector: floor of it is h_j."""
    f = index.functions
    return [
        (float(np.dot(a.astype(np.float64), vector.astype(np.float64))) / float(f.radii[radius]) + float(b))
        / f.width
        for a, b in zip(f.projections[table], f.offsets[radius, table], strict=True)
    ]


def hash_of(index: LshFiles, table: int, whole: list[int]) -> tuple[int, int]:
    """Bucket and fingerprint of the integers h_j."""
    shape = index.shape
    multipliers = index.functions.multipliers[table].tolist()
    v = sum(m * h for m, h in zip(multipliers, whole, strict=True)) % 2**64 >> 32
    return v % 2**shape.hash_bits, (v >> shape.hash_bits) % 2**shape.fingerprint_bits


def place(index: LshFiles, radius: int, table: int, vector: np.ndarray) -> tuple[int, int] | None:
    """Bucket and fingerprint of a vector; None where it lies so near to a border that rounding decides."""
    t = cells(index, radius, table, vector)
    if any(abs(x - round(x)) < 1e-3 for x in t):
        return None
    return hash_of(index, table, [math.floor(x) for x in t])


@dataclass
class Decoded:
    """Files of tables and of buckets as they lie, without a helper of the formats; the bitmap of added tables."""

    tables: bytes
    buckets: bytes
    block_bytes: int
    id_bits: int
    occupied: int | None = None

    @classmethod
    def of(cls, index: LshFiles) -> Decoded:
        read = [(Path(index.path) / name).read_bytes() for name in ("tables.imx", "buckets.imx")]
        shape = index.pairs[0].shape
        return cls(*read, shape.block_bytes, shape.id_bits)

    @classmethod
    def added(cls, index: LshFiles) -> Decoded:
        path, shape = Path(index.path), index.pairs[1].shape
        tables = (path / "added-tables.imx").read_bytes()
        begin = PAGE * (1 + -(-8 * index.pairs[1].tables.n_buckets // PAGE))
        occupied = int.from_bytes(tables[begin : begin + shape.bitmap_bytes], "little")
        return cls(tables, (path / "added-buckets.imx").read_bytes(), 128, shape.id_bits, occupied)

    def pointer(self, entry: int) -> int:
        """Section `pointers` is the first one: it starts at page 1. Added tables have those of occupied buckets."""
        if self.occupied is not None:
            if not self.occupied >> entry & 1:
                return 0
            entry = (self.occupied & (1 << entry) - 1).bit_count()
        return int.from_bytes(self.tables[PAGE + 8 * entry : PAGE + 8 * entry + 8], "little")

    def chain(self, entry: int) -> list[tuple[int, int]]:
        """(slot, fingerprint) of each object in the chain of a table's entry, every block checked on the way."""
        found, pointer = [], self.pointer(entry)
        while pointer:
            at = pointer % 2**48
            block = self.buckets[at : at + self.block_bytes]
            crc, count, tag, pointer = struct.unpack_from("<IHHQ", block)
            assert crc == google_crc32c.value(block[4:])
            assert tag == entry * 0x9E3779B97F4A7C15 % 2**64 >> 48
            for i in range(count):
                one = int.from_bytes(block[16 + 5 * i : 21 + 5 * i], "little")
                found.append((one % 2**self.id_bits, one >> self.id_bits))
        return found


def as_query(index: LshFiles, query: np.ndarray) -> np.ndarray:
    """A query as it is hashed and compared."""
    wide = query.astype(np.float64)
    norm = float(np.linalg.norm(wide))
    if index.vectors.metric == "cosine":
        return wide / norm
    if index.vectors.metric == "ip":
        return np.append(wide * (index.vectors.max_norm / norm if norm else 0.0), 0.0)
    return wide


def search(
    index: LshFiles, query: np.ndarray, k: int, candidates: int | None = None
) -> list[tuple[float, int]]:
    """(R, c)-NN for growing radii until k vectors within cR are found: (distance, slot), nearest first.

    At most `candidates` + k - 1 new distances are computed in a radius.
    """
    decoded, shape = Decoded.of(index), index.shape
    most = (candidates or index.defaults.candidates) + k - 1
    vectors = index.vectors.read(0, shape.n_vectors).astype(np.float64)
    q = as_query(index, query)
    found: dict[int, float] = {}
    for i, radius in enumerate(index.functions.radii):
        new = 0
        for table in range(shape.n_tables):
            bucket, fingerprint = hash_of(index, table, [math.floor(x) for x in cells(index, i, table, q)])
            entry = (i * shape.n_tables + table) * 2**shape.hash_bits + bucket
            for slot, other in decoded.chain(entry):
                if other == fingerprint and slot not in found and new < most:
                    found[slot] = float(np.linalg.norm(vectors[slot] - q))
                    new += 1
        nearest = sorted((distance, slot) for slot, distance in found.items())[:k]
        if len(nearest) == k and nearest[-1][0] <= index.defaults.ratio * float(radius):
            break
    return nearest


def overall_ratio(found: list[list[float]], truth: list[list[float]]) -> tuple[float, int]:
    """Mean ratio of found to true distances, and how many queries were skipped.

    A true distance of 0 counts as 1 if it was found, else its query is skipped.
    """
    ratios: list[Any] = []
    skipped = 0
    for mine, right in zip(found, truth, strict=True):
        parts = [1.0 if t == 0 == m else (m / t if t else math.inf) for m, t in zip(mine, right, strict=True)]
        if math.inf in parts:
            skipped += 1
        else:
            ratios.append(np.mean(parts))
    return float(np.mean(ratios)), skipped
