"""Vectors of the benchmark of hash tables: two sets of others, and two that are drawn here.

RAND and GAUSS stand for the synthetic sets of E2LSH on storage (Table 1), RAND as there, GAUSS smaller: neither that
paper nor those it takes the sets from says what the mixture is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common import generate
from indexmill.jobs.bench.common.dataset import Dataset, first_rows, read_bin, write_bin, write_truth
from indexmill.jobs.bench.layouts.cases import text_set

SEED = 1
#: Vectors, dimensions and queries of what is drawn; float32.
RAND, GAUSS = (1_000_000, 100), (200_000, 256)
QUERIES = 1_000
#: Clusters of GAUSS; the spread of their centres, in standard deviations of a cluster.
_CLUSTERS, _SPREAD = 100, 1.0
#: Rows drawn at once.
_ROWS = 65_536


@dataclass(frozen=True)
class Sets:
    """All sets, by name, and the growing one.

    Attributes
    ----------
    folder : Path
        For what is written.
    given : dict of str to Dataset
        ``sift1m``, ``text40k``, ``rand``, ``gauss``.
    """

    folder: Path
    given: dict[str, Dataset]

    def growing(self, n: int, n_queries: int) -> Dataset:
        """Return `n` vectors as hard as SIFT's (`generate`); smaller sets are the beginning of larger ones."""
        data = Dataset(self.folder / f"grow-{n}")
        if not data.truth.exists():
            generate.generate(data.folder, n, n_queries, SEED)
            write_truth(data)
        return data


def make_sets(sift1m: Path, text40k: Path, folder: Path, rows: int | None) -> Sets:
    """Find or write the sets, once.

    Parameters
    ----------
    sift1m, text40k : Path
        Folders as for `layouts.py`.
    rows : int, optional
        Take so many vectors of each set instead of all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    given = {"sift1m": Dataset(sift1m), "text40k": text_set(text40k, folder / "text40k")}
    if rows:
        given = {name: _few(data, rows, folder) for name, data in given.items()}
    for name, (n, dim) in (("rand", RAND), ("gauss", GAUSS)):
        n = min(n, rows or n)
        given[name] = _drawn(name, n, dim, folder / f"{name}-{n}")
    return Sets(folder, given)


def _few(data: Dataset, rows: int, folder: Path) -> Dataset:
    if rows >= len(read_bin(data.base)):
        return data
    small = Dataset(folder / f"{data.folder.name}-{rows}")
    return small if small.truth.exists() else first_rows(data, rows, small.folder)


def _drawn(name: str, n: int, dim: int, folder: Path) -> Dataset:
    if not (folder / "truth.gt").exists():
        folder.mkdir(parents=True, exist_ok=True)
        draw = {"rand": _uniform, "gauss": _mixture}[name]
        write_bin(folder / "base.fbin", draw(n, dim, 0))
        write_bin(folder / "query.fbin", draw(QUERIES, dim, 1))
        write_truth(Dataset(folder))
    return Dataset(folder)


def _uniform(n: int, dim: int, stream: int) -> Any:
    """Draw from the unit cube."""
    return np.random.default_rng([SEED, stream]).random((n, dim), np.float32)


def _mixture(n: int, dim: int, stream: int) -> Any:
    """Draw from clusters of one size with normal centres."""
    centres = np.random.default_rng([SEED, 2]).standard_normal((_CLUSTERS, dim), np.float32) * np.float32(
        _SPREAD
    )
    random = np.random.default_rng([SEED, stream])
    drawn = random.standard_normal((n, dim), np.float32)
    for at in range(0, n, _ROWS):
        part = drawn[at : at + _ROWS]
        part += centres[random.integers(0, _CLUSTERS, len(part))]
    return drawn


def facts(name: str, data: Dataset) -> dict[str, Any]:
    """Return what a record says of a set."""
    n_vectors, dim = data.shape()
    dtype = {".u8bin": "uint8", ".fbin": "float32"}[data.base.suffix]
    return {"name": name, "n_vectors": n_vectors, "dim": dim, "dtype": dtype}
