"""Measure an IVF index: its build, the rate at which batches are loaded, and their search beside faiss.

    python jobs/bench/join.py --data DIR --out DIR          # prints a table; DIR/join.json is the record
    python jobs/bench/join.py --data DIR --out DIR --keep   # stores the record in the repository, too

Vectors and queries are ``DIR/base.u8bin`` and ``DIR/query.u8bin``. Every round measures each side once, so that what
else the machine does falls on all of them alike. The disk's own rate is that of the same file, read past the page cache
in the same pieces and not looked at.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import machine
import numpy as np
import record
from dataset import Dataset, K, read_bin
from process import run_measured
from threadpoolctl import threadpool_info, threadpool_limits
from workspace import THREADS, indexmill_command

from indexmill.builders.panels import NOTHING
from indexmill.formats.direct import READ_BYTES, aligned_buffer
from indexmill.formats.ivf_index import IvfFiles
from indexmill.pipeline.join_batches import Loaded, load_batches
from indexmill.pipeline.join_search import Search

LISTS, NPROBES, ROUNDS = 4096, (1, 4, 32), 7
#: What the build, the load phase and the search phase must reach.
TARGETS = {"build_mb_s_a_core": 4.0, "load_to_disk": 0.85, "search_to_faiss": 1.0}


def main() -> None:
    arguments = _arguments()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    data = Dataset(arguments.data.resolve())
    n_vectors, dim = data.shape()
    path = out / "join.json"
    found = record.load(path)
    about = {"name": "sift1m", "n_vectors": n_vectors, "dim": dim, "dtype": "uint8"}
    parameters = {"lists": LISTS, "codec": "flat", "k": K, "threads": THREADS, "targets": TARGETS}
    record.begin(found, path, "join", about, parameters, ["faiss-cpu"])
    index = out / "join.ivf"
    for name, measure in (("build", build), ("load", load), ("search", search)):
        found["parts"][name] = (
            record.start_part() | measure(data, index) | {"load_after": machine.load_average()}
        )
        record.save(found, path)
    print(table(found))
    if arguments.keep:
        print(record.keep(path))


def build(data: Dataset, index: Path) -> dict[str, Any]:
    """Build with one worker, in one batch; input bytes a second of processor time and of the clock."""
    usage = run_measured(
        [
            indexmill_command(), "build", "--kind", "ivf", "--input", data.base, "--lists", LISTS, "--out", index,
            "--batch-vectors", max(data.shape()[0], 64), "--workers", 1, "--force", "--json",
        ],
        index.with_suffix(".log"),
    ).to_dict()  # fmt: skip
    n_bytes = data.base.stat().st_size
    run = json.loads((index / "run.json").read_text())
    return {
        **usage,
        "stage_s": run["seconds"],
        "peak_memory_bytes": run["peak_memory_bytes"],
        "mb_s_a_core": n_bytes / usage["cpu_s"] / 1e6,
        "mb_s": n_bytes / usage["wall_s"] / 1e6,
    }


def load(data: Dataset, index: Path) -> dict[str, Any]:
    """Load the batch, checksums and all, beside the bare reads."""
    files = IvfFiles(index)
    path = index / files.batches[0].name
    buffer = aligned_buffer(files.batches[0].bytes)
    disk, loaded = [], []
    for _ in range(ROUNDS):
        disk.append(max(_read_mb_s(path, buffer) for _ in range(2)))
        rates = [
            one.bytes / one.seconds / 1e6 for one in load_batches(files, [0] * 4) if isinstance(one, Loaded)
        ]
        loaded.append(
            max(rates[2:])
        )  # into memory that the first two have touched, as most batches of a join
    ratios = [ours / raw for ours, raw in zip(loaded, disk, strict=True)]
    return {"disk_mb_s": disk, "load_mb_s": loaded, "load_to_disk": median(ratios)}


def _read_mb_s(path: Path, buffer: Any) -> float:
    n_bytes, done = path.stat().st_size, 0
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        began = time.perf_counter()
        while done < n_bytes:
            done += os.preadv(handle, [buffer.data[done : min(done + READ_BYTES, n_bytes)]], done)
        return n_bytes / (time.perf_counter() - began) / 1e6
    finally:
        os.close(handle)


def search(data: Dataset, index: Path) -> dict[str, Any]:
    """Search the batch in memory beside faiss's `IndexIVFFlat` over the same centroids, in turns."""
    files = IvfFiles(index)
    queries = np.array(read_bin(data.query))
    peer = _faiss_index(files, data)
    (batch,) = load_batches(files, [0])
    assert isinstance(batch, Loaded)
    made = {}
    for nprobe in NPROBES:
        peer.nprobe = nprobe
        ours, theirs = [], []
        for _ in range(ROUNDS):
            with threadpool_limits(THREADS):
                began = time.perf_counter()
                distances, ids = peer.search(queries.astype(np.float32), K)
                theirs.append(time.perf_counter() - began)
            with threadpool_limits(1):
                began = time.perf_counter()
                found = Search(files.centroids, queries, K, nprobe, THREADS).run(batch.lists)
                ours.append(time.perf_counter() - began)
        same = np.where(found.ids == NOTHING, -1, found.ids.astype(np.int64)) == ids
        made[str(nprobe)] = {
            "seconds": ours,
            "faiss_seconds": theirs,
            "to_faiss": median(b / a for a, b in zip(ours, theirs, strict=True)),
            "same_ids": float(same.mean()),
            "differ_beyond_ties": int((~same & (found.keys != distances)).sum()),
        }
    return {"queries": len(queries), "nprobe": made}


def _faiss_index(files: IvfFiles, data: Dataset) -> Any:
    """Make faiss's index; its OpenBLAS may not know the processor, so it is told the core that numpy's found."""
    blas = next(one for one in threadpool_info() if one["user_api"] == "blas")
    os.environ.setdefault("OPENBLAS_CORETYPE", blas.get("architecture", ""))
    faiss = importlib.import_module("faiss")
    faiss.omp_set_num_threads(THREADS)
    centroids = files.centroids.centroids
    coarse = faiss.IndexFlatL2(centroids.shape[1])
    coarse.add(centroids.copy())
    made = faiss.IndexIVFFlat(coarse, centroids.shape[1], len(centroids))
    made.is_trained = True
    made.add(np.asarray(read_bin(data.base), np.float32))
    return made


def table(found: dict[str, Any]) -> str:
    """Return the record as a table of what was wanted and what was measured."""
    parts = found["parts"]
    rows = [
        ("build, MB of input a second a core", TARGETS["build_mb_s_a_core"], parts["build"]["mb_s_a_core"]),
        (
            "load phase over the disk's sequential rate",
            TARGETS["load_to_disk"],
            parts["load"]["load_to_disk"],
        ),
    ]
    for nprobe, figures in parts["search"]["nprobe"].items():
        wanted = TARGETS["search_to_faiss"]
        rows.append(
            (f"search phase over faiss, nprobe {nprobe}, {THREADS} threads", wanted, figures["to_faiss"])
        )
    lines = ["| | target | measured |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {wanted:.2f} | {value:.2f} |" for name, wanted, value in rows)])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with base.u8bin and query.u8bin")
    parser.add_argument("--out", type=Path, required=True, help="folder for the index, its log and join.json")
    parser.add_argument("--keep", action="store_true", help="store the record in the repository")
    return parser.parse_args()


if __name__ == "__main__":
    main()
