"""Compiles the kernels that many tests use, each once, before the tests run side by side.

    python -m tests.support.kernels            all, in two processes
    python -m tests.support.kernels lists      some of them, in this one

numba keeps what it compiled beside the sources. Two tests that need the same kernel at the same time would both
compile it, which takes a minute or two in all.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from tests.support.indexes.builds import build, clustered
from tests.support.indexes.ivf import build_lists, join, make_vectors
from tests.support.indexes.lsh import build_lsh

import indexmill
from indexmill.layout.portfolio import ORDERS

SMALL = {"R": 8, "L": 20, "pq_bytes": 4, "entries": 8, "sample_vectors": 300, "order": "identity"}


def graphs(folder: Path) -> None:
    """Both builders, for each type; appended to and merged."""
    for dtype in ("float32", "uint8", "float16", "int8"):
        rows = clustered(1400, 8, dtype)
        for builder in ("vamana", "partition"):
            build(folder / f"{builder}-{dtype}", rows, builder=builder, **SMALL)
        build(folder / f"shards-{dtype}", rows, shard_vectors=500, **SMALL)
        first, second = folder / f"vamana-{dtype}", folder / f"partition-{dtype}"
        indexmill.append(first, rows[:50], workers=1)
        indexmill.merge(first, second, out=folder / f"merged-{dtype}", workers=1)
    rows = clustered(1400, 8) / 9
    for metric in ("ip", "cosine"):
        build(folder / metric, rows, metric=metric, **SMALL)
        indexmill.append(folder / metric, rows[:50], workers=1)
    build(folder / "codes", rows, build_codes="sq8", passes=2, **SMALL)


def lists(folder: Path) -> None:
    """Page orders, IVF and LSH indexes."""
    for dtype in ("uint8", "float32"):
        index = build(folder / f"graph-{dtype}", clustered(400, 8, dtype), **SMALL)
        for order in ORDERS:
            indexmill.lay_out(index, order, out=folder / f"{order}-{dtype}", workers=1)
    for dtype in ("float32", "uint8", "float16", "int8"):
        rows = make_vectors(dtype, 500)
        for codec in ("flat", "pq"):
            at = folder / f"{codec}-{dtype}"
            build_lists(
                at,
                rows,
                lists=8,
                batch_vectors=300,
                codec=codec,
                **({} if codec == "flat" else {"pq_bytes": 4}),
            )
            join(at, rows[:10], folder / "r.parquet")
        build_lsh(folder / f"lsh-{dtype}", rows, n_tables=2, hash_bits=3, block_bytes=128, workers=1)


PARTS: dict[str, Callable[[Path], None]] = {"graphs": graphs, "lists": lists}


def main(names: list[str]) -> int:
    if not names:
        running = [subprocess.Popen([sys.executable, "-m", "tests.support.kernels", name]) for name in PARTS]
        return max(abs(one.wait()) for one in running)
    for name in names:
        with tempfile.TemporaryDirectory() as folder, patch("os.fsync", lambda descriptor: None):
            PARTS[name](Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
