"""The sets of the benchmark of budgets, and where it keeps what it builds."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import generate
from indexmill.jobs.bench.common.dataset import Dataset, first_rows, read_bin, write_bin, write_truth
from indexmill.jobs.bench.common.record import load
from indexmill.jobs.bench.mill.build import Job, build
from indexmill.jobs.bench.programs.workspace import SEED

#: Budgets of the sets.
BUDGETS = {"sift1m": "768MiB", "generated": "1GiB"}
GENERATED_ROWS, GENERATED_QUERIES = 3_000_000, 2000
_WARM_UP_ROWS = 2000


@dataclass(frozen=True)
class Mill:
    """Sets and scratch folder.

    Attributes
    ----------
    sets : dict of str to Dataset
        Those of `BUDGETS`.
    out : Path
        Holds everything the benchmark writes.
    """

    sets: dict[str, Dataset]
    out: Path

    @property
    def results(self) -> Path:
        """The record that parts are added to."""
        return self.out / "results.json"

    def job(self, data: str, kind: str, **others: Any) -> Job:
        """Return a job of a set; its index is named ``SET-KIND``."""
        return Job(f"{data}-{kind}", self.sets[data].base, **others)

    def first(self, data: str, rows: int) -> Path:
        """Return a file of the first vectors of a set: the set's own if it has no more."""
        base = self.sets[data].base
        vectors = read_bin(base)
        if rows >= len(vectors):
            return base
        path = self.out / "data" / f"{data}-{rows}.u8bin"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            write_bin(path, vectors[:rows])
        return path

    def earlier(self, part: str) -> dict[str, Any]:
        """Return what an earlier part measured.

        Raises
        ------
        FileNotFoundError
            If it has not run.
        """
        found: dict[str, Any] | None = load(self.results).get("parts", {}).get(part)
        if found is None:
            raise FileNotFoundError(
                f"{self.results}: nothing of the part {part!r}; run it first (--parts {part})"
            )
        return found

    def warm_up(self) -> None:
        """Let the kernels be compiled, which happens once an installation and not with every build."""
        base = self.first("sift1m", _WARM_UP_ROWS)
        build(Job("warm-up", base), self.out)
        build(Job("warm-up", base, parameters={"shard_vectors": _WARM_UP_ROWS // 2}), self.out)


def make_space(sift1m: Path, out: Path, rows: int | None) -> Mill:
    """Find the sets, and generate the one that is generated unless it is there.

    Parameters
    ----------
    sift1m : Path
        Folder with ``base.u8bin``, ``query.u8bin`` and ``truth.gt``.
    out : Path
    rows : int, optional
        Take so many vectors of each set instead of all.
    """
    descriptors, generated = Dataset(sift1m), Dataset(out / "generated")
    if rows:
        descriptors = Dataset(out / "sift1m")
        if not descriptors.truth.exists():
            descriptors = first_rows(Dataset(sift1m), rows, descriptors.folder)
    if not generated.truth.exists():
        print("generating, and computing the truth ...", file=sys.stderr, flush=True)
        generate.generate(generated.folder, rows or GENERATED_ROWS, GENERATED_QUERIES, SEED)
        write_truth(generated)
    return Mill({"sift1m": descriptors, "generated": generated}, out)
