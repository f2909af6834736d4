"""Indexes that layouts are compared on, and where the benchmark of layouts keeps what it makes."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import COARSE_SIZES
from indexmill.jobs.bench.common.dataset import Dataset, first_rows, read_bin, read_truth, write_bin
from indexmill.jobs.bench.common.record import load
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.workspace import Workspace

#: The text vectors are hard for their codes: list sizes of a first sweep go on.
_LONG_SIZES = (*COARSE_SIZES, 320, 448, 640, 896)
#: Components a byte of a code is shared by, as in the other set.
_TEXT_PQ_BYTES = 64
_DEGREES = (32, 48)


@dataclass(frozen=True)
class Case:
    """One index in identity order, in which slots are vector ids, and the queries to judge its layouts by.

    Attributes
    ----------
    name : str
        ``sift1m-R32``, ``sift1m-R48`` or ``text40k-R32``.
    space : Workspace
    shape : ours.Shape
    coarse : tuple of int
        List sizes of a first sweep.
    folder : Path
        Orders that were fitted, and other files of this case.
    """

    name: str
    space: Workspace
    shape: ours.Shape
    coarse: tuple[int, ...]
    folder: Path

    @property
    def index(self) -> Path:
        """Directory of the index."""
        return self.space.index(self.shape.name)

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
    """All cases.

    Attributes
    ----------
    cases : dict of str to Case
    out : Path
        Holds everything the benchmark writes.
    """

    cases: dict[str, Case]
    out: Path

    @property
    def results(self) -> Path:
        """The record that parts are added to."""
        return self.out / "layouts.json"

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


def make_space(sift1m: Path, text40k: Path, out: Path, rows: int | None) -> Layouts:
    """Find the sets; those that are tried only in part, and the text vectors, are written below `out` once.

    Parameters
    ----------
    sift1m : Path
        Folder with ``base.u8bin``, ``query.u8bin`` and ``truth.gt``.
    text40k : Path
        Folder with ``base.parquet``, ``query.parquet`` (column ``embedding``) and ``truth.gt``.
    out : Path
    rows : int, optional
        Take so many vectors of each set instead of all.
    """
    sift, text = Dataset(sift1m), text_set(text40k, out / "data" / "text40k")
    if rows:
        sift, text = (_few(data, rows, out / "data") for data in (sift, text))
    spaces = {"sift1m": Workspace(sift, out), "text40k": Workspace(text, out / "text40k")}
    (out / "text40k").mkdir(exist_ok=True)
    cases = {}
    for degree in _DEGREES:
        name = f"sift1m-R{degree}"
        shape = ours.Shape("identity", max_degree=degree)
        cases[name] = Case(name, spaces["sift1m"], shape, COARSE_SIZES, out / "layouts" / name)
    shape = ours.Shape("identity", pq_bytes=_TEXT_PQ_BYTES)
    name = f"text40k-R{shape.max_degree}"
    cases[name] = Case(name, spaces["text40k"], shape, _LONG_SIZES, out / "layouts" / name)
    for case in cases.values():
        case.folder.mkdir(parents=True, exist_ok=True)
    return Layouts(cases, out)


def text_set(source: Path, folder: Path) -> Dataset:
    """Write the embeddings of ``base.parquet`` and ``query.parquet`` as big-ann files unless they are there."""
    import pyarrow.parquet as pq

    if not (folder / "truth.gt").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("base", "query"):
            column = pq.read_table(source / f"{name}.parquet", columns=["embedding"])[
                "embedding"
            ].combine_chunks()
            write_bin(folder / f"{name}.fbin", column.flatten().to_numpy().reshape(len(column), -1))
        shutil.copyfile(source / "truth.gt", folder / "truth.gt")
    return Dataset(folder)


def _few(data: Dataset, rows: int, folder: Path) -> Dataset:
    small = Dataset(folder / f"{data.folder.name}-{rows}")
    return small if small.truth.exists() else first_rows(data, rows, small.folder)


def facts(case: Case) -> dict[str, Any]:
    """Return what tables say of an index."""
    made = ours.manifest(case.index)
    shape = read_bin(case.space.data.base).shape
    return {
        "n_vectors": shape[0],
        "dim": shape[1],
        "R": case.shape.max_degree,
        "pq_bytes": case.shape.pq_bytes,
        "nodes_per_page": nodes_per_page(case),
        "build_id": made["build_id"],
        "software": made["software"],
        "mean_degree": made["graph"]["mean_degree"],
    }


def nodes_per_page(case: Case) -> int:
    """Return how many nodes share a page of the index."""
    from indexmill.formats.directory import IndexFiles

    with IndexFiles(case.index) as files:
        return int(files.graph.node_format.nodes_per_page)


def laid_out_facts(index: Path) -> dict[str, Any]:
    """Return what laying an index out cost by its run.json: seconds of each stage and peak memory."""
    run = json.loads((index / "run.json").read_text())
    return {"stage_s": run["seconds"], "told_peak_bytes": run["peak_memory_bytes"]}
