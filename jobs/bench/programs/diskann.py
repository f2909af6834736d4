"""DiskANN's side: its environment, its build, its searches and its graph."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from indexmill.jobs.bench.common import environment
from indexmill.jobs.bench.common.curves import Half, Row, Search, Span
from indexmill.jobs.bench.common.dataset import Dataset
from indexmill.jobs.bench.common.parameters import BUILD_LIST_SIZE, MAX_DEGREE, THREADS, pq_bytes
from indexmill.jobs.bench.common.process import module, run_measured
from indexmill.jobs.bench.common.record import read_json
from indexmill.jobs.bench.common.session import Asking, Session
from indexmill.jobs.bench.programs.ours import DISKANN_WIDTH
from indexmill.jobs.bench.programs.workspace import Workspace

#: Last release of the C++ DiskANN's Python package, and the numpy it was compiled for.
PACKAGES = ("diskannpy==0.7.0", "numpy==1.25.0")
_SECTOR = 4096
#: Its vectors in memory are filled up to a multiple of so many components.
_ALIGNED = 8
#: Definition of its page reads, for the record.
COUNTED = "read_bytes of /proc/self/io of the searching process / 4,096"
#: Seconds after a search in which idle OpenMP threads may still spin: Intel's, which it has, do so for 0.2 after a
#: batch. A call for one query uses none.
SPIN_SECONDS = {"batch": 0.3, "single": 0.0}


class DiskAnn(Asking):
    """A process that searches `index`, by default DiskANN's own, up to `threads` threads and `width` reads a hop.

    `cached_nodes` are in its node cache.
    """

    def __init__(
        self,
        space: Workspace,
        threads: int = THREADS,
        index: Path | None = None,
        width: int = DISKANN_WIDTH,
        cached_nodes: int = 0,
    ) -> None:
        self.space = space
        index = space.require(space.diskann_index) if index is None else index
        command = module(python(space), "programs.diskann_serve", index, space.data.folder)
        cached = [cached_nodes] if cached_nodes else []
        log = space.out / f"{'-'.join([index.name, 'search', *map(str, [threads, *cached])])}.log"
        self.session = Session([*command, threads, width, *cached], log)

    def ask(self, size: int, queries: Half | Span, way: str = "batch") -> Row:
        """Search some queries with one list size, in one batch or a call for each (``single``)."""
        first, last = self.space.span(queries)
        self.session.rest_s = SPIN_SECONDS[way]
        row: Row = self.session.ask(size=size, first=first, last=last, way=way)
        return row

    def search(self, way: str = "batch") -> Search:
        """Return the search of one half of the queries; `way` as for `ask`."""
        return lambda size, half: self.ask(size, half, way)


class Graph(NamedTuple):
    """A graph in memory.

    Attributes
    ----------
    neighbours : uint32 array, shape (n_vertices, R)
    degrees : int32 array, shape (n_vertices,)
    start : int
        The medoid.
    """

    neighbours: Any
    degrees: Any
    start: int


def python(space: Workspace) -> Path:
    """Return the interpreter of an environment with diskannpy, which needs an older numpy; it is made once."""
    return environment.make_environment(space.out / "diskann-env", PACKAGES)


def ensure(space: Workspace) -> None:
    """Build DiskANN's index unless it is there."""
    if not (space.diskann_index / "call.json").exists():
        print("  building DiskANN's index", file=sys.stderr, flush=True)
        build(space)


def build(space: Workspace) -> dict[str, Any]:
    """Build DiskANN's index anew; return its cost.

    Raises
    ------
    RuntimeError
        If it fails, or its codes have another size than ours.
    """
    shutil.rmtree(space.diskann_index, ignore_errors=True)
    shape = (MAX_DEGREE, BUILD_LIST_SIZE, THREADS)
    places = (space.data.base, space.diskann_index)
    command = module(python(space), "programs.peers_build", "diskann-disk", *places, *shape)
    log = space.out / "diskann-build.log"
    usage = run_measured(command, log)
    chosen = int(np.fromfile(space.diskann_index / "ann_pq_compressed.bin", "<u4", 2)[1])
    wanted = pq_bytes(space.data.shape()[1])
    if chosen != wanted:
        raise RuntimeError(
            f"DiskANN chose {chosen} bytes a code, not {wanted}; the comparison would be unfair"
        )
    call_s = read_json(space.diskann_index / "call.json")["build_s"]
    index_bytes = (space.diskann_index / "ann_disk.index").stat().st_size
    sizes = {"pq_bytes": chosen, "graph_file_bytes": index_bytes}
    return {**usage.to_dict(), "call_s": call_s, **_told_seconds(log), **sizes}


def _told_seconds(log: Path) -> dict[str, float]:
    """Return the seconds of its codes and of its graph, as DiskANN tells them while it builds."""
    told = dict(re.findall(r"Time for (.+): ([\d.]+) seconds", log.read_text(errors="replace")))
    names = {"pq_s": "generating quantized data", "graph_s": "building merged vamana index"}
    return {name: float(told[phase]) for name, phase in names.items()}


def node_bytes(data: Dataset) -> int:
    """Return the bytes of a node in DiskANN's cache: its vector, its degree and as many neighbours as it may have."""
    dim = -(-data.shape()[1] // _ALIGNED) * _ALIGNED
    return int(dim * data.dtype().itemsize + 4 * (MAX_DEGREE + 1))


def read_graph(index: Path, shape: tuple[int, int]) -> Graph:
    """Read neighbour lists and medoid out of DiskANN's disk index, of uint8 vectors of this shape, several to a sector.

    Raises
    ------
    ValueError
        If the header's sizes are not those of such an index.
    """
    path = index / "ann_disk.index"
    n, dim, medoid, node_bytes, per_sector = (int(v) for v in np.fromfile(path, "<u8", 5, offset=8))
    degree = (node_bytes - dim) // 4 - 1
    if (n, dim) != shape or node_bytes != dim + 4 * (degree + 1) or per_sector != _SECTOR // node_bytes:
        raise ValueError(f"{path}: header {n, dim, node_bytes, per_sector} does not fit {shape} of uint8")
    node = np.dtype([("vector", "u1", dim), ("degree", "<u4"), ("neighbours", "<u4", degree)])
    sector = np.dtype(
        {"names": ["nodes"], "formats": [(node, per_sector)], "offsets": [0], "itemsize": _SECTOR}
    )
    nodes = np.memmap(path, sector, "r", _SECTOR)["nodes"].reshape(-1)[:n]
    neighbours = np.ascontiguousarray(nodes["neighbours"])
    return Graph(neighbours, nodes["degree"].astype(np.int32), medoid)
