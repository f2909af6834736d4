"""The first 100,000 embeddings of 768 floats through `serve-builds`, beside faiss's HNSW on the same threads.

Both have the contract's default parameters, and are searched by faiss. Seconds of the service are those from a request
to its result, with a directory as object storage; of faiss, those of its insertions alone. They are measured in turns.
A second part has a longer list, by which both compare more, and measures no seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.benchmark import PAGE, ROUNDS_OPTION, Benchmark, Page, Run, Target
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.process import module, told
from indexmill.jobs.bench.serve.client import Service

ROUNDS = 3
ROWS = 100_000
M, EF_CONSTRUCTION, LONGER = 16, 100, 200
LIST_SIZES = (16, 24, 32, 48, 64, 100, 150, 200, 300)
#: Recalls at which distances are compared.
RECALLS = (0.9, 0.95, 0.98)
_CONTAINER = "blobs"


def builds(run: Run) -> dict[str, Any]:
    """Build by both in turns; return their seconds, and recall and distances of searches."""
    folder, setting = _begun(run, EF_CONSTRUCTION)
    base, rows, theirs = run.sets["embed768"].base, setting["rows"], folder / "peer.faiss"
    seconds: dict[str, list[float]] = {"ours": [], "faiss": []}
    with Service(folder, folder / "work") as service:
        service.build(_request(folder, base, min(rows, 5_000), "warm"))  # machine code is in its cache then
        for number in range(run.options.rounds or ROUNDS):
            seconds["ours"].append(service.build(_request(folder, base, rows, f"round-{number}")))
            seconds["faiss"].append(_peer("build", {**setting, "out": str(theirs)})["seconds"])
    searches = _searches(setting, {"ours": folder / _CONTAINER / "round-0.faiss", "faiss": theirs})
    ratios = [ours / peer for ours, peer in zip(seconds["ours"], seconds["faiss"], strict=True)]
    distances = {
        f"{recall:.2f}": _at(searches["ours"], recall) / _at(searches["faiss"], recall) for recall in RECALLS
    }
    shutil.rmtree(folder)
    return {
        "rows": rows, "dim": setting["dim"], "seconds": seconds, "ratio": median(ratios), "distances": distances,
        "searches": searches,
    }  # fmt: skip


def longer(run: Run) -> dict[str, Any]:
    """Build by both with a longer list; return recall and distances of searches."""
    folder, setting = _begun(run, LONGER)
    peer = folder / "peer.faiss"
    with Service(folder, folder / "work") as service:
        service.build(_request(folder, run.sets["embed768"].base, setting["rows"], "longer", LONGER))
    _peer("build", {**setting, "out": str(peer)})
    searches = _searches(setting, {"ours": folder / _CONTAINER / "longer.faiss", "faiss": peer})
    shutil.rmtree(folder)
    pairs = zip(searches["ours"], searches["faiss"], strict=True)
    below = max(theirs["recall"] - ours["recall"] for ours, theirs in pairs)
    return {
        "ef_construction": LONGER, "rows": setting["rows"], "dim": setting["dim"], "searches": searches,
        "most_below": below,
    }  # fmt: skip


def _begun(run: Run, ef_construction: int) -> tuple[Path, dict[str, Any]]:
    """Return an empty folder with a container, and what the peer is told."""
    data, folder = run.sets["embed768"], run.out / "serve"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / _CONTAINER).mkdir(parents=True)
    rows, dim = read_bin(data.base)[:ROWS].shape
    return folder, {
        "base": str(data.base), "query": str(data.query), "rows": rows, "dim": dim, "m": M,
        "ef_construction": ef_construction, "threads": THREADS, "list_sizes": LIST_SIZES,
    }  # fmt: skip


def _searches(setting: dict[str, Any], indexes: dict[str, Path]) -> dict[str, list[dict[str, float]]]:
    """Return what faiss finds in each of some files."""
    return {
        name: _peer("search", {**setting, "index": str(path)})["searches"] for name, path in indexes.items()
    }


def _peer(what: str, setting: dict[str, Any]) -> dict[str, Any]:
    return told(module(sys.executable, "serve.peer", what, json.dumps(setting)))


def _request(
    folder: Path, base: Path, rows: int, name: str, ef_construction: int = EF_CONSTRUCTION
) -> dict[str, Any]:
    """Write the objects of a build; return its request."""
    vectors = read_bin(base)[:rows]
    with open(folder / _CONTAINER / f"{name}.knnvec", "wb") as file:
        for first in range(0, rows, 10_000):
            file.write(np.ascontiguousarray(vectors[first : first + 10_000], "<f4").data)
        os.fsync(file.fileno())  # storage has its objects before it is asked for a build of them
    np.arange(rows, dtype="<i4").tofile(folder / _CONTAINER / f"{name}.knndid")
    return {
        "container_name": _CONTAINER, "vector_path": f"{name}.knnvec", "doc_id_path": f"{name}.knndid",
        "dimension": vectors.shape[1], "doc_count": rows,
        "index_parameters": {"algorithm_parameters": {"m": M, "ef_construction": ef_construction}},
    }  # fmt: skip


def _at(searches: list[dict[str, float]], recall: float) -> float:
    """Return the distances of a query at a recall, between list sizes; those of the nearest where none has it."""
    recalls = [one["recall"] for one in searches]
    return float(np.interp(recall, recalls, [one["distances"] for one in searches]))


BENCHMARK = Benchmark[Run](
    "serve",
    {"builds": builds, "longer": longer},
    (
        Target("seconds of a build, service / faiss", "builds.ratio", "<=", 0.33, "x"),
        Target("distances at recall@10 0.95, service / faiss", "builds.distances['0.95']", "<=", 1.0, "x"),
    ),
    sets=("embed768",),
    parameters={"threads": THREADS, "m": M, "ef_construction": EF_CONSTRUCTION},
    peers=("faiss-cpu",),
    pages=(Page("tables", PAGE, "serve"), Page("guide", "docs/guides/serve-builds.md", "serve")),
    options=ROUNDS_OPTION,
)

if __name__ == "__main__":
    BENCHMARK.main()
