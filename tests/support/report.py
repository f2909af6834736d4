"""A comparison made by hand: two layouts of one graph, the second with half the page reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from indexmill.jobs.compare.costs import compare_rows
from indexmill.jobs.compare.detail import choose_point, describe
from indexmill.jobs.compare.measure import Measurement
from indexmill.jobs.compare.noise import aa_ratios, noise_floor
from indexmill.jobs.compare.run import Comparison, with_intervals
from indexmill.jobs.score.rows import Run

K, QUERIES, SIZES, POLICIES = 10, 80, (10, 20, 40, 80), ("beam", "pipeline")
#: Right answers of all queries together are these shares, one a size.
RECALLS = (0.80, 0.92, 0.96, 0.99)
#: Queries with a path, and nodes of a page.
PATHS, NODES = 3, 6


def measurement(
    name: str, policy: str, size: int, recall: float, pages: float, again: bool = False, runs: int = 3
) -> Measurement:
    """All runs of one index at one size: queries differ alike in each index, times a little in each run."""
    rng = np.random.default_rng(size)
    hits = np.zeros(QUERIES * K, np.int64)
    hits[rng.permutation(QUERIES * K)[: round(recall * QUERIES * K)]] = 1
    read = np.round(pages * rng.uniform(0.6, 1.4, QUERIES))
    noise = np.random.default_rng([size, again, len(policy)])
    made = []
    for _ in range(runs):
        latency = 40 * read * noise.uniform(0.95, 1.05, QUERIES)
        counters = {
            "pages_read": read.astype(np.uint64),
            "bytes_read": (4096 * read).astype(np.uint64),
            "bytes_used": (1000 * read).astype(np.uint64),
            "hops": np.ceil(read / 4).astype(np.uint64),
            "distances": (6 * read).astype(np.uint64),
            "latency_us": latency.astype(np.float32),
        }
        made.append(Run(hits.reshape(QUERIES, K).sum(1), counters, float(latency.sum()) / 1e6))
    return Measurement(row_of(name, policy, size, made, again), tuple(made))


def row_of(name: str, policy: str, size: int, runs: Sequence[Run], again: bool) -> dict[str, Any]:
    latencies = np.array([run.counters["latency_us"] for run in runs], np.float64)
    recall = float(runs[0].hits.mean()) / K
    means = {name: float(values.mean()) for name, values in runs[0].counters.items() if name != "latency_us"}
    return {
        "index": name, "again": again, "L": size, "policy": policy, "entry": "navigation", "beam_width": 8, "k": K,
        "n_queries": QUERIES, "threads": 1, "inflight": 8, "repeat": len(runs), "recall": recall,
        "recall_low": recall - 0.01, "recall_high": min(recall + 0.01, 1.0), **means,
        "latency_us_mean": float(np.median(latencies.mean(1))),
        "latency_us_p50": float(np.median(np.percentile(latencies, 50, axis=1))),
        "latency_us_p99": float(np.median(np.percentile(latencies, 99, axis=1))),
        "qps": float(np.median([QUERIES / run.seconds for run in runs])),
    }  # fmt: skip


def measurements(names: Sequence[str] = ("before", "after"), factor: float = 0.5) -> list[Measurement]:
    """A sweep of indexes, each reading `factor` times the pages of the one before, and the A/A run of the first."""
    found = []
    for size, recall in zip(SIZES, RECALLS, strict=True):
        for policy in POLICIES:
            pages = size + 10 * (policy == "beam")
            found += [measurement(n, policy, size, recall, pages * factor**i) for i, n in enumerate(names)]
            found.append(measurement(f"{names[0]} again", policy, size, recall, pages, again=True))
    return found


def comparison(names: Sequence[str] = ("before", "after"), factor: float = 0.5) -> Comparison:
    """A comparison with everything that a page shows."""
    found = measurements(names, factor)
    rows = [m.row for m in found]
    own = [row for row in rows if not row["again"]]
    point = choose_point(rows)
    size = point.sizes[names[0]]
    nearest = min(SIZES, key=lambda one: abs(one - size))
    chosen = [m for m in found if (m.row["policy"], m.row["L"]) == (point.policy, nearest)]
    manifest = {
        "build_id": "ab" * 32,
        "input": {"n_vectors": 1000, "dim": 8, "dtype": "uint8", "fingerprint": "cd" * 32},
        "parameters": {"order": "star", "comment": names[0]},
        "layout": {"order": "star", "overlap_ratio": 0.2},
    }
    result = {
        "setting": {
            "k": K, "queries": QUERIES, "leave_one_out": False, "entry": "navigation", "threads": 1, "inflight": 8,
            "beam_width": 8, "repeat": 3,
        },
        "at_recall": with_intervals(compare_rows(own), found, names),
        "noise": {"floor": noise_floor(rows), "ratios": aa_ratios(rows)},
        "detail": describe(point, chosen),
        "layout": [
            {"index": name, "order": "star", "nodes_per_page": NODES, "overlap_ratio": 0.5 / (i + 1), "build_id": "ab"}
            for i, name in enumerate(names)
        ],
        "build": [
            {
                "index": name, "of": "build", "started": "2026-01-01T00:00:00+00:00", "workers": 2,
                "peak_memory_bytes": 1 << 30,
                "seconds": {"build": 60.0, "order": 2.0, "emit": 3.0},
            }
            for name in names
        ],
        "sweep": rows,
        "provenance": {
            "date": "2026-01-02T03:04:05+00:00",
            "machine": {"cpu": "a processor", "cores": 2, "memory_bytes": 1 << 34, "kernel": "Linux"},
            "software": {"python": "3.11", "indexmill": "0.1.0"},
            "commit": "release",
            "indexes": [
                {
                    "index": name, "path": name, "engine": "pread", "engine_note": None, "file_system": "ext4",
                    "bytes": 1 << 20, "manifest": manifest,
                }
                for name in names
            ],
        },
    }  # fmt: skip
    paths = pa.concat_tables(path_table(name, 8 // (i + 1)) for i, name in enumerate(names))
    return Comparison(result, found, chosen, paths)


def path_table(name: str, pages: int) -> pa.Table:
    """Queries that read `pages` pages each, two a hop, expand two nodes of each, and find the last one's first node."""
    rows: list[tuple[Any, ...]] = []
    for query in range(PATHS):
        for place in range(pages):
            page, hop = 100 * query + 7 * place, 1 + place // 2
            rows.append((query, hop, page, "read", None, float("nan"), None))
            for cell in range(NODES):
                rows.append(
                    (query, hop, page, "measure", page * NODES + cell, float(pages - place + cell), None)
                )
            for cell in (0, 3):
                rows.append(
                    (query, hop, page, "expand", page * NODES + cell, float(pages - place + cell), None)
                )
        last = (100 * query + 7 * (pages - 1)) * NODES
        rows.append((query, None, last // NODES, "result", last, 1.0, True))
        rows.append((query, None, last // NODES, "result", last + 1, 1.5, False))
    columns = list(zip(*rows, strict=True))
    types = {
        "query": pa.uint32(), "hop": pa.uint32(), "page": pa.uint64(), "kind": pa.string(), "slot": pa.uint32(),
        "distance": pa.float32(), "right": pa.bool_(),
    }  # fmt: skip
    arrays = {key: pa.array(values, kind) for (key, kind), values in zip(types.items(), columns, strict=True)}
    return pa.table({"index": pa.repeat(name, len(rows)).dictionary_encode(), **arrays})
