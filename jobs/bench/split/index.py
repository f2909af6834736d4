"""The index that joins are divided over, and the work of a join on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.ivf.index import IvfFiles
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import K, read_bin
from indexmill.jobs.bench.programs import ours
from indexmill.pipeline.join.options import JoinOptions
from indexmill.pipeline.join.plan import plan_join
from indexmill.pipeline.join.platform import Worker

#: Vectors.
ROWS = 1_000_000


def built(space: Run, batches: int, lists: int) -> Path:
    """Return an index of equal batches, built unless it is there."""
    index = space.out / f"split-{batches}.ivf"
    base = space.out / "split.npy"
    batch = (space.rows or ROWS) // batches
    if not (index / "manifest.json").exists() or IvfFiles(index).batch_sizes() != [batch] * batches:
        np.save(base, read_bin(space.sets["sift1m"].base)[: batch * batches])
        ours.build_lists(base, index, lists, batch_vectors=batch)
        base.unlink()
    return index


def work_of(index: Path, queries: Any, nprobe: int) -> tuple[float, float]:
    """Return the MB that a join loads, and the millions of vectors that it compares."""
    unit = [Worker("unit", 1.0, 1.0, overlap=False)]
    (share,) = plan_join(queries, index, JoinOptions(K, nprobe, platform=unit)).shares
    n_bytes = sum(entry.bytes for entry in IvfFiles(index).batches) / 1e6
    return n_bytes, share.seconds - n_bytes  # the unit worker loads and compares a million a second
