"""Graphs that other programs build in memory: their costs, and the lists that they saved."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.imports.diskann import open_diskann
from indexmill.formats.imports.index import ImportedIndex
from indexmill.formats.imports.svs import open_svs
from indexmill.jobs.bench.common.dataset import Dataset
from indexmill.jobs.bench.common.environment import make_environment
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.process import module, run_measured
from indexmill.jobs.bench.common.record import read_json
from indexmill.jobs.bench.programs import diskann
from indexmill.jobs.bench.programs.diskann import Graph
from indexmill.jobs.bench.programs.workspace import Workspace

PROGRAMS = ("diskann", "svs", "hnswlib")
#: Those of the environment of the other two.
PACKAGES = ("scalable-vs==0.5.0", "hnswlib==0.8.0", "numpy==2.4.6")
#: Folder and packages of each program.
_ENVIRONMENTS = {
    "diskann": ("diskann-env", diskann.PACKAGES),
    "svs": ("peers-env", PACKAGES),
    "hnswlib": ("peers-env", PACKAGES),
}
#: Size of hnswlib's header; where it has the number of vertices, their size, and where a label is in one.
_HNSW_FIELDS = ["n", "vertex_bytes", "label_at", "max_degree"]
_HNSW_HEADER = np.dtype(
    {"names": _HNSW_FIELDS, "formats": ["<u8"] * 4, "offsets": [16, 24, 32, 64], "itemsize": 96}
)
#: Vertices of hnswlib that are read at a time.
BLOCK = 1 << 16


def make_environments(out: Path) -> None:
    """Create both environments below `out` unless they are there: before anything is measured."""
    for env, packages in _ENVIRONMENTS.values():
        make_environment(out / env, packages)


def build(
    program: str, data: Dataset, out: Path, max_degree: int, list_size: int, entry: int
) -> tuple[dict[str, Any], Graph]:
    """Build a graph in a process of its own; return its cost, and the graph.

    Parameters
    ----------
    program : str
        One of `PROGRAMS`.
    data : Dataset
    out : Path
        Environments and logs stay there.
    max_degree, list_size : int
        R and L; hnswlib's M is R / 2, its efConstruction L.
    entry : int
        Where hnswlib's graph is searched from: its own entry belongs to levels above the one that is read.
    """
    env, packages = _ENVIRONMENTS[program]
    python = make_environment(out / env, packages)
    folder = out / f"peer-{program}"
    shutil.rmtree(folder, ignore_errors=True)
    command = module(
        python, "programs.peers_build", program, data.base, folder, max_degree, list_size, THREADS
    )
    usage = run_measured(command, folder.with_suffix(".log"))
    call = read_json(folder / "call.json")
    graph = _read(program, folder, data, entry)
    shutil.rmtree(folder)
    return {**usage.to_dict(), **call, "graph_s": call["build_s"], "index_s": round(usage.wall_s, 3)}, graph


def build_diskann_index(data: Dataset, out: Path) -> tuple[dict[str, Any], Graph]:
    """Build DiskANN's disk index of R and L of `workspace`; return its cost, and the graph."""
    space = Workspace(data, out)
    cost = diskann.build(space)
    found = open_diskann(str(space.diskann_index / "ann"), str(data.dtype()), with_codes=False)
    graph = _joined(found, data.shape()[0])
    shutil.rmtree(space.diskann_index)
    return cost | {"index_s": round(cost["wall_s"], 3)}, graph


def _read(program: str, folder: Path, data: Dataset, entry: int) -> Graph:
    if program == "hnswlib":
        return read_hnswlib(folder / "hnsw.bin", entry)
    dtype = str(data.dtype())
    found = open_svs(folder) if program == "svs" else open_diskann(str(folder / "ann"), dtype)
    return _joined(found, data.shape()[0])


def _joined(index: ImportedIndex, n: int) -> Graph:
    assert index.entry is not None
    neighbours = np.zeros((n, index.lists.width), np.uint32)
    degrees = np.zeros(n, np.int32)
    for first, lists, lengths in index.lists.blocks():
        neighbours[first : first + len(lists)] = lists
        degrees[first : first + len(lists)] = lengths
    return Graph(neighbours, degrees, index.entry)


def read_hnswlib(path: Path, entry: int) -> Graph:
    """Read the lowest level of an index of hnswlib 0.8, whose labels are the numbers of the vectors.

    Vertices stand in the order in which threads inserted them. Each has a count of 16 bits, 16 more bits, its
    neighbours, its vector and its label.

    Raises
    ------
    ValueError
        If the sizes in its header contradict each other, or labels are not those.
    """
    header = np.fromfile(path, _HNSW_HEADER, 1)[0]
    n, size, label_at, degree = (int(header[name]) for name in header.dtype.names)
    names, formats = ["degree", "neighbours", "label"], ["<u2", ("<u4", degree), "<u8"]
    vertex = np.dtype({"names": names, "formats": formats, "offsets": [0, 4, label_at], "itemsize": size})
    vertices = np.memmap(path, vertex, "r", _HNSW_HEADER.itemsize, n)
    labels = np.array(vertices["label"])
    if not np.array_equal(np.sort(labels), np.arange(n)):
        raise ValueError(f"{path}: the labels of {n:,} vertices are not the numbers below that")
    neighbours = np.zeros((n, degree), np.uint32)
    degrees = np.zeros(n, np.int32)
    for first in range(0, n, BLOCK):
        some = vertices[first : first + BLOCK]
        rows, counts = labels[first : first + BLOCK], some["degree"].astype(np.int32)
        used = np.arange(degree) < counts[:, None]
        lists = np.array(some["neighbours"])
        lists[~used] = 0
        neighbours[rows] = np.where(used, labels[lists], 0)
        degrees[rows] = counts
    return Graph(neighbours, degrees, entry)
