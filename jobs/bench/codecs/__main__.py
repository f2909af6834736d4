"""Measure codecs of inverted lists at equal bytes: what they find, what a search costs, and what an error bound saves.

    python -m indexmill.jobs.bench.codecs --embed768 DIR --text40k DIR --sift1m DIR --out DIR [--keep]

All indexes of parts *codes* and *bound* have the same lists, which are in memory. One thread probes all of them without
exact vectors: so answers differ by codes alone. Part *rotated* compares product codes with and without a learnt
rotation (OPQ), on all sets and with exact vectors. Part *bound* asks how many rows must be measured exactly if a row is
left out once its estimate minus a bound of its error is beyond the k-th neighbour, beside a number that is the same for
all queries.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from indexmill.builders.cluster.kmeans import fit_centroids
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.ivf.lists import ListReader
from indexmill.formats.ivf.rabitq import DEVIATIONS, error_bounds, heads_of, levels_of, row_bytes_of
from indexmill.jobs.bench.codecs.rotated import rotated
from indexmill.jobs.bench.common.benchmark import PAGE, ROUNDS_OPTION, Benchmark, Page, Run
from indexmill.jobs.bench.common.dataset import Dataset, K, read_bin, read_truth, recall_by_distance
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.programs import ours
from indexmill.reader.ivf import IvfIndex

DATA = "embed768"
LISTS, ROUNDS = 64, 3
#: Rows that the centroids are trained on.
TRAINING_ROWS = 20_000
#: Queries of the second half of the set, and results of each.
N_QUERIES, RESULTS = 200, 100
#: Share of the true neighbours that candidates must hold.
SHARE = 0.95
#: Bits of RaBitQ codes whose bytes PQ codes get too, and those beside the bytes of sq8.
EQUAL_BITS, MOST_BITS = (1, 2, 4), 8


class Case(NamedTuple):
    """A codec, and the flags of its size and its rotation."""

    codec: str
    flags: dict[str, int | str]

    @property
    def name(self) -> str:
        """Name of its index: ``rabitq-4``."""
        return "-".join([self.codec, *map(str, self.flags.values())])


def cases(dim: int) -> list[Case]:
    """Return the codecs of vectors of `dim` components."""
    bits = [Case("rabitq", {"code_bits": bits}) for bits in (*EQUAL_BITS, MOST_BITS)]
    return [
        *bits,
        *(
            Case("pq", {"pq_bytes": row_bytes_of(dim, bits), "pq_rotation": rotation})
            for bits in EQUAL_BITS
            for rotation in ("none", "opq")
        ),
        Case("sq8", {}),
    ]


def codes(run: Run) -> dict[str, Any]:
    """Build an index with each codec and search all of them in turns."""
    data = run.sets[DATA]
    centroids = run.out / "centroids.npy"
    np.save(centroids, fit_centroids(np.array(read_bin(data.base)[:TRAINING_ROWS]), LISTS, SEED, THREADS))
    wanted = cases(data.shape()[1])
    cpu_s = {case.name: build(data, index_of(run, case), centroids, case) for case in wanted}
    queries, truth = asked(data)
    opened = {case.name: IvfIndex(index_of(run, case), "memory") for case in wanted}
    seconds: dict[str, list[float]] = {name: [] for name in opened}
    found = {}
    for _ in range(run.options.rounds or ROUNDS):
        for name, index in opened.items():
            began = time.process_time()
            found[name] = index.search(queries, RESULTS, nprobe=LISTS, rerank=0).vector_ids
            seconds[name].append(time.process_time() - began)
    base = read_bin(data.base)
    rows = [
        {
            "codec": case.codec,
            **case.flags,
            "row_bytes": IvfFiles(index_of(run, case)).centroids.row_bytes,
            "recall": recall_by_distance(found[case.name], base, queries, truth[1]),
            "candidates": candidates(found[case.name], truth[0], SHARE),
            "search_ms": 1e3 * median(seconds[case.name]) / len(queries),
            "build_cpu_s": cpu_s[case.name],
        }
        for case in wanted
    ]
    return {"lists": LISTS, "queries": len(queries), "share": SHARE, "rows": rows}


def index_of(run: Run, case: Case) -> Path:
    """Return the folder of an index."""
    return run.out / f"{case.name}.ivf"


def build(data: Dataset, index: Path, centroids: Path, case: Case) -> float:
    """Build an index by the command; return the seconds of processor time."""
    usage = ours.build_lists(data.base, index, LISTS, centroids=centroids, codec=case.codec, **case.flags)
    return usage.cpu_s


def asked(data: Dataset) -> tuple[Any, tuple[Any, Any]]:
    """Return queries, float32 (n, dim), and ids and squared distances of their true neighbours, (n, k)."""
    queries = read_bin(data.query)
    some = slice(len(queries) // 2, len(queries) // 2 + N_QUERIES)
    ids, distances = read_truth(data.truth)
    return np.array(queries[some]), (ids[some], distances[some])


def candidates(found: Any, truth: Any, share: float) -> int | None:
    """Return how many of the first results hold this share of the K true neighbours; None if all results do not."""
    is_true = (found[:, :, None] == truth[:, None, :K]).any(axis=2)
    held = is_true.cumsum(axis=1).mean(axis=0) / K
    return int(np.argmax(held >= share)) + 1 if held[-1] >= share else None


def bound(run: Run) -> dict[str, Any]:
    """Count the rows that an error bound leaves, and the candidates that find as many neighbours without it."""
    data = run.sets[DATA]
    queries, (ids, distances) = asked(data)
    rows = []
    for bits in EQUAL_BITS:
        estimates, margins = estimated(index_of(run, Case("rabitq", {"code_bits": bits})), queries)
        is_left = estimates - margins <= distances[:, K - 1 : K]
        recall = float(np.take_along_axis(is_left, ids[:, :K].astype(np.int64), 1).mean())
        own = np.take_along_axis(estimates, ids[:, :K].astype(np.int64), 1)
        ranks = [np.searchsorted(np.sort(one), mine) for one, mine in zip(estimates, own, strict=True)]
        needed = np.sort(np.concatenate(ranks))[max(0, int(np.ceil(recall * own.size)) - 1)] + 1
        row = {"recall": recall, "measured": float(is_left.sum(axis=1).mean()), "candidates": int(needed)}
        rows.append({"code_bits": bits, **row})
    return {"deviations": DEVIATIONS, "rows": rows}


def estimated(index: Path, queries: Any) -> tuple[Any, Any]:
    """Return estimates of squared distances, and bounds of their errors, float32 (n_queries, n_vectors) each."""
    files = IvfFiles(index)
    shared = files.centroids
    rotated = shared.compared(queries)
    estimates = np.empty((len(queries), shared.n_vectors), np.float32)
    margins = np.empty_like(estimates)
    with ListReader(files) as lists:
        for number, ids, rows in _pieces(lists, shared.n_lists):
            lengths, factors, values = _decoded(rows, shared)
            away = rotated - shared.centroids[number]
            squares = np.einsum("ij,ij->i", away, away)[:, None]
            estimates[:, ids] = squares + lengths - 2 * factors * (away @ values.T)
            bounds = error_bounds(lengths, factors, np.einsum("ij,ij->i", values, values), shared.dim)
            margins[:, ids] = 2 * np.sqrt(squares) * bounds
    return estimates, margins


def _pieces(lists: ListReader, n_lists: int) -> Iterator[tuple[int, Any, Any]]:
    for number in range(n_lists):
        for ids, rows in zip(lists.ids(number), lists.rows(number), strict=True):
            yield number, ids, rows


def _decoded(rows: Any, shared: Any) -> tuple[Any, Any, Any]:
    """Return squared lengths and factors (m,) and the numbers that levels stand for, (m, dim), all float32."""
    bits = shared.rabitq.bits
    values = 2 * levels_of(rows, shared.dim, bits).astype(np.float32) + (1 - 2**bits)
    lengths, factors = heads_of(rows).T
    return lengths, factors, values


BENCHMARK = Benchmark[Run](
    "codecs",
    {"codes": codes, "rotated": rotated, "bound": bound},
    sets=(DATA, "text40k", "sift1m"),
    parameters={"lists": LISTS, "k": K, "threads": 1},
    pages=(Page("tables", PAGE, "codecs"), Page("guide", "docs/guides/ivf-search.md", "codecs")),
    options=ROUNDS_OPTION,
)

if __name__ == "__main__":
    BENCHMARK.main()
