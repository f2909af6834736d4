"""Measure IVF indexes and joins: the build, loads, searches beside faiss, and batches beyond memory.

    python -m indexmill.jobs.bench.join --data DIR --out DIR  # every part that is not in DIR/join.json yet
    python -m indexmill.jobs.bench.join --data DIR --out DIR --parts search     # measure some parts again
    python -m indexmill.jobs.bench.join --data DIR --out DIR --rows 600000      # try it on fewer vectors
    python -m indexmill.jobs.bench.join --data DIR --out DIR --keep  # store the record, write the tables of the page

``DIR`` of `--data` has base.u8bin and query.u8bin, of sift1m. Beyond memory the vectors are generated (`generate.py`).
Every round measures each side once, so that what else the machine does falls on all of them alike. Needs faiss-cpu and
about 12 minutes; part *beyond* needs leave to make a control group.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from indexmill.builders.nearest.panels import NOTHING
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.pagefile.direct import READ_BYTES, aligned_buffer
from indexmill.jobs.bench.common import parts, record
from indexmill.jobs.bench.common.dataset import Dataset, K, first_rows, read_bin
from indexmill.jobs.bench.common.generate import generate
from indexmill.jobs.bench.common.machine import REPOSITORY
from indexmill.jobs.bench.common.process import run_measured
from indexmill.jobs.bench.join import beyond as join_beyond
from indexmill.jobs.bench.join import tables as tables_join
from indexmill.jobs.bench.programs import faiss as join_faiss
from indexmill.jobs.bench.programs.workspace import THREADS, indexmill_command
from indexmill.pipeline.join.batches import Loaded, load_batches
from indexmill.pipeline.join.search import Search

LISTS, NPROBES, ROUNDS = 4096, (1, 4, 32), 7
#: What is generated for joins beyond memory, the batches it is cut into, and the lists that a query probes there.
BEYOND, BATCHES, BEYOND_QUERIES, BEYOND_NPROBE, SEED = 3_000_000, 16, 2000, 32, 1
#: Reads in flight of a load and of the bare reads beside it.
DEPTH = 2
PAGE = REPOSITORY / "docs" / "benchmarks.md"


@dataclass
class Joins:
    """What parts work on.

    Attributes
    ----------
    data : Dataset
        Of the parts in memory.
    out : Path
    beyond : int
        Vectors to generate.
    """

    data: Dataset
    out: Path
    beyond: int

    @property
    def index(self) -> Path:
        """The index of `data`, in one batch."""
        return self.out / "join.ivf"

    @cached_property
    def generated(self) -> Dataset:
        """Vectors for joins beyond memory."""
        made = Dataset(self.out / "generated")
        if not (made.folder / "query.u8bin").exists() or made.shape()[0] != self.beyond:
            generate(made.folder, self.beyond, BEYOND_QUERIES, SEED, THREADS)
        return made


def build(space: Joins) -> dict[str, Any]:
    """Build with one worker, in one batch; input bytes a second of processor time and of the clock."""
    usage = _build(space.data, space.index, space.data.shape()[0], ["--workers", 1])
    n_bytes = space.data.base.stat().st_size
    run = json.loads((space.index / "run.json").read_text())
    return {
        **usage,
        "stage_s": run["seconds"],
        "peak_memory_bytes": run["peak_memory_bytes"],
        "mb_s_a_core": n_bytes / usage["cpu_s"] / 1e6,
        "mb_s": n_bytes / usage["wall_s"] / 1e6,
    }


def _build(data: Dataset, index: Path, batch_vectors: int, options: list[Any]) -> dict[str, Any]:
    return run_measured(
        [
            indexmill_command(), "build", "--kind", "ivf", "--input", data.base, "--lists", LISTS, "--out", index,
            "--batch-vectors", max(batch_vectors, 64), "--force", "--json", *options,
        ],
        index.with_suffix(".log"),
    ).to_dict()  # fmt: skip


def load(space: Joins) -> dict[str, Any]:
    """Load the batch, checksums and all, beside bare reads of the same file with as many in flight."""
    files = IvfFiles(space.index)
    path = space.index / files.batches[0].name
    buffer = aligned_buffer(files.batches[0].bytes)
    disk, loaded = [], []
    for _ in range(ROUNDS):
        disk.append(max(_read_mb_s(path, buffer) for _ in range(2)))
        # into memory that the first two have touched, as most batches of a join
        rates = [
            one.bytes / one.seconds / 1e6 for one in load_batches(files, [0] * 4) if isinstance(one, Loaded)
        ]
        loaded.append(max(rates[2:]))
    ratios = [ours / raw for ours, raw in zip(loaded, disk, strict=True)]
    return {"depth": DEPTH, "disk_mb_s": disk, "load_mb_s": loaded, "load_to_disk": median(ratios)}


def _read_mb_s(path: Path, buffer: Any) -> float:
    """Read a file in the pieces of a load, `DEPTH` in flight, and look at nothing."""
    n_bytes = path.stat().st_size
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def read(done: int) -> None:
        last = min(done + READ_BYTES, n_bytes)
        while done < last:
            done += os.preadv(handle, [buffer.data[done:last]], done)

    try:
        with ThreadPoolExecutor(DEPTH) as readers:
            began = time.perf_counter()
            deque(readers.map(read, range(0, n_bytes, READ_BYTES)), 0)
            return n_bytes / (time.perf_counter() - began) / 1e6
    finally:
        os.close(handle)


def search(space: Joins) -> dict[str, Any]:
    """Search the batch in memory beside faiss's `IndexIVFFlat` over the same centroids, in turns."""
    files = IvfFiles(space.index)
    queries = np.array(read_bin(space.data.query))
    faiss = join_faiss.load_faiss()
    peer = join_faiss.flat_index(faiss, files, space.data)
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
                one = Search(files.centroids, K, nprobe, THREADS)
                chosen = one.choose(queries)
                found = one.run(batch.lists, queries, chosen)
                ours.append(time.perf_counter() - began)
        made[str(nprobe)] = {
            "seconds": ours,
            "faiss_seconds": theirs,
            "to_faiss": median(b / a for a, b in zip(ours, theirs, strict=True)),
            **_agreement(
                found, chosen, distances, ids, peer.quantizer.search(queries.astype(np.float32), nprobe)[1]
            ),
        }
    return {"queries": len(queries), "nprobe": made}


def _agreement(found: Any, chosen: Any, distances: Any, ids: Any, theirs: Any) -> dict[str, Any]:
    """Compare results: faiss picks another list now and then, where rounding hides that it is farther."""
    same = np.where(found.ids == NOTHING, -1, found.ids.astype(np.int64)) == ids
    beyond = ~same & (found.keys != distances)
    other_lists = (np.sort(chosen, axis=1) != np.sort(theirs, axis=1)).any(axis=1)
    return {
        "same_ids": float(same.mean()),
        "differ_beyond_ties": int(beyond.sum()),
        "queries_with_other_lists": int(other_lists.sum()),
        "differ_in_same_lists": int(beyond[~other_lists].sum()),
    }


def beyond(space: Joins) -> dict[str, Any]:
    """Join beyond memory beside the same lists through a mapped file, and faiss's lists on the disk."""
    data, whole, batches = space.generated, space.out / "whole.ivf", space.out / "batches.ivf"
    centroids, ondisk = space.out / "centroids.npy", space.out / "faiss-ondisk"
    if not (whole / "manifest.json").exists() or IvfFiles(whole).centroids.n_vectors != space.beyond:
        shutil.rmtree(ondisk, ignore_errors=True)
        _build(data, whole, space.beyond, ["--workers", THREADS])
        np.save(centroids, IvfFiles(whole).centroids.centroids)
        _build(data, batches, -(-space.beyond // BATCHES), ["--workers", THREADS, "--centroids", centroids])
    if not (ondisk / "lists.faiss").exists():
        join_faiss.write_ondisk(join_faiss.load_faiss(), IvfFiles(whole), data, ondisk)
    return join_beyond.measure(data, whole, batches, ondisk / "lists.faiss", BEYOND_NPROBE, K)


PARTS: dict[str, Callable[[Joins], dict[str, Any]]] = {
    "build": build,
    "load": load,
    "search": search,
    "beyond": beyond,
}


def main() -> None:
    arguments = _arguments()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    data, beyond_n = Dataset(arguments.data.resolve()), BEYOND
    if arguments.rows:
        beyond_n = arguments.rows
        data = first_rows(data, arguments.rows, out / "rows")
    space = Joins(data, out, beyond_n)
    path = out / "join.json"
    found = record.load(path)
    shape = data.shape()
    sets = [
        {"name": name, "n_vectors": n, "dim": shape[1], "dtype": "uint8"}
        for name, n in (("sift1m", shape[0]), (f"generated, seed {SEED}", beyond_n))
    ]
    parameters = {"lists": LISTS, "codec": "flat", "k": K, "threads": THREADS}
    record.begin(found, path, "join", sets, parameters, ["faiss-cpu"])
    chosen = arguments.parts
    if chosen is None:
        chosen = [part for part in PARTS if part not in found["parts"]]
    failed = parts.run_all(PARTS, chosen, space, found, path)
    found = record.load(path)
    if arguments.keep and not failed:
        kept = record.keep(path)
        tables_join.write_page(found, str(kept.relative_to(REPOSITORY)), PAGE)
    elif found.get("parts"):
        print(tables_join.render(found, str(path)))
    parts.stop_after(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with base.u8bin and query.u8bin")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for indexes, their logs and join.json"
    )
    parser.add_argument("--parts", type=parts.names(PARTS), help=f"measure these again: {','.join(PARTS)}")
    parser.add_argument("--rows", type=int, help="try it on so many vectors of each set")
    parser.add_argument(
        "--keep", action="store_true", help="store the record and write the page of benchmarks"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
