"""Our side: builds and searches through the ``indexmill`` command, as a user would run them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dataset import K
from process import Usage, run_json, run_measured
from workspace import (
    ALPHA,
    BEAM_WIDTH,
    BUILD_LIST_SIZE,
    BUILD_MEMORY,
    IN_FLIGHT,
    MAX_DEGREE,
    PQ_BYTES,
    SEED,
    THREADS,
    Workspace,
    indexmill_command,
)

#: What the rows of a search keep of the reader's counters.
_KEPT = (
    "L",
    "recall",
    "qps",
    "pages_read",
    "bytes_read",
    "bytes_used",
    "hops",
    "distances",
    "latency_us_mean",
    "latency_us_p99",
)


def build(space: Workspace, base: Path, out: Path, order: str, work: Path) -> Usage:
    """Build an index of `base`, page order `order`; stages that `work` holds are not repeated."""
    return run_measured(
        [
            indexmill_command(), "build", "--input", base, "--out", out, "--kind", "graph",
            "--builder", "vamana", "-R", MAX_DEGREE, "-L", BUILD_LIST_SIZE, "--alpha", ALPHA,
            "--pq-bytes", PQ_BYTES, "--order", order, "--node-dtype", "same", "--metric", "l2",
            "--seed", SEED, "--memory", BUILD_MEMORY,
            "--workers", THREADS, "--executor", "local", "--work", work, "--force", "--json",
        ],
        space.out / f"{out.name}-build.log",
    )  # fmt: skip


def build_fresh(space: Workspace, base: Path, out: Path, order: str, work: Path) -> Usage:
    """Build with an empty `work`: every stage runs."""
    shutil.rmtree(work, ignore_errors=True)
    return build(space, base, out, order, work)


def search(
    space: Workspace,
    index: str,
    sizes: Sequence[int],
    policy: str,
    entry: str,
    first: int,
    last: int,
    inflight: int = IN_FLIGHT,
) -> list[dict[str, Any]]:
    """Search queries `first` to `last` with each list size, ascending; one row of means for each.

    Raises
    ------
    RuntimeError
        If the command fails or answers for other list sizes.
    """
    warm_up = sizes[0] - 1
    rows = run_json(
        [
            indexmill_command(), "score", space.require(space.index(index)), "--queries", space.data.query,
            "--truth", space.data.truth, "-k", K, "-L", ",".join(map(str, [warm_up, *sizes])),
            "--policy", policy, "--entry", entry, "--beam-width", BEAM_WIDTH, "--threads", THREADS,
            "--skip", first, "--first", last - first, "--engine", "io_uring", "--inflight", inflight,
            "--json",
        ]
    )  # fmt: skip
    if [row["L"] for row in rows] != [warm_up, *sizes]:
        raise RuntimeError(
            f"indexmill score: rows for L = {[row['L'] for row in rows]}, not {[warm_up, *sizes]}"
        )
    return [{name: row[name] for name in _KEPT} for row in rows[1:]]


def manifest(index: Path) -> dict[str, Any]:
    """Read an index's manifest."""
    found: dict[str, Any] = json.loads((index / "manifest.json").read_text())
    return found


def stage_seconds(index: Path) -> dict[str, float]:
    """Read the seconds of each stage from an index's run.json."""
    found: dict[str, float] = json.loads((index / "run.json").read_text())["seconds"]
    return found
