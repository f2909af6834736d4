"""Made ``diskann.zip``: small indexes of diskannpy 0.7.0, and what it answers. Run in an environment of its own.

python make_diskann.py FOLDER
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import diskannpy
import numpy as np

N, DIM, QUERIES, K = 500, 16, 20, 10
#: Enough for both programs to look at every vertex.
COMPLEXITY = 400


def main() -> None:
    out = Path(sys.argv[1])
    rng = np.random.default_rng(7)
    centres = rng.normal(size=(10, DIM)) * 3
    rows = centres[rng.integers(10, size=N + QUERIES)] + rng.normal(size=(N + QUERIES, DIM))
    lengths = rng.uniform(0.3, 2, size=(N + QUERIES, 1))
    for name, dtype, metric in (
        ("float32", "float32", "l2"),
        ("uint8", "uint8", "l2"),
        ("int8", "int8", "l2"),
        ("product", "float32", "mips"),
    ):
        folder = begin(out / name)
        vectors = typed(rows * (lengths if metric == "mips" else 1), dtype)
        diskannpy.build_disk_index(
            data=vectors[:N], distance_metric=metric, index_directory=str(folder), complexity=40, graph_degree=8,
            search_memory_maximum=8.5 * N / 2**30, build_memory_maximum=1, num_threads=2, index_prefix="ann",
        )  # fmt: skip
        index = diskannpy.StaticDiskIndex(str(folder), 2, num_nodes_to_cache=0, cache_mechanism=0)
        finish(folder, index.batch_search(vectors[N:], K, COMPLEXITY, num_threads=2, beam_width=2), vectors)
    folder = begin(out / "memory")
    vectors = typed(rows, "float32")
    diskannpy.build_memory_index(
        data=vectors[:N], distance_metric="cosine", index_directory=str(folder), complexity=40, graph_degree=8,
        num_threads=2, index_prefix="ann",
    )  # fmt: skip
    memory = diskannpy.StaticMemoryIndex(str(folder), 2, initial_search_complexity=COMPLEXITY)
    finish(folder, memory.batch_search(vectors[N:], K, COMPLEXITY, num_threads=2), vectors)
    with zipfile.ZipFile(
        Path(__file__).with_name("diskann.zip"), "w", zipfile.ZIP_DEFLATED, compresslevel=9
    ) as kept:
        for path in sorted(path for path in out.rglob("*") if path.is_file()):
            kept.write(path, path.relative_to(out))


def typed(rows: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "float32":
        return (np.rint(rows * 16) / 16).astype(np.float32)  # few digits, which zip shortens
    info = np.iinfo(dtype)
    return np.clip(np.rint(rows * 12 + (info.max + info.min + 1) // 2), info.min, info.max).astype(dtype)


def begin(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def finish(folder: Path, found: diskannpy.QueryResponseBatch, vectors: np.ndarray) -> None:
    """Keep vectors, queries and answers; delete what no search reads."""
    for name in ("ann_vectors.bin", "ann_mem.index.data", "ann_sample_data.bin", "ann_sample_ids.bin"):
        (folder / name).unlink(missing_ok=True)
    np.savez(
        folder / "answers.npz", vectors=vectors[:N], queries=vectors[N:],
        ids=found.identifiers.astype(np.int64), distances=found.distances,
    )  # fmt: skip


main()
