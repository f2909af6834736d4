"""Indexes that layouts are compared on, and where the benchmark of layouts keeps what it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import COARSE_SIZES, LONG_SIZES
from indexmill.jobs.bench.common.dataset import read_bin, read_truth, write_bin
from indexmill.jobs.bench.embed import formats, sets
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.workspace import Workspace

#: Order of the indexes that are laid out.
IDENTITY = "identity"


@dataclass(frozen=True)
class Case:
    """One index in identity order, in which slots are vector ids, and the queries to judge its layouts by.

    Attributes
    ----------
    name : str
        ``sift1m-R32``, ``sift1m-R48``, ``text40k-R32`` or ``embed768``.
    space : Workspace
    shape : ours.Shape or None
        None for the format that a build chooses by itself.
    coarse : tuple of int
        List sizes of a first sweep.
    folder : Path
        Orders that were fitted, and other files of this case.
    """

    name: str
    space: Workspace
    shape: ours.Shape | None
    coarse: tuple[int, ...]
    folder: Path

    @property
    def index(self) -> Path:
        """Directory of the index."""
        return self.space.index(self.index_name)

    @property
    def index_name(self) -> str:
        """Name of the index in its workspace."""
        return IDENTITY if self.shape is None else self.shape.name

    def ensure(self) -> None:
        """Build the index unless it is there."""
        if self.shape is None:
            formats.ensure(sets.Case(self.name, self.space, "cosine"), IDENTITY, order=IDENTITY)
        else:
            ours.ensure_shape(self.space, self.shape)

    def laid_out(self, how: str) -> str:
        """Return the name of an index that was laid out again."""
        return f"{how}-{self.name}"

    def tuning_files(self) -> tuple[Path, Path]:
        """Write the first half of the queries and their true neighbours to files that commands read."""
        first, last = self.space.halves["tune"]
        queries = self.folder / f"tune{self.space.data.query.suffix}"
        write_bin(queries, read_bin(self.space.data.query)[first:last])
        truth = self.folder / "tune.gt"
        ids, distances = (part[first:last] for part in read_truth(self.space.data.truth))
        with open(truth, "wb") as file:
            for part in (np.array(ids.shape, "<u4"), ids, distances):
                part.tofile(file)
        return queries, truth


@dataclass(frozen=True)
class Layouts:
    """All cases, and the run: parts work on them."""

    cases: dict[str, Case]
    run: Run


def make_space(run: Run, shapes: Mapping[str, tuple[int, int] | None]) -> Layouts:
    """Make folders for the cases.

    Parameters
    ----------
    shapes : mapping
        Degree and bytes of a code of each, named ``SET-RDEGREE``; None for ``SET`` in the format that a build chooses.
    """
    cases = {}
    for name, numbers in shapes.items():
        of = name.rsplit("-", 1)[0]
        out, coarse = (run.out, COARSE_SIZES) if of == "sift1m" else (run.out / of, LONG_SIZES)
        shape = None
        if numbers is not None:
            shape = ours.Shape(IDENTITY, max_degree=numbers[0], pq_bytes=numbers[1])
        cases[name] = Case(name, Workspace(run.sets[of], out), shape, coarse, run.out / "layouts" / name)
        for folder in (out, cases[name].folder):
            folder.mkdir(parents=True, exist_ok=True)
    return Layouts(cases, run)


def facts(case: Case) -> dict[str, Any]:
    """Return what tables say of an index."""
    made = ours.manifest(case.index)
    n_vectors, dim = case.space.data.shape()
    return {
        "n_vectors": n_vectors,
        "dim": dim,
        "R": made["parameters"]["max_degree"],
        "pq_bytes": made["parameters"]["pq_bytes"],
        "nodes_per_page": nodes_per_page(case),
        "build_id": made["build_id"],
        "software": made["software"],
        "mean_degree": made["graph"]["mean_degree"],
    }


def nodes_per_page(case: Case) -> int:
    """Return how many nodes share a page of the index."""
    from indexmill.formats.graph.index import IndexFiles

    with IndexFiles(case.index) as files:
        return int(files.graph.node_format.nodes_per_page)


def laid_out_facts(index: Path) -> dict[str, Any]:
    """Return what laying an index out cost by its run.json: seconds of each stage and peak memory."""
    run = ours.run_facts(index)
    return {"stage_s": run["seconds"], "told_peak_bytes": run["peak_memory_bytes"]}
