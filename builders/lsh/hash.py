"""E2LSH: compound p-stable hashes of vectors, for every table and radius (Datar et al., 2004).

Deviations from Nakanishi et al. (EDBT 2023), section 5.3: the directions a are drawn once for each table and shared by
its radii, so that a vector is projected once; the offsets b are drawn anew for each radius. Radius R hashes o / R, as
the first radius of a scaled copy of the data (their section 2.3).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.streams import HASH_FUNCTIONS
from indexmill.formats.kernel import kernel

#: Rows of a matrix product. It affects results, see `builders.nearest.products.PRODUCT_ROWS`.
PRODUCT_ROWS = 8192
#: Tables of a matrix product, from a multiple of it on: one table has too few functions for BLAS.
TABLES_TOGETHER = 4
#: Rows whose sums stay in a core's own cache while all functions are added.
_TILE = 1024
#: Largest grid cell that float64 represents as a whole number.
MOST_CELL = 2.0**53


class Drawn(NamedTuple):
    """Random parameters of the hash functions.

    Attributes
    ----------
    projections : float32 array, shape (n_tables, n_functions, dim)
        a, each component from N(0, 1).
    offsets : float32 array, shape (n_radii, n_tables, n_functions)
        b, uniform in [0, width).
    multipliers : uint64 array, shape (n_tables, n_functions)
        Odd.
    """

    projections: NDArray[np.float32]
    offsets: NDArray[np.float32]
    multipliers: NDArray[np.uint64]


def draw_functions(n_tables: int, n_functions: int, n_radii: int, dim: int, width: float, seed: int) -> Drawn:
    """Draw the hash functions of all tables; a table's functions do not depend on the number of tables."""
    projections = np.empty((n_tables, n_functions, dim), np.float32)
    offsets = np.empty((n_radii, n_tables, n_functions), np.float32)
    multipliers = np.empty((n_tables, n_functions), np.uint64)
    for table in range(n_tables):
        rng = np.random.default_rng([seed, HASH_FUNCTIONS, table])
        projections[table] = rng.standard_normal((n_functions, dim), np.float32)
        multipliers[table] = rng.integers(0, 2**64, n_functions, np.uint64) | np.uint64(1)
        offsets[:, table] = width * rng.random((n_radii, n_functions))
    return Drawn(projections, offsets, multipliers)


def project(vectors: NDArray[np.float32], projections: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the projections a . o, float32 (n_tables, n_functions, n_vectors), with the vectors contiguous.

    Parameters
    ----------
    vectors : float32 array, shape (n_vectors, dim)
        Multiplied in blocks of `PRODUCT_ROWS`, from the first row on.
    projections : float32 array, shape (n_tables, n_functions, dim)
        Of `TABLES_TOGETHER` tables, or of the remaining ones.
    """
    functions = projections.reshape(-1, projections.shape[2])
    out = np.empty((len(functions), len(vectors)), np.float32)
    for first in range(0, len(vectors), PRODUCT_ROWS):
        rows = vectors[first : first + PRODUCT_ROWS]
        out[:, first : first + len(rows)] = functions @ rows.T
    return out.reshape(*projections.shape[:2], len(vectors))


def hash_rows(
    projected: NDArray[np.float32],
    radius: float,
    width: float,
    offsets: NDArray[np.float32],
    multipliers: NDArray[np.uint64],
) -> NDArray[np.uint32]:
    """Return the 32-bit hash v of every row, uint32 (n_rows,), for one table and radius.

    Parameters
    ----------
    projected : float32 array, shape (n_functions, n_rows)
        Projections of that table.
    offsets : float32 array, shape (n_functions,)
    multipliers : uint64 array, shape (n_functions,)

    Raises
    ------
    OverflowError
        If a cell is beyond `MOST_CELL` or NaN: the radius is far too small for these vectors.
    """
    scale = 1 / (radius * width)
    if not max(-float(projected.min()), float(projected.max())) * scale < MOST_CELL:
        raise OverflowError
    out = np.empty(projected.shape[1], np.uint32)
    _hash_rows(projected, scale, offsets.astype(np.float64) / width, multipliers.view(np.int64), out)
    return out


@kernel
def _hash_rows(
    projected: Any, scale: float, shifts: Any, multipliers: Any, out: Any
) -> None:  # pragma: no cover - compiled
    functions, rows = projected.shape
    sums = np.empty(_TILE, np.int64)
    for first in range(0, rows, _TILE):
        size = min(_TILE, rows - first)
        sums[:] = 0
        for j in range(functions):
            line, shift, multiplier = projected[j, first : first + size], shifts[j], multipliers[j]
            for i in range(size):
                cell = np.floor(np.float64(line[i]) * scale + shift)
                sums[i] += multiplier * np.int64(cell)  # wraps, as the sum of unsigned integers does
        for i in range(size):
            out[first + i] = np.uint32(np.uint64(sums[i]) >> np.uint64(32))


def sort_rows(
    hashes: NDArray[np.uint32], first_row: int, hash_bits: int, fingerprint_bits: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """Return bucket, fingerprint and row of every hash, sorted by (bucket, fingerprint, row).

    Parameters
    ----------
    hashes : uint32 array, shape (n_rows,)
        Hashes of the rows from `first_row` on.
    hash_bits, fingerprint_bits : int
        The lowest `hash_bits` choose the bucket, and the next `fingerprint_bits` are the fingerprint: at most 32 bits.
    """
    keys = np.empty(len(hashes), np.uint64)
    _join(hashes, first_row, hash_bits, fingerprint_bits, keys)
    keys.sort()  # no two are equal
    buckets, fingerprints, rows = (np.empty(len(keys), np.uint32) for _ in range(3))
    _split(keys, fingerprint_bits, buckets, fingerprints, rows)
    return buckets, fingerprints, rows


@kernel
def _join(hashes: Any, first: int, bits: int, more: int, out: Any) -> None:  # pragma: no cover - compiled
    low, high = np.uint64((1 << bits) - 1), np.uint64((1 << more) - 1)
    for i in range(hashes.size):
        v = np.uint64(hashes[i])
        key = ((v & low) << np.uint64(more)) | ((v >> np.uint64(bits)) & high)
        out[i] = key << np.uint64(32) | np.uint64(first + i)


@kernel
def _split(
    keys: Any, more: int, buckets: Any, fingerprints: Any, rows: Any
) -> None:  # pragma: no cover - compiled
    high = np.uint64((1 << more) - 1)
    for i in range(keys.size):
        key = keys[i] >> np.uint64(32)
        rows[i] = np.uint32(keys[i])
        fingerprints[i] = np.uint32(key & high)
        buckets[i] = np.uint32(key >> np.uint64(more))
