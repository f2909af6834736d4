"""Appends and merges beside a build of everything: seconds, distances, recall, page reads and drift.

    python -m indexmill.jobs.bench.append --data DIR --out DIR  # prints a table; DIR/append.json is the record
    python -m indexmill.jobs.bench.append --data DIR --out DIR --keep  # stores the record in the repository, too

The first ROWS vectors are indexed in one build, and again as a base to which the last ones are appended, at once
or in steps, or merged. Recall and page reads are those of the second half of the queries, at equal list sizes. In the
rows called ``shift`` the vectors are those of two k-means clusters, one after the other.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import indexmill
from indexmill.builders.cluster.kmeans import fit_centroids
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.nearest.products import nearest_points
from indexmill.jobs.bench.common import machine, record
from indexmill.jobs.bench.common.dataset import Dataset, K, count_hits, read_bin
from indexmill.jobs.bench.programs.workspace import (
    ALPHA,
    BUILD_LIST_SIZE,
    MAX_DEGREE,
    PQ_BYTES,
    SEED,
    THREADS,
)

ROWS = 50_000
SIZES = (50, 100)
PARAMETERS = {
    "R": MAX_DEGREE,
    "L": BUILD_LIST_SIZE,
    "alpha": ALPHA,
    "pq_bytes": PQ_BYTES,
    "seed": SEED,
    "workers": THREADS,
    "force": True,
}
#: (share added, steps, whether merged, whether the added come from elsewhere)
CASES = (
    (0.01, 1, False, False),
    (0.05, 1, False, False),
    (0.1, 1, False, False),
    (0.1, 10, False, False),
    (0.1, 1, True, False),
    (0.2, 1, False, False),
    (0.5, 1, False, False),
    (0.5, 10, False, False),
    (0.5, 1, True, False),
    (0.99, 1, False, False),
    (0.2, 1, False, True),
    (0.5, 1, False, True),
)


@dataclass(frozen=True)
class Bench:
    """Queries, and where the indexes of one set of vectors go."""

    out: Path
    queries: Any

    def case(self, vectors: Any, truth: Any, share: float, steps: int, merged: bool) -> dict[str, Any]:
        """Build the base, add the rest, and measure what came of it."""
        added = round(len(vectors) * share)
        n, index = len(vectors) - added, self.out / "index"
        shutil.rmtree(index, ignore_errors=True)
        shutil.copytree(self._base(vectors[:n], f"base-{n}"), index)
        small = self._base(vectors[n:], f"small-{added}") if merged else None
        seconds = cpu = distances = 0.0
        for step in range(steps):
            first, last = n + added * step // steps, n + added * (step + 1) // steps
            began, began_cpu = time.perf_counter(), time.process_time()
            if small is not None:
                indexmill.merge(index, small, workers=THREADS)
            else:
                indexmill.append(index, vectors[first:last], workers=THREADS)
            seconds += time.perf_counter() - began
            cpu += time.process_time() - began_cpu
            distances += json.loads((index / "run.json").read_text())["distances"]
        found = {"seconds": round(seconds, 2), "cpu_s": round(cpu, 2), "distances": int(distances)}
        return found | self.measure(index, vectors, truth)

    def _base(self, vectors: Any, name: str) -> Path:
        """Build an index, unless another case did."""
        path = self.out / name
        if not path.exists():
            indexmill.build(vectors, path, **PARAMETERS)
        return path

    def build(self, vectors: Any, truth: Any) -> dict[str, Any]:
        """Build everything at once and measure it."""
        began, began_cpu = time.perf_counter(), time.process_time()
        indexmill.build(vectors, self.out / "whole", **PARAMETERS)
        found: dict[str, Any] = {"seconds": round(time.perf_counter() - began, 2)}
        found["cpu_s"] = round(time.process_time() - began_cpu, 2)
        return found | self.measure(self.out / "whole", vectors, truth)

    def measure(self, index: Path, vectors: Any, truth: Any) -> dict[str, Any]:
        """Search with the second half of the queries; the search repeats bit for bit."""
        manifest = json.loads((index / "manifest.json").read_text())
        opened = indexmill.open(index)
        rows = []
        for size in SIZES:
            result = opened.search(self.queries, K, L=size, threads=THREADS, deterministic=True)
            hits = count_hits(result.vector_ids, vectors, self.queries, truth)
            pages = result.counters["pages_read"]
            rows.append(
                {
                    "L": size,
                    "recall": round(float(hits.mean()) / K, 5),
                    "pages_read": round(float(pages.mean()), 3),
                }
            )
        return {"search": rows, "layout": manifest["layout"], "drift": manifest["drift"]}


def main() -> None:
    arguments = _arguments()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    data = Dataset(arguments.data.resolve())
    everything = np.asarray(read_bin(data.base))
    queries = np.asarray(read_bin(data.query))[data.halves()[0] :]
    found: dict[str, Any] = {
        "benchmark": "append",
        "data": {"name": data.folder.name, "n_vectors": arguments.rows, "queries": len(queries)},
        "machine": machine.machine_facts(),
        "versions": machine.software_versions(),
        "parameters": PARAMETERS,
        "parts": {},
    }
    indexmill.build(
        everything[:2000], out / "warm-up", **PARAMETERS
    )  # kernels are loaded once, whoever is first
    indexmill.append(out / "warm-up", everything[2000:2100])
    sets = {False: everything[: arguments.rows], True: shifted(everything, arguments.rows)}
    for shift, vectors in sets.items():
        _, truth = exact_neighbours(vectors, queries, K, THREADS)
        folder = out / ("shift" if shift else "plain")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        bench = Bench(folder, queries)
        parts = [(f"build{' shift' * shift}", bench.build)]
        for share, steps, merged, elsewhere in CASES:
            if elsewhere == shift:
                name = f"{'merge' if merged else 'append'} {share:.0%}{f' in {steps}' * (steps > 1)}{' shift' * shift}"
                how = (share, steps, merged)
                parts.append((name, lambda v, t, how=how, bench=bench: bench.case(v, t, *how)))  # type: ignore[misc]
        for name, measure in parts:
            found["parts"][name] = record.start_part() | measure(vectors, truth)
            record.save(found, out / "append.json")
            print(f"{name}: {found['parts'][name]['seconds']} s", file=sys.stderr, flush=True)
    print(table(found))
    if arguments.keep:
        print(record.keep(out / "append.json"))


def shifted(vectors: Any, rows: int) -> Any:
    """Return `rows` vectors, the first half from one of two clusters, the second from the other."""
    centroids = fit_centroids(vectors[:100_000], 2, SEED)
    cluster = nearest_points(vectors, centroids, 1, THREADS)[:, 0]
    return np.concatenate([vectors[cluster == c][: rows // 2] for c in (0, 1)])


def table(found: dict[str, Any]) -> str:
    """Return the record as the table of docs/guides/append.md."""
    lines = [
        "| | seconds | CPU s | distances | recall@10 at L = 50, 100 | page reads at L = 50, 100 |"
        " overlap | code error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, part in found["parts"].items():
        recall, pages = (
            ", ".join(f"{row[key]:.{digits}f}" for row in part["search"])
            for key, digits in (("recall", 4), ("pages_read", 1))
        )
        drift = part["drift"] or {}
        distances = f"{part['distances'] / 1e6:.1f} M" if "distances" in part else ""
        ratio = drift.get("code_error_ratio")
        lines.append(
            f"| {name} | {part['seconds']:.1f} | {part['cpu_s']:.1f} | {distances} | {recall} | {pages} "
            f"| {part['layout']['overlap_ratio']:.3f} | {'' if ratio is None else f'{ratio:.2f}'} |"
        )
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with base.u8bin and query.u8bin")
    parser.add_argument("--out", type=Path, required=True, help="folder for indexes and append.json")
    parser.add_argument("--rows", type=int, default=ROWS, help="vectors of the whole set")
    parser.add_argument("--keep", action="store_true", help="store the record in the repository")
    return parser.parse_args()


if __name__ == "__main__":
    main()
