"""Vectors, queries and truth of a benchmark; needs numpy only, so both sides' environments share it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

#: Neighbours asked for in every measurement.
K = 10
#: Two float32 sums of a few hundred squares in a different order differ by less than this fraction.
DISTANCE_TOLERANCE = 2e-6
#: Neighbours a query in a truth file that this benchmark computes itself.
TRUTH_K = 100


@dataclass(frozen=True)
class Dataset:
    """Files of one set: ``base.u8bin``, ``query.u8bin`` and ``truth.gt`` (big-ann layouts) in one folder."""

    folder: Path

    @property
    def base(self) -> Path:
        """Vectors to index."""
        return self.folder / "base.u8bin"

    @property
    def query(self) -> Path:
        """Queries; the first half tunes, the second half reports."""
        return self.folder / "query.u8bin"

    @property
    def truth(self) -> Path:
        """Exact neighbours of the queries."""
        return self.folder / "truth.gt"

    def shape(self) -> tuple[int, int]:
        """Return (n_vectors, dim) of the base."""
        n_vectors, dim = read_bin(self.base).shape
        return n_vectors, dim

    def half(self) -> int:
        """Queries that tune; the others report."""
        return len(read_bin(self.query)) // 2


def read_bin(path: Path, dtype: Any = np.uint8) -> Any:
    """Map a big-ann file {u32 n, u32 dim, rows}; shape (n, dim), read-only."""
    rows, dim = (int(value) for value in np.fromfile(path, "<u4", 2))
    return np.memmap(path, dtype, "r", 8, (rows, dim))


def write_bin(path: Path, vectors: Any, dtype: Any = np.uint8) -> None:
    """Write a big-ann file of `vectors`, shape (n, dim), as `dtype`."""
    with open(path, "wb") as file:
        np.array(vectors.shape, "<u4").tofile(file)
        for first in range(0, len(vectors), 65536):
            vectors[first : first + 65536].astype(dtype).tofile(file)


def read_truth(path: Path) -> tuple[Any, Any]:
    """Return ids (u32) and squared distances (f32), both of shape (n_queries, k)."""
    n_queries, k = (int(value) for value in np.fromfile(path, "<u4", 2))
    ids = np.memmap(path, "<u4", "r", 8, (n_queries, k))
    return ids, np.memmap(path, "<f4", "r", 8 + 4 * n_queries * k, (n_queries, k))


def first_rows(data: Dataset, rows: int, folder: Path) -> Dataset:
    """Write the first `rows` vectors with their own exact truth into `folder`, to try a benchmark on."""
    from indexmill.builders.exact import exact_neighbours

    folder.mkdir(parents=True, exist_ok=True)
    small = Dataset(folder)
    vectors, queries = read_bin(data.base)[:rows], np.asarray(read_bin(data.query))
    write_bin(small.base, vectors)
    write_bin(small.query, queries)
    ids, distances = exact_neighbours(np.asarray(vectors), queries, min(TRUTH_K, rows), threads=2)
    with open(small.truth, "wb") as file:
        np.array(ids.shape, "<u4").tofile(file)
        ids.astype("<u4").tofile(file)
        distances.astype("<f4").tofile(file)
    return small


def recall_by_distance(found: Any, base: Any, queries: Any, truth_distances: Any) -> float:
    """Mean share of results no farther than the K-th true neighbour; about 1% of queries tie there.

    Parameters
    ----------
    found : integer array, shape (n_queries, K)
        Rows of `base`.
    base, queries : uint8 arrays, shape (n_vectors, dim) and (n_queries, dim)
    truth_distances : float32 array, shape (n_queries, >= K)

    Raises
    ------
    ValueError
        If a query's results name a row twice: that would count a neighbour twice.
    """
    ordered = np.sort(found, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        raise ValueError("a query's results name one vector twice")
    differences = base[found].astype(np.int64) - queries[:, None, :].astype(np.int64)
    distances = (differences * differences).sum(axis=2)
    return float((distances <= truth_distances[:, K - 1 : K] * (1 + DISTANCE_TOLERANCE)).mean())
