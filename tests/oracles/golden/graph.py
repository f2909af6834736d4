"""The contents of the golden index: sums and products, no random numbers, so that they never change.

`write_golden` writes them in today's format; ``tests/golden/v1_0`` holds what version 1.0 wrote, which had no
navigation graph, ``v1_1`` what 1.1 wrote, which had no generations, and ``v1_2`` what 1.2 wrote, which did not say how
an index was laid out again. A change of the format adds a directory beside the old ones:
``python -m tests.oracles.golden.graph tests/golden/v1_3``, ``... tests/golden/v1_3_rotated rotated``,
``... tests/golden/v2_0_kept kept``, ``... tests/golden/v2_0_on_page on_page``,
``... tests/golden/v3_0_deleted deleted``, and ``tests.oracles.golden.lsh tests/golden/v1_3_lsh``.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from indexmill.formats.graph.codes import Codebook, write_codes
from indexmill.formats.graph.entries import EntryVertices, write_entries
from indexmill.formats.graph.file import write_graph
from indexmill.formats.graph.navigation import NAVIGATION_NAME, Navigation, write_navigation
from indexmill.formats.graph.nodes import NodeBlock, NodeFormat
from indexmill.formats.index.deleted import next_generation
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import Manifest, seal_files, write_manifest
from indexmill.formats.index.vectors import VECTORS_NAME, RowFormat, write_vectors
from indexmill.formats.kinds import KINDS

N, DIM, R = 11, 5, 3
NODE_FORMAT = NodeFormat(DIM + 1, "sq8", R)  # inner product: one more dimension
MAX_NORM = 12.5

_slots = np.arange(N)
NODES = NodeBlock(
    ((_slots[:, None] * 37 + np.arange(DIM + 1) * 11) % 256).astype(np.uint8),
    ((_slots[:, None] + np.array([1, 3, 7])) % N).astype(np.uint32),
    (_slots % 3 + 1).astype(np.uint32),
)
SCALE = (np.arange(DIM + 1, dtype=np.float32) / 4 - 8, np.full(DIM + 1, 0.0625, np.float32))
#: Vectors within half a step of what nodes code.
EXACT = SCALE[0] + SCALE[1] * (
    NODES.vectors + ((_slots[:, None] + np.arange(DIM + 1)) % 7 - 3).astype(np.float32) / 8
)
CODEBOOK = Codebook(
    np.arange(4 * (DIM + 1), dtype=np.float32).reshape(4, -1) / 8, np.array([0, 2, 6], np.uint32)
)
#: Components change places, and some their signs.
ROTATION = np.eye(DIM + 1, dtype=np.float32)[[2, 0, 3, 5, 1, 4]] * np.array([1, -1, 1, 1, -1, 1], np.float32)
CODES = np.stack([_slots % 4, _slots // 4], axis=1).astype(np.uint8)
#: Nodes that hold the codes of their neighbours.
ON_PAGE_FORMAT = replace(NODE_FORMAT, code_bytes=CODES.shape[1])
ON_PAGE_NODES = replace(NODES, codes=CODES[NODES.neighbours])
ENTRIES = EntryVertices(
    6, np.array([[-8, -4, 0, 4, 8, 1], [2, 1, 0.5, 0.25, 0.125, 0]], np.float32), np.array([9, 2], np.uint32)
)
NAVIGATION = Navigation(
    np.array([1, 4, 10], np.uint32), np.array([0, 2, 2, 3], np.uint32), np.array([2, 1, 0], np.uint32), 2, 2
)
VECTOR_IDS = ((_slots * 4 + 1) % N).astype(np.uint32)
GENERATION, PARENTS = 3, ("cd" * 32,)
LAYOUT = {
    "order": "polish",
    "parameters": {"rounds": 12, "least_gain": 0.002},
    "work": 11,
    "work_limit": None,
    "choice": {
        "effort": "low",
        "sample_limited_by": "index",
        "skipped": [{"order": "gorder", "memory": 7}],
        "candidates": [
            {"order": "current", "pages_read": 1.5, "more_than_best": [0.0, 0.25], "exhausted": False}
        ],
    },
}
DRIFT = {"added_share": 0.25, "advice": "größer"}
DELETED = np.array([0, 4, 10], np.uint32)
USER_IDS = pa.array([f"id-{'é' * (s % 4)}{s}" if s else "" for s in range(N)], pa.large_string())


def write_golden(
    directory: Path,
    rotated: bool = False,
    kept: bool = False,
    on_page: bool = False,
    deleted: bool = False,
) -> None:
    """Write the golden index in today's format; rotated codes and all after it are what it may have besides."""
    codebook = replace(CODEBOOK, rotation=ROTATION) if rotated else CODEBOOK
    node_format, nodes = (ON_PAGE_FORMAT, ON_PAGE_NODES) if on_page else (NODE_FORMAT, NODES)
    directory.mkdir(parents=True, exist_ok=True)
    write_graph(directory / "graph.imx", node_format, N, "ip", [nodes], MAX_NORM, SCALE)
    write_codes(directory / "codes.imx", codebook, N, [CODES])
    write_entries(directory / "entries.imx", ENTRIES, N)
    write_ids(directory / "ids.imx", VECTOR_IDS, USER_IDS)
    optional = [] if on_page else [NAVIGATION_NAME]
    if not on_page:
        write_navigation(directory / NAVIGATION_NAME, NAVIGATION, N)
    if kept:
        write_vectors(directory / VECTORS_NAME, RowFormat(DIM + 1, "float32"), N, "ip", EXACT, MAX_NORM)
        optional.append(VECTORS_NAME)
    marks = {"codes_on_page": True} if on_page else {}
    build_id, files = seal_files(directory, [*KINDS["graph"].required, *optional])
    manifest = Manifest(
        kind="graph",
        build_id=build_id,
        generation=GENERATION,
        parents=PARENTS,
        drift=DRIFT,
        parameters={"max_degree": R, "metric": "ip", "note": "golden, größer", **marks},
        input={"n_vectors": N, "dim": DIM, "dtype": "float32", "fingerprint": "ab" * 32},
        software={"indexmill": "0.1.0"},
        layout=LAYOUT,
        graph={"mean_degree": 1.9090909090909092, "min_degree": 1, "max_degree": 3},
        certificate={"recall_at_10": 1.0},
        files=files,
    )
    if deleted:
        manifest = next_generation(directory, manifest, manifest.generation + 1, N, DELETED)
    write_manifest(directory, manifest)


if __name__ == "__main__":
    write_golden(Path(sys.argv[1]), **dict.fromkeys(sys.argv[2:], True))
