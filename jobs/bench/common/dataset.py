"""Vectors, queries and truth of a benchmark; needs numpy only, so both sides' environments share it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
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


#: Rows written at a time.
_ROWS = 65_536
#: Types of big-ann files by their suffix.
_DTYPES = {".u8bin": np.uint8, ".fbin": np.float32, ".f16bin": np.float16}


@dataclass(frozen=True)
class Dataset:
    """Files of one set in a folder: ``base`` and ``query`` (``.u8bin`` or ``.fbin``) and ``truth.gt``, as big-ann's."""

    folder: Path

    @property
    def base(self) -> Path:
        """Vectors to index."""
        return self._vectors("base")

    @property
    def query(self) -> Path:
        """Queries; the first half tunes, the second half reports."""
        return self._vectors("query")

    @property
    def truth(self) -> Path:
        """Exact neighbours of the queries."""
        return self.folder / "truth.gt"

    def shape(self) -> tuple[int, int]:
        """Return (n_vectors, dim) of the base."""
        n_vectors, dim = read_bin(self.base).shape
        return n_vectors, dim

    def dtype(self) -> Any:
        """Return the type of the base's components."""
        return read_bin(self.base).dtype

    def _vectors(self, name: str) -> Path:
        """Return the file of floats if there is one."""
        floats = self.folder / f"{name}.fbin"
        return floats if floats.exists() else self.folder / f"{name}.u8bin"

    def halves(self) -> tuple[int, int]:
        """Return how many queries tune, which are the first ones, and how many there are."""
        n_queries = len(read_bin(self.query))
        return n_queries // 2, n_queries

    def both_halves(self) -> dict[str, tuple[int, int]]:
        """Return the first query and the one after the last: of those that tune, and of those that are reported."""
        half, n_queries = self.halves()
        return {"tune": (0, half), "report": (half, n_queries)}


def read_bin(path: Path) -> Any:
    """Map a big-ann file {u32 n, u32 dim, rows} of the type that its suffix tells; shape (n, dim), read-only."""
    rows, dim = (int(value) for value in np.fromfile(path, "<u4", 2))
    return np.memmap(path, _DTYPES[path.suffix], "r", 8, (rows, dim))


def write_bin(path: Path, vectors: Any) -> None:
    """Write a big-ann file of `vectors`, shape (n, dim), as the type that its suffix tells."""
    write_blocks(
        path, vectors.shape, (vectors[first : first + _ROWS] for first in range(0, len(vectors), _ROWS))
    )


def write_blocks(path: Path, shape: tuple[int, int], blocks: Iterable[Any]) -> None:
    """Write a big-ann file of this shape (n, dim) from blocks of its rows in order; see `write_bin`."""
    with open(path, "wb") as file:
        np.array(shape, "<u4").tofile(file)
        for rows in blocks:
            rows.astype(_DTYPES[path.suffix]).tofile(file)


def beginning(base: Path, rows: int, folder: Path, name: str) -> Path:
    """Return a file of the first `rows` vectors of `base`, written once as ``NAME-ROWS``; or `base` itself."""
    vectors = read_bin(base)
    if rows >= len(vectors):
        return base
    path = folder / f"{name}-{rows}{base.suffix}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_bin(path, vectors[:rows])
    return path


def halved(base: Path, folder: Path) -> Path:
    """Return a file of float32 vectors as float16, written once into `folder`."""
    path = folder / f"{base.stem}.f16bin"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_bin(path, read_bin(base))
    return path


def write_beginning(data: Dataset, rows: int, folder: Path) -> Path:
    """Write the first `rows` vectors of a set to a file in `folder`; return it."""
    path = folder / f"first-{rows}{data.base.suffix}"
    write_bin(path, read_bin(data.base)[:rows])
    return path


def touch(path: Path) -> None:
    """Read a file once, so that none of those that are measured finds it colder than another."""
    for part in np.array_split(np.memmap(path, np.uint8, "r"), 64):
        part.sum()


def sync_files(folder: Path) -> None:
    """Wait until all files below a folder are on the disk."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with open(path, "rb") as file:
            os.fsync(file.fileno())


def read_truth(path: Path) -> tuple[Any, Any]:
    """Return ids (u32) and squared distances (f32), both of shape (n_queries, k)."""
    n_queries, k = (int(value) for value in np.fromfile(path, "<u4", 2))
    ids = np.memmap(path, "<u4", "r", 8, (n_queries, k))
    return ids, np.memmap(path, "<f4", "r", 8 + 4 * n_queries * k, (n_queries, k))


def first_rows(data: Dataset, rows: int, folder: Path) -> Dataset:
    """Write the first `rows` vectors of a larger set and their own exact truth into `folder`, once."""
    small = Dataset(folder)
    if rows >= data.shape()[0]:
        return data
    if not small.truth.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_bin(folder / data.base.name, read_bin(data.base)[:rows])
        write_bin(folder / data.query.name, np.asarray(read_bin(data.query)))
        write_truth(small)
    return small


def text_set(source: Path, folder: Path) -> Dataset:
    """Write the embeddings of ``base.parquet`` and ``query.parquet`` as big-ann files unless they are there."""
    if not (folder / "truth.gt").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("base", "query"):
            write_bin(folder / f"{name}.fbin", embeddings(source / f"{name}.parquet"))
        shutil.copyfile(source / "truth.gt", folder / "truth.gt")
    return Dataset(folder)


def embeddings(path: Path) -> Any:
    """Read the column ``embedding`` of a Parquet file; float32, shape (n, dim)."""
    import pyarrow.parquet as pq

    column = pq.read_table(path, columns=["embedding"])["embedding"].combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), -1)


def facts(name: str, data: Dataset) -> dict[str, Any]:
    """Return what a record says of a set."""
    n_vectors, dim = data.shape()
    return {"name": name, "n_vectors": n_vectors, "dim": dim, "dtype": str(data.dtype())}


def write_truth(data: Dataset, threads: int = 2) -> None:
    """Compute the truth of a set from its base and queries, block by block."""
    from indexmill.builders.lists.exact import exact_neighbours

    base, queries = read_bin(data.base), np.asarray(read_bin(data.query))
    write_neighbours(data.truth, *exact_neighbours(base, queries, min(TRUTH_K, len(base)), threads))


def write_neighbours(path: Path, ids: Any, distances: Any) -> None:
    """Write a truth file of neighbours, nearest first; both have shape (n_queries, k)."""
    with open(path, "wb") as file:
        np.array(ids.shape, "<u4").tofile(file)
        ids.astype("<u4").tofile(file)
        distances.astype("<f4").tofile(file)


def count_hits(found: Any, base: Any, queries: Any, truth_distances: Any, k: int = K) -> Any:
    """Count the results no farther than the k-th true neighbour; about 1% of queries tie there.

    Parameters
    ----------
    found : integer array, shape (n_queries, >= k)
        Rows of `base`, nearest first; -1 where nothing was found.
    base, queries : uint8 or float32 arrays, shape (n_vectors, dim) and (n_queries, dim)
    truth_distances : float32 array, shape (n_queries, >= k)

    Returns
    -------
    int64 array, shape (n_queries,)
        Right answers among the first k results of each query.

    Raises
    ------
    ValueError
        If a query's results name a row twice: that would count a neighbour twice.
    """
    found = found[:, :k]
    ordered = np.sort(found, axis=1)
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
        raise ValueError("a query's results name one vector twice")
    differences = base[found].astype(np.float64) - queries[:, None, :]
    distances = (differences * differences).sum(axis=2)
    return ((distances <= truth_distances[:, k - 1 : k] * (1 + DISTANCE_TOLERANCE)) & (found >= 0)).sum(
        axis=1
    )


def count_both(found: Any, data: Dataset, first: int, last: int) -> dict[str, Any]:
    """Count right answers of queries `first` to `last` among the first K results and the first one alone."""
    base, queries = read_bin(data.base), read_bin(data.query)[first:last]
    truth = read_truth(data.truth)[1][first:last]
    return {
        "hits": count_hits(found, base, queries, truth),
        "hits1": count_hits(found, base, queries, truth, 1),
    }


def recall_by_distance(found: Any, base: Any, queries: Any, truth_distances: Any) -> float:
    """Mean share of right answers among the first K results; see `count_hits`."""
    return float(count_hits(found, base, queries, truth_distances).mean()) / K
