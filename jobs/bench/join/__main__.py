"""Measure IVF indexes and joins: the build, loads, searches beside faiss, and batches beyond memory.

Beyond memory the vectors are generated (`common.generate`).
Every round measures each side once, so that what else the machine does falls on all of them alike. Needs faiss-cpu and
a quarter of an hour; parts *beyond* need leave to make a control group.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from indexmill.builders.nearest.panels import NOTHING
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.pagefile.direct import READ_BYTES, aligned_buffer
from indexmill.jobs.bench.common.benchmark import Benchmark, Target
from indexmill.jobs.bench.common.dataset import Dataset, K, count_hits, facts, read_bin, read_truth
from indexmill.jobs.bench.common.generate import QUERIES, Manifold, generate, write
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.join.beyond import measure
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.faiss import byte_index, flat_index, load_faiss, write_ondisk
from indexmill.pipeline.join.batches import Loaded, load_batches
from indexmill.pipeline.join.search import Search

LISTS, NPROBES, ROUNDS = 4096, (1, 4, 32), 7
#: Vectors of joins beyond memory, the batches they are cut into, their queries, and the lists that each probes.
BEYOND, BATCHES, BEYOND_QUERIES, BEYOND_NPROBE = 3_000_000, 16, 2000, 32
#: Queries of the paper, of part *beyond-1*, where each probes one list: fewer would not need most of the lists.
PAPER_QUERIES = 10_000
#: Reads in flight of a load and of the bare reads beside it.
DEPTH = 2


@dataclass
class Joins:
    """Vectors and indexes of the parts.

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

    def ensure(self) -> Path:
        """Build the index of `data` unless it is there; return it."""
        n_vectors = self.data.shape()[0]
        if not _is_of(self.index, n_vectors):
            _build(self.data, self.index, n_vectors, workers=THREADS)
        return self.index

    def generated(self, n_queries: int) -> Dataset:
        """Return vectors for joins beyond memory, with so many queries; those that are there are not written again."""
        made = Dataset(self.out / "generated")
        if not made.base.exists() or made.shape()[0] != self.beyond:
            generate(made.folder, self.beyond, n_queries, SEED, THREADS)
        elif not made.query.exists() or len(read_bin(made.query)) != n_queries:
            write(made.query, Manifold(SEED), QUERIES, n_queries, THREADS)
        return made


def build(space: Joins) -> dict[str, Any]:
    """Build with one worker, in one batch; input bytes a second of processor time and of the clock."""
    usage = _build(space.data, space.index, space.data.shape()[0], workers=1)
    n_bytes = space.data.base.stat().st_size
    run = ours.run_facts(space.index)
    return {
        **usage,
        "stage_s": run["seconds"],
        "peak_memory_bytes": run["peak_memory_bytes"],
        "mb_s_a_core": n_bytes / usage["cpu_s"] / 1e6,
        "mb_s": n_bytes / usage["wall_s"] / 1e6,
    }


def _build(data: Dataset, index: Path, batch_vectors: int, **options: Any) -> dict[str, Any]:
    return ours.build_lists(
        data.base, index, LISTS, batch_vectors=max(batch_vectors, 64), **options
    ).to_dict()


def _is_of(index: Path, n_vectors: int) -> bool:
    """Whether there is an index of so many vectors."""
    return (index / "manifest.json").exists() and IvfFiles(index).centroids.n_vectors == n_vectors


def load(space: Joins) -> dict[str, Any]:
    """Load the batch, checksums and all, beside bare reads of the same file with as many in flight."""
    files = IvfFiles(space.ensure())
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
    ratios = [rate / raw for rate, raw in zip(loaded, disk, strict=True)]
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


def search(space: Joins, peer_of: Callable[[Any, IvfFiles, Dataset], Any] = flat_index) -> dict[str, Any]:
    """Search the batch in memory beside an index of faiss over the same centroids, in turns."""
    files = IvfFiles(space.ensure())
    queries = np.array(read_bin(space.data.query))
    faiss = load_faiss()
    peer = peer_of(faiss, files, space.data)
    (batch,) = load_batches(files, [0])
    assert isinstance(batch, Loaded)
    truth, base = read_truth(space.data.truth)[1], read_bin(space.data.base)
    made = {}
    for nprobe in NPROBES:
        peer.nprobe = nprobe
        mine, theirs = [], []
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
                mine.append(time.perf_counter() - began)
        rows = np.where(found.ids == NOTHING, -1, found.ids.astype(np.int64))
        made[str(nprobe)] = {
            **{f"recall{k}": float(count_hits(rows, base, queries, truth, k).mean()) / k for k in (1, K)},
            "seconds": mine,
            "faiss_seconds": theirs,
            "to_faiss": median(b / a for a, b in zip(mine, theirs, strict=True)),
            **_agreement(
                rows,
                found.keys,
                chosen,
                distances,
                ids,
                peer.quantizer.search(queries.astype(np.float32), nprobe)[1],
            ),
        }
    return {"queries": len(queries), "nprobe": made}


def _agreement(rows: Any, keys: Any, chosen: Any, distances: Any, ids: Any, theirs: Any) -> dict[str, Any]:
    """Compare results: faiss picks another list now and then, where rounding hides that it is farther."""
    same = rows == ids
    beyond = ~same & (keys != distances)
    other_lists = (np.sort(chosen, axis=1) != np.sort(theirs, axis=1)).any(axis=1)
    return {
        "same_ids": float(same.mean()),
        "differ_beyond_ties": int(beyond.sum()),
        "queries_with_other_lists": int(other_lists.sum()),
        "differ_in_same_lists": int(beyond[~other_lists].sum()),
    }


def beyond(space: Joins, nprobe: int = BEYOND_NPROBE, n_queries: int = BEYOND_QUERIES) -> dict[str, Any]:
    """Join beyond memory beside the same lists through a mapped file, and faiss's lists on the disk."""
    data, whole, batches = space.generated(n_queries), space.out / "whole.ivf", space.out / "batches.ivf"
    centroids, ondisk = space.out / "centroids.npy", space.out / "faiss-ondisk"
    if not _is_of(whole, space.beyond):
        shutil.rmtree(ondisk, ignore_errors=True)
        _build(data, whole, space.beyond, workers=THREADS)
        np.save(centroids, IvfFiles(whole).centroids.centroids)
        _build(data, batches, -(-space.beyond // BATCHES), workers=THREADS, centroids=centroids)
    if not (ondisk / "lists.faiss").exists():
        write_ondisk(load_faiss(), IvfFiles(whole), data, ondisk)
    return {"queries": n_queries, **measure(data, whole, batches, ondisk / "lists.faiss", nprobe, K)}


def _data(space: Joins) -> list[dict[str, Any]]:
    known = facts("sift1m", space.data)
    return [known, known | {"name": f"generated, seed {SEED}", "n_vectors": space.beyond}]


TARGETS = (
    Target("build, MB of input a second of one core", "build.mb_s_a_core", ">=", 4, "MB/s"),
    Target("load phase over bare reads of the same file", "load.load_to_disk", ">=", 0.85, "x"),
    *(
        Target(f"search phase over faiss IndexIVFFlat, nprobe {n}", f"search.nprobe['{n}'].to_faiss", ">=", 1.0, "x")
        for n in NPROBES
    ),
    *(
        Target(
            f"ids that differ from faiss's in the same lists, ties excepted, nprobe {n}",
            f"search.nprobe['{n}'].differ_in_same_lists", "<=", 0,
        )
        for n in NPROBES[:2]
    ),
    Target("queries a second beyond memory, over the same lists mapped", "beyond.bss_to_mapped", ">=", 8, "x"),
    Target("queries a second beyond memory, over faiss OnDiskInvertedLists", "beyond.bss_to_ondisk", ">=", 3, "x"),
)  # fmt: skip

BENCHMARK = Benchmark[Joins](
    "join",
    {
        "build": build,
        "load": load,
        "search": search,
        "search-bytes": partial(search, peer_of=byte_index),
        "beyond": beyond,
        "beyond-1": partial(beyond, nprobe=1, n_queries=PAPER_QUERIES),
    },
    TARGETS,
    space=lambda run: Joins(run.sets["sift1m"], run.out, run.rows or BEYOND),
    data=_data,
    parameters={"lists": LISTS, "codec": "flat", "k": K, "threads": THREADS},
    peers=("faiss-cpu",),
)

if __name__ == "__main__":
    BENCHMARK.main()
