"""Parts *join*: a hundred thousand queries joined with lists that memory does not hold, beside faiss batch by batch.

All sides search the same lists of the same centroids, as many for each query as the tuning half of the held-out queries
needs for the recall. faiss's batches are files of its own format with the entries of our batches, either bytes as bytes
or floats, whose batches are cut in four. Every run is a process of its own in a control group, whose limit holds
everything: the interpreter, what was loaded, and the page cache.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import log2
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from indexmill.formats.ivf.index import IvfFiles
from indexmill.jobs.bench.common import generate
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.cgroup import memory_limit
from indexmill.jobs.bench.common.dataset import Dataset, K, count_both, read_bin
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.common.process import module, output_of
from indexmill.jobs.bench.large.builds import MILLION, QUERIES, given
from indexmill.jobs.bench.large.joins_child import joined
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.faiss import load_faiss, write_batches
from indexmill.pipeline.spec import parse_size

#: The recall at which sides are compared, and lists that a query may probe.
RECALL = 0.95
PROBES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50, 64, 80, 100, 128, 160, 200, 256, 320, 400, 512)
#: Vectors of a million for each query: 100,000 queries. Batches of an index, and about how many vectors a list has.
_A_QUERY, BATCHES, _LIST_VECTORS = 10, 16, 4096
#: Fewest lists, and memory of builds, which are not measured.
_LEAST_LISTS, _BUILD_MEMORY = 16, "4GiB"
#: Files that each of our batches makes for faiss: floats take four times the memory of bytes.
PEERS = {"faiss-bytes": 1, "faiss-floats": 4}
SIDES = ("join", *PEERS)
#: Bytes of the limit that the join is not told of: they are for what the kernel counts beside it.
_KERNEL_BYTES = 64 << 20
_ROUNDS = 3


@dataclass(frozen=True)
class Joined:
    """A join with so many millions of vectors, and the memory that each side may take in all."""

    millions: int
    memory: str


JOINS = {"n3-join": Joined(3, "512MiB"), "n30-join": Joined(30, "2GiB")}


def measure(run: Run, name: str) -> dict[str, Any]:
    """Run each side of `JOINS` in turns; return their queries a second, and how the join compares with the better.

    The index and the files of faiss are removed.
    """
    wanted = JOINS[name]
    data = given(run, wanted.millions)
    n = data.shape()[0]
    folder = run.out / f"{name}-{n}"
    folder.mkdir(exist_ok=True)
    index, lists = folder / "lists.ivf", lists_of(n)
    if not (index / "manifest.json").exists():
        ours.build_lists(
            data.base, index, lists, batch_vectors=max(-(-n // BATCHES), 64), sample_vectors=ours.sample_of(lists),
            memory=_BUILD_MEMORY, workers=THREADS, seed=SEED,
        )  # fmt: skip
    files = IvfFiles(index)
    queries = asked(folder, max(QUERIES, (run.rows or MILLION) // _A_QUERY))
    nprobe = least_nprobe(
        lambda probes, half: joined(half, index, folder, probes), data, files.centroids.n_lists
    )
    places = {"join": index} | {side: folder / side for side in PEERS}
    for side, pieces in PEERS.items():
        write_batches(load_faiss(), files, places[side], pieces, as_floats=side == "faiss-floats")
    limit = parse_size(wanted.memory)
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    recall = {}
    for _ in range(_ROUNDS):
        for side in SIDES:
            found = folder / "found.npy"
            words = (side, queries, places[side], nprobe, limit - _KERNEL_BYTES, found)
            with memory_limit(limit) as group:
                one = json.loads(output_of(group.wrap(module(sys.executable, "large.joins_child", *words))))
                runs[side].append({**one, "peak_bytes": group.pressure().peak_bytes})
            recall[side] = recall_of(np.load(found)[:QUERIES], data)
    n_queries = runs["join"][0]["queries"]
    qps = {side: n_queries / median(one["seconds"] for one in found) for side, found in runs.items()}
    row = {
        "joined": n,
        "queries": n_queries,
        "k": K,
        "memory": wanted.memory,
        "limit_bytes": limit,
        "lists": files.centroids.n_lists,
        "sample_vectors": min(ours.sample_of(lists), n),
        "batches": len(files.batches),
        "list_bytes": sum(entry.bytes for entry in files.batches),
        "nprobe": nprobe,
        "threads": THREADS,
        "recall": recall,
        "runs": runs,
        "peak_bytes": {side: max((one["peak_bytes"] or 0) for one in found) for side, found in runs.items()},
        "qps": qps,
        "to_faiss": qps["join"] / max(qps[side] for side in PEERS),
    }
    shutil.rmtree(folder)
    return row


def lists_of(n: int) -> int:
    """Return the lists of n vectors: a power of two."""
    return int(max(_LEAST_LISTS, 2 ** round(log2(n / _LIST_VECTORS))))


def asked(folder: Path, n: int) -> Path:
    """Return a file of n held-out queries, made once: the first ones are those of which the truth is known."""
    path = folder / f"query-{n}.u8bin"
    if not path.exists():
        generate.write(path, generate.Manifold(SEED), generate.QUERIES, n, THREADS)
    return path


def least_nprobe(join: Callable[[int, Any], Any], data: Dataset, lists: int) -> int:
    """Return the fewest lists of `PROBES` with which the queries that tune reach the recall; else the most there are.

    Parameters
    ----------
    join : callable
        Returns the vectors found for queries with so many lists.
    lists : int
    """
    first, last = data.both_halves()["tune"]
    queries = np.array(read_bin(data.query)[first:last])
    for probes in PROBES:
        if probes >= lists:
            break
        if count_both(join(probes, queries), data, first, last)["hits"].mean() / K >= RECALL:
            return probes
    return lists


def recall_of(found: Any, data: Dataset) -> float:
    """Return the recall of the queries that report, of those whose truth is known."""
    first, last = data.both_halves()["report"]
    return float(count_both(found[first:last], data, first, last)["hits"].mean()) / K
