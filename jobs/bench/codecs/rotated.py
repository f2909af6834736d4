"""Part *rotated*: what a learnt rotation is worth to lists of product codes, at equal bytes and by equal lists.

Both have the same centroids and exact vectors beside their codes. As many lists are probed as hold 97% of the true
neighbours of queries; then as many candidates are measured exactly as 95% need. The first half of the queries of a set
chooses both numbers, the second half is reported.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from indexmill.builders.cluster.kmeans import fit_centroids
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, K, read_bin, read_truth, recall_by_distance
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.programs import ours
from indexmill.reader.ivf import IvfIndex

#: Lists of each set.
LISTS = {"embed768": 256, "text40k": 64, "sift1m": 1024}
#: Components of a byte of a code.
STEPS = (32, 16, 8, 4)
ROTATIONS = ("none", "opq")
#: Rows that centroids are trained on, and queries of each half.
TRAINING_ROWS, N_QUERIES = 65_536, 500
#: Recall that lists must reach, then candidates, and numbers of candidates that are tried.
OF_LISTS, WANTED = 0.97, 0.95
CANDIDATES = (10, 12, 15, 20, 25, 30, 40, 50, 65, 80, 100, 130, 160, 200, 250, 320, 400, 500, 650, 800, 1000)
ROUNDS = 3


class Half(NamedTuple):
    """Queries of one half of a set, float32 or uint8 (n, dim), and the squared distances of their true neighbours."""

    queries: Any
    distances: Any


def rotated(run: Run) -> dict[str, Any]:
    """Build lists with and without a rotation for each set, and search them."""
    rows = [row for name, data in run.sets.items() for row in of_set(run, name, data)]
    return {"of_lists": OF_LISTS, "recall": WANTED, "lists": LISTS, "queries": N_QUERIES, "rows": rows}


def of_set(run: Run, name: str, data: Dataset) -> list[dict[str, Any]]:
    """Return what each size of codes reads, with and without a rotation."""
    folder = run.out / "rotated" / name
    folder.mkdir(parents=True, exist_ok=True)
    centroids, dim = folder / "centroids.npy", data.shape()[1]
    if not centroids.exists():
        sample = np.array(read_bin(data.base)[:TRAINING_ROWS])
        np.save(centroids, fit_centroids(sample, LISTS[name], SEED, THREADS))
    tune, report = (half_of(data, one) for one in ("tune", "report"))
    rows, base = [], read_bin(data.base)
    for size in (dim // step for step in STEPS):
        built = {rotation: build(data, folder, size, rotation) for rotation in ROTATIONS}
        opened = {rotation: IvfIndex(index) for rotation, (index, _) in built.items()}
        held = {rotation: IvfIndex(index, "memory") for rotation, (index, _) in built.items()}
        nprobe = probes(held["none"], tune, base)
        chosen = {rotation: candidates(index, tune, base, nprobe) for rotation, index in held.items()}
        seconds = search_seconds(held, report, nprobe, chosen, run.options.rounds or ROUNDS)
        for rotation, index in opened.items():
            alone = index.search(report.queries, K, nprobe=nprobe, rerank=0).vector_ids
            found = index.search(report.queries, K, nprobe=nprobe, rerank=chosen[rotation] or CANDIDATES[-1])
            counted = {what: float(counts.mean()) for what, counts in found.counters.items()}
            rows.append({
                "set": name, "rotation": rotation, "row_bytes": size, "nprobe": nprobe,
                "recall_of_codes": recall_by_distance(alone, base, report.queries, report.distances),
                "candidates": chosen[rotation],
                "recall": recall_by_distance(found.vector_ids, base, report.queries, report.distances),
                "list_reads": counted["reads"], "vector_reads": counted["vector_reads"],
                "kib_read": counted["bytes_read"] / 1024,
                "search_ms": 1e3 * seconds[rotation], "build_cpu_s": built[rotation][1],
            })  # fmt: skip
    return rows


def half_of(data: Dataset, name: str) -> Half:
    """Return the first queries of a half."""
    first, last = data.both_halves()[name]
    some = slice(first, min(last, first + N_QUERIES))
    return Half(np.array(read_bin(data.query)[some]), read_truth(data.truth)[1][some])


def build(data: Dataset, folder: Path, size: int, rotation: str) -> tuple[Path, float]:
    """Build an index by the command; return it and the seconds of processor time."""
    index = folder / f"{rotation}-{size}.ivf"
    usage = ours.build_lists(
        data.base, index, np.load(folder / "centroids.npy", mmap_mode="r").shape[0],
        centroids=folder / "centroids.npy", codec="pq", pq_bytes=size, pq_rotation=rotation, keep_vectors=True,
    )  # fmt: skip
    return index, usage.cpu_s


def probes(index: IvfIndex, half: Half, base: Any) -> int:
    """Return the least power of two whose lists hold enough of the true neighbours, measured exactly."""
    nprobe, most = 1, min(CANDIDATES[-1], len(base))
    while nprobe < index.native.n_lists:
        found = index.search(half.queries, K, nprobe=nprobe, rerank=most).vector_ids
        if recall_by_distance(found, base, half.queries, half.distances) >= OF_LISTS:
            return nprobe
        nprobe = min(2 * nprobe, index.native.n_lists)
    return nprobe


def candidates(index: IvfIndex, half: Half, base: Any, nprobe: int) -> int | None:
    """Return the least number of candidates that reaches the recall; None if none does."""
    for count in CANDIDATES:
        if count <= len(base):
            found = index.search(half.queries, K, nprobe=nprobe, rerank=count).vector_ids
            if recall_by_distance(found, base, half.queries, half.distances) >= WANTED:
                return count
    return None


def search_seconds(
    held: dict[str, IvfIndex], half: Half, nprobe: int, chosen: dict[str, int | None], rounds: int
) -> dict[str, float]:
    """Return the seconds of processor time of a query, by turns, with everything in memory and one thread."""
    seconds: dict[str, list[float]] = {rotation: [] for rotation in held}
    for _ in range(rounds):
        for rotation, index in held.items():
            began = time.process_time()
            index.search(half.queries, K, nprobe=nprobe, rerank=chosen[rotation] or CANDIDATES[-1])
            seconds[rotation].append(time.process_time() - began)
    return {rotation: median(each) / len(half.queries) for rotation, each in seconds.items()}
