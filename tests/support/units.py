"""Write kernels' results, small indexes and answers to a directory, computed by the unit that INDEXMILL_ISA names.

python -m tests.support.units DIRECTORY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.indexes.builds import build, clustered
from tests.support.indexes.ivf import build_lists

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.nearest.panels import all_scores, in_panels, nearest_in_panels
from indexmill.formats.kernel import kernel
from indexmill.reader import kernels, native
from indexmill.reader.choices import POLICIES
from indexmill.reader.index import Index
from indexmill.reader.ivf import IvfIndex

#: Graphs in the directory: of bytes, of floats, of float16, and one whose build searched by codes.
INDEXES = ("index", "floats", "halves", "coded")


@kernel
def measure(rows: Any, ids: Any, squares: Any, products: Any) -> None:
    """Measure the first row from all of them."""
    kernels.squared_distances(rows, 0, rows, ids, ids.size, squares)
    kernels.inner_products(rows, 0, rows, ids, ids.size, products)


def write(out: Path) -> None:
    """Write the unit, distances of each type, products of many shapes, and indexes of bytes and floats."""
    found = {}
    for dtype in ("float32", "float16", "uint8", "int8"):
        rows, distances = clustered(50, 333, dtype), np.empty((2, 50), np.float32)
        bits = rows.view(np.uint16) if dtype == "float16" else rows
        measure(bits, np.arange(50, dtype=np.uint32), *distances)
        found[dtype] = distances
    for dim in (1, 60, 68, 100, 768):
        rows = clustered(150, dim, "uint8")
        panels = in_panels(rows[:70])
        scores = np.empty((len(rows), panels.offsets.size), np.int32)
        all_scores(rows, np.arange(len(rows)), panels.bytes, panels.offsets, scores)
        found[f"scores-{dim}"] = scores
        found[f"nearest-{dim}"] = nearest_in_panels(rows, panels, 5, 1)
    found["truth"], found["truth-distances"] = exact_neighbours(clustered(700, 101), clustered(150, 101), 9)
    vectors = clustered(
        1100, 68, "uint8"
    )  # more than a leaf; without instructions for floats, codes take long
    index = Index(
        build(out / "index", vectors, builder="partition", order="identity", sample_vectors=300, pq_bytes=2)
    )
    # Leaves and leaders by byte codes, lists and codes by floats; and searches of a build by codes.
    floats = {"order": "identity", "sample_vectors": 300, "pq_bytes": 2}
    long = clustered(1100, 24)
    build(out / "floats", long, builder="partition", node_dtype="sq8", **floats)
    build(out / "halves", long.astype(np.float16), builder="partition", **floats)
    build(out / "coded", long[:400], builder="vamana", build_codes="sq8", **floats)
    lists = IvfIndex(
        build_lists(out / "lists", vectors[:300], lists=3, batch_vectors=300, codec="pq", pq_bytes=32)
    )
    answers = {policy: index.search(vectors[::20], 10, L=20, policy=policy) for policy in POLICIES}
    answers["lists"] = lists.search(vectors[::20], 10, nprobe=3)
    for name, answer in answers.items():
        found[f"slots-{name}"], found[f"answers-{name}"] = answer.slots, answer.scores
    np.savez(out / "kernels.npz", **found)
    (out / "unit.json").write_text(json.dumps(native.unit()))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
