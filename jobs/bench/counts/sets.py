"""Sets of vectors whose searches are counted, and the queries that are asked."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common import generate
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import Half
from indexmill.jobs.bench.common.dataset import (
    Dataset,
    count_hits,
    read_bin,
    read_truth,
    write_bin,
    write_truth,
)
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.programs import ours

#: Most queries that are asked of a half.
QUERIES = 500
#: Numbers of neighbours whose recall is counted.
KS = (1, 10, 100)
#: A code is so many times smaller than the vector as float32: the paper's default limit of memory.
CODE_SHARE = 10
#: Bytes of a component of float32.
_FLOAT = 4


@dataclass(frozen=True)
class Case:
    """A set and the folder of its indexes.

    Attributes
    ----------
    name : str
    data : Dataset
        With 100 true neighbours of each query.
    out : Path
    builder : str
        Of its graphs.
    half : {"report", "tune"}
        The half of the queries that is asked.
    """

    name: str
    data: Dataset
    out: Path
    builder: str = "vamana"
    half: Half = "report"

    @property
    def work(self) -> Path:
        """Folder of finished stages, which indexes of one graph share."""
        return self.out / "work"

    def is_built(self, index: Path) -> bool:
        """Whether there is an index of so many vectors."""
        path = index / "manifest.json"
        return path.exists() and bool(ours.manifest(index)["input"]["n_vectors"] == self.data.shape()[0])

    def code_bytes(self, share: float = 1 / CODE_SHARE) -> int:
        """Return the bytes of a code with this share of the vector as float32."""
        return max(1, round(share * _FLOAT * self.data.shape()[1]))

    @property
    def asked(self) -> slice:
        """Queries that are asked."""
        first, last = self.data.both_halves()[self.half]
        return slice(first, min(last, first + QUERIES))

    @cached_property
    def queries(self) -> Any:
        """Queries that are asked; shape (n_queries, dim)."""
        return np.ascontiguousarray(read_bin(self.data.query)[self.asked])

    @cached_property
    def truth(self) -> tuple[Any, Any]:
        """Ids (u32) and squared distances (f32) of their true neighbours, both of shape (n_queries, 100)."""
        ids, distances = read_truth(self.data.truth)
        return np.array(ids[self.asked]), np.array(distances[self.asked])

    def recalls(self, found: Any) -> dict[str, float | None]:
        """Return the recall of each of `KS` by distance; None for more neighbours than were asked for.

        Parameters
        ----------
        found : integer array, shape (n_queries, k)
            Vector ids, nearest first.
        """
        base, distances = read_bin(self.data.base), self.truth[1]

        def recall(k: int) -> float:
            return float(count_hits(found, base, self.queries, distances, k).mean()) / k

        return {f"recall{k}": recall(k) if k <= found.shape[1] else None for k in KS}


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def given(run: Run, name: str, builder: str = "vamana") -> Case:
    """Return a set that the run is given, and the builder of its graphs."""
    return Case(name, run.sets[name], _folder(run.out / name), builder)


def sift_floats(run: Run) -> Case:
    """Return sift1m as float32, the paper's type; it is written unless it is there.

    Its graphs are built by comparing small sets of vectors, as those of `generated`.
    """
    source = run.sets["sift1m"]
    out = _folder(run.out / f"sift1m-{source.shape()[0]}")
    data = Dataset(out)
    if not data.truth.exists():
        write_bin(out / "base.fbin", read_bin(source.base))
        write_bin(out / "query.fbin", read_bin(source.query))
        shutil.copyfile(source.truth, data.truth)  # last: a set that has it is whole
    return Case("sift1m", data, out, "partition")


def generated(run: Run, n: int) -> Case:
    """Return `n` generated vectors, written unless they are there; smaller sets are the beginning of larger ones.

    Their graphs are built by comparing small sets of vectors, which takes a third of the time of insertions.
    """
    data = Dataset(_folder(run.out / f"generated-{n}"))
    if not data.truth.exists():
        print(f"  generating {n:,} vectors", file=sys.stderr, flush=True)
        generate.generate(data.folder, n, 2 * QUERIES, SEED, THREADS)
        write_truth(data)
    return Case("generated", data, data.folder, "partition")
