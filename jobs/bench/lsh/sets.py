"""Vectors of the benchmark of hash tables: two sets of others, and two that are drawn here.

RAND and GAUSS stand for the synthetic sets of E2LSH on storage (Table 1), RAND as there, GAUSS half as large. The paper
does not say how they are drawn; drawn like this they have its relative contrasts and intrinsic dimensions. The first
vectors of RAND are a set of their own, for QALSH, which takes too long on all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common import generate
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, first_rows, write_bin, write_truth

SEED = 1
#: Vectors, dimensions and queries of what is drawn; float32.
RAND, GAUSS = (1_000_000, 100), (1_000_000, 512)
#: Name of the set of RAND's first vectors, and how many times as many RAND has.
FIRST_OF_RAND, _TIMES = "rand100k", 10
QUERIES = 1_000


@dataclass(frozen=True)
class Sets:
    """All sets, by name, and the growing one.

    Attributes
    ----------
    folder : Path
        For what is written.
    given : dict of str to Dataset
        ``sift1m``, ``text40k``, ``rand``, ``gauss``, ``rand100k``.
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


def make_sets(run: Run) -> Sets:
    """Find the sets of a run, and write those that are drawn, once."""
    folder = run.out / "data"
    folder.mkdir(parents=True, exist_ok=True)
    given = dict(run.sets)
    for name, (n, dim) in (("rand", RAND), ("gauss", GAUSS)):
        n = min(n, run.rows or n)
        given[name] = _drawn(name, n, dim, folder / f"{name}-{n}")
    first = given["rand"].shape()[0] // _TIMES
    given[FIRST_OF_RAND] = first_rows(given["rand"], first, folder / f"first-of-rand-{first}")
    return Sets(folder, given)


def _drawn(name: str, n: int, dim: int, folder: Path) -> Dataset:
    if not (folder / "truth.gt").exists():
        folder.mkdir(parents=True, exist_ok=True)
        draw = {"rand": uniform, "gauss": normal}[name]
        write_bin(folder / "base.fbin", draw(n, dim, 0))
        write_bin(folder / "query.fbin", draw(QUERIES, dim, 1))
        write_truth(Dataset(folder))
    return Dataset(folder)


def uniform(n: int, dim: int, stream: int) -> Any:
    """Draw from the unit cube."""
    return np.random.default_rng([SEED, stream]).random((n, dim), np.float32)


def normal(n: int, dim: int, stream: int) -> Any:
    """Draw each component from the standard normal distribution."""
    return np.random.default_rng([SEED, stream]).standard_normal((n, dim), np.float32)
