"""Run by the environment of another program: build one graph in memory, or DiskANN's index, save it, and tell the time.

    python -m indexmill.jobs.bench.programs.peers_build PROGRAM BASE OUT R L THREADS

``OUT/call.json`` has seconds: ``read_s`` until the vectors are in memory, ``build_s`` of the call that builds,
``save_s`` until the files are on the disk. DiskANN reads and saves in its call.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.dataset import read_bin, sync_files
from indexmill.jobs.bench.common.parameters import ALPHA, BUILD_MEMORY, SEED, pq_bytes

Lap = Callable[[str], None]


def diskann(base: Path, out: Path, degree: int, list_size: int, threads: int, lap: Lap) -> None:
    """Build with `diskannpy.build_memory_index`."""
    import diskannpy

    lap("read_s")
    shared = _of_diskann(base, out, degree, list_size, threads)
    diskannpy.build_memory_index(**shared, alpha=ALPHA, use_pq_build=False, num_pq_bytes=0, use_opq=False)
    lap("build_s")


def diskann_disk(base: Path, out: Path, degree: int, list_size: int, threads: int, lap: Lap) -> None:
    """Build an index on the disk with `diskannpy.build_disk_index`, its codes as large as ours."""
    import diskannpy

    # DiskANN derives the code size from a memory limit: floor(limit / vectors). Half a byte more than wanted
    # keeps rounding, of the division and of the option's few printed digits, away from the next lower size.
    n, dim = read_bin(base).shape
    limit = (pq_bytes(dim) + 0.5) * n / 2**30
    lap("read_s")
    diskannpy.build_disk_index(
        **_of_diskann(base, out, degree, list_size, threads), search_memory_maximum=limit,
        build_memory_maximum=float(BUILD_MEMORY.removesuffix("GiB")), pq_disk_bytes=0,
    )  # fmt: skip
    lap("build_s")


def _of_diskann(base: Path, out: Path, degree: int, list_size: int, threads: int) -> dict[str, Any]:
    """Return the arguments that both builds of DiskANN take."""
    return {
        "data": str(base), "index_directory": str(out), "index_prefix": "ann", "distance_metric": "l2",
        "vector_dtype": read_bin(base).dtype.type, "graph_degree": degree, "complexity": list_size,
        "num_threads": threads,
    }  # fmt: skip


def svs(base: Path, out: Path, degree: int, list_size: int, threads: int, lap: Lap) -> None:
    """Build with `svs.Vamana.build`; what is not named here has its own defaults."""
    import svs

    rows = np.array(read_bin(base))
    lap("read_s")
    parameters = svs.VamanaBuildParameters(alpha=ALPHA, graph_max_degree=degree, window_size=list_size)
    index = svs.Vamana.build(parameters, rows, svs.DistanceType.L2, num_threads=threads)
    lap("build_s")
    index.save(*(str(out / part) for part in ("config", "graph", "data")))


def hnswlib(base: Path, out: Path, degree: int, list_size: int, threads: int, lap: Lap) -> None:
    """Build with `hnswlib.Index`, which takes float32 alone; its lowest level has 2 M neighbours."""
    import hnswlib

    rows = np.array(read_bin(base), np.float32)
    lap("read_s")
    index = hnswlib.Index("l2", rows.shape[1])
    index.init_index(len(rows), ef_construction=list_size, M=degree // 2, random_seed=SEED)
    index.add_items(rows, num_threads=threads)
    lap("build_s")
    index.save_index(str(out / "hnsw.bin"))


PROGRAMS = {"diskann": diskann, "diskann-disk": diskann_disk, "svs": svs, "hnswlib": hnswlib}


def main() -> None:
    program, base, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    degree, list_size, threads = (int(value) for value in sys.argv[4:])
    out.mkdir(parents=True)
    took: dict[str, float] = {}
    last = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal last
        now = time.perf_counter()
        took[name], last = round(now - last, 3), now

    PROGRAMS[program](base, out, degree, list_size, threads, lap)
    sync_files(out)
    lap("save_s")
    (out / "call.json").write_text(json.dumps(took))


if __name__ == "__main__":
    main()
