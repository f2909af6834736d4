"""Run by DiskANN's own environment: build one disk index and write the seconds of that call to OUT/call.json.

python -m indexmill.jobs.bench.programs.diskann_build BASE OUT PQ_BYTES R L THREADS MEMORY_GIB
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import diskannpy

from indexmill.jobs.bench.common.dataset import read_bin, sync_files


def main() -> None:
    base, out = Path(sys.argv[1]), Path(sys.argv[2])
    pq_bytes, degree, list_size, threads, memory_gib = (int(value) for value in sys.argv[3:])
    out.mkdir(parents=True)
    # DiskANN derives the code size from a memory limit: floor(limit / vectors). Half a byte more than wanted
    # keeps rounding, of the division and of the option's few printed digits, away from the next lower size.
    search_gib = (pq_bytes + 0.5) * len(read_bin(base)) / 2**30
    began = time.perf_counter()
    diskannpy.build_disk_index(
        data=str(base),
        distance_metric="l2",
        index_directory=str(out),
        complexity=list_size,
        graph_degree=degree,
        search_memory_maximum=search_gib,
        build_memory_maximum=float(memory_gib),
        num_threads=threads,
        pq_disk_bytes=0,
        vector_dtype=read_bin(base).dtype.type,
        index_prefix="ann",
    )
    call_s = time.perf_counter() - began
    sync_files(out)  # as our builds do
    (out / "call.json").write_text(json.dumps({"call_s": round(call_s, 3)}))


main()
