"""Cold openings and cold searches of indexes in a throttled store, one query at a time."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

import indexmill
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import LONG_SIZES, PROBES, value_at
from indexmill.jobs.bench.common.dataset import Dataset, K, count_hits, read_bin, read_truth
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, MAX_DEGREE, PQ_BYTES, SEED, THREADS
from indexmill.jobs.bench.common.process import run_indexmill
from indexmill.jobs.bench.large.builds import given
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.stored.throttled import Throttled, place, rounds
from indexmill.jobs.kinds.opening import MEMORY_VARIABLE
from indexmill.pipeline.urls.cache import BYTES_VARIABLE, CACHE_VARIABLE
from indexmill.reader.choices import RANGES

#: Recall@10 at which searches are timed.
RECALL = 0.90
#: Cold openings of each index after one that loads the code, and queries of the reported half that are searched.
OPENINGS, QUERIES = 9, 200
#: Millions of generated vectors of a whole run.
MILLIONS = 10
#: Centroids, as a multiple of the root of the number of vectors.
CELLS = 4


@dataclass(frozen=True)
class Kind:
    """An index that is built, and the option that trades time for recall.

    Attributes
    ----------
    flags : dict
    cells : str
        The flag of how many centroids lead to what a query reads first: `CELLS` times the root of the vectors.
    effort : str
    sizes : tuple of int
    """

    flags: dict[str, object]
    cells: str
    effort: str
    sizes: tuple[int, ...]


KINDS = {
    "graph": Kind(
        {"codes_on_page": True, "R": MAX_DEGREE, "pq_bytes": PQ_BYTES, "builder": "partition"},
        "entries",
        "L",
        LONG_SIZES,
    ),
    "lists": Kind({"kind": "ivf"}, "lists", "nprobe", PROBES),
    "lists_of_codes": Kind({"kind": "ivf", "codec": "pq", "keep_vectors": True}, "lists", "nprobe", PROBES),
}


def data_of(run: Run, name: str) -> Dataset:
    """Return a set: one that was given, or millions of generated vectors; of a trial, as many as it has rows."""
    if name in run.sets:
        return run.sets[name]
    asked: int | None = run.options.millions
    return given(run, asked or (1 if run.rows else MILLIONS))


def measure(run: Run, name: str) -> dict[str, Any]:
    """Build an index of each kind unless it is there, open it and search it in the store."""
    data = data_of(run, name)
    n, dim = data.shape()
    folder = run.out / f"{name}-{n}"
    folder.mkdir(exist_ok=True)
    return {"n": n, "dim": dim, **{kind: _measured(data, folder, kind) for kind in KINDS}}


def build(data: Dataset, index: Path, kind: Kind) -> None:
    """Build an index unless it is there."""
    if not (index / "manifest.json").exists():
        run_indexmill(
            index.with_suffix(".log"), "build", input=data.base, out=index, seed=SEED, memory=BUILD_MEMORY,
            workers=THREADS, **kind.flags, **sizes_of(kind, data.shape()[0]),
        )  # fmt: skip


def sizes_of(kind: Kind, n: int) -> dict[str, int]:
    """Return the flags of a build that grow with its vectors: centroids, and the sample that trains those of lists."""
    cells = round(CELLS * n**0.5)
    return {kind.cells: cells} | ({"sample_vectors": ours.sample_of(cells)} if kind.cells == "lists" else {})


def _measured(data: Dataset, folder: Path, name: str) -> dict[str, Any]:
    kind, index = KINDS[name], folder / name
    build(data, index, kind)
    url = place(index, folder / f"{name}.store")
    opened = open_cold(url, folder / "cache")
    with cache_in(folder / "no-cache", keeps=False):
        far: Any = indexmill.open(url, engine=RANGES)
        options = dict(far.search_defaults)
        size = chosen_size(indexmill.open(index), data, kind, options)
        searched = search_cold(far, data, {kind.effort: size})
    return {
        "built": sizes_of(kind, data.shape()[0]),
        "index_bytes": sum(path.stat().st_size for path in index.iterdir()),
        **opened,
        "effort": kind.effort,
        "size": size,
        "options": options,
        **searched,
    }


@contextmanager
def cache_in(folder: Path, keeps: bool) -> Iterator[None]:
    """Let URLs be read with an empty cache in a folder, which a process has one bound for.

    Without `keeps`, nothing that searches read is kept.
    """
    shutil.rmtree(folder, ignore_errors=True)
    wanted = {CACHE_VARIABLE: str(folder)} | ({} if keeps else {BYTES_VARIABLE: "0", MEMORY_VARIABLE: "0"})
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)


def open_cold(url: str, cache: Path) -> dict[str, Any]:
    """Open an index again and again with nothing of it on this machine: milliseconds, and what was requested."""
    times_ms, asked = [], []
    for _ in range(1 + OPENINGS):
        with cache_in(cache, keeps=True):
            Throttled.line.take()
            began = time.perf_counter()
            index = indexmill.open(url, engine=RANGES)
            times_ms.append(1e3 * (time.perf_counter() - began))
            asked.append(Throttled.line.take())
            del index
    times_ms, asked = times_ms[1:], asked[1:]
    return {
        "open_ms": {"value": float(np.median(times_ms)), "low": min(times_ms), "high": max(times_ms)},
        "open_requests": len(asked[-1]),
        "open_bytes": sum(request.n_bytes for request in asked[-1]),
        "open_rounds": int(np.median([rounds(requests) for requests in asked])),
    }


def chosen_size(local: Any, data: Dataset, kind: Kind, options: dict[str, Any]) -> int:
    """Return the least effort with the recall on the tuning queries: searches on this machine find the same."""
    first, last = data.both_halves()["tune"]
    rows: list[dict[str, Any]] = []
    for size in kind.sizes:
        found = local.search(
            read_bin(data.query)[first:last], K, threads=THREADS, **{kind.effort: size}, **options
        )
        rows.append({"L": size, "recall": float(_hits(found, data, first, last).mean()) / K})
        if rows[-1]["recall"] >= RECALL:
            break
    between = value_at(rows, "L", RECALL)
    return int(rows[-1]["L"]) if between is None else ceil(between)


def search_cold(index: Any, data: Dataset, effort: dict[str, int]) -> dict[str, Any]:
    """Search queries of the reported half one by one, while nothing that was read is kept."""
    first, last = data.both_halves()["report"]
    last = min(last, first + QUERIES)
    queries = read_bin(data.query)
    index.search(queries[first - 1 : first], K, **effort)  # loads code
    before = index.native.traffic
    times_ms, waited, hits = [], [], 0
    for i in range(first, last):
        began = time.perf_counter()
        found = index.search(queries[i : i + 1], K, **effort)
        times_ms.append(1e3 * (time.perf_counter() - began))
        waited.append(int(found.counters["rounds"][0]))
        hits += int(_hits(found, data, i, i + 1).sum())
    after, n = index.native.traffic, last - first
    p50, p99 = np.percentile(times_ms, [50, 99])
    return {
        "recall": hits / n / K,
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "rounds": float(np.mean(waited)),
        "most_rounds": max(waited),
        "requests": (after["requests"] - before["requests"]) / n,
        "bytes": (after["bytes"] - before["bytes"]) / n,
    }


def _hits(found: Any, data: Dataset, first: int, last: int) -> Any:
    queries, truth = read_bin(data.query)[first:last], read_truth(data.truth)[1][first:last]
    return count_hits(found.vector_ids, read_bin(data.base), queries, truth)
