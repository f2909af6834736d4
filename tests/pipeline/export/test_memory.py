"""Peak memory of exports: blocks of a few MiB, and only the ids grow with the index; of compactions, their budget."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.export import LISTS_WRITTEN
from tests.support.processes.memory import least_budget, needs_sizes, peak_growth, peak_of_command

import indexmill
from indexmill.formats.exports.lists import BLOCK_BYTES
from indexmill.pipeline.mill.peak import has_proportional_sizes

pytestmark = pytest.mark.memory

WRITTEN = """
import numpy as np
import pyarrow as pa
import indexmill
from indexmill.formats.graph.codes import Codebook, write_codes
from indexmill.formats.graph.entries import EntryVertices, write_entries
from indexmill.formats.graph.file import NodeBlock, NodeFormat, write_graph
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import Manifest, seal_files, write_manifest

dim, R = 200, 24
rng = np.random.default_rng(1)

def write(index, n):
    index.mkdir()
    starts = range(0, n, 10_000)
    nodes = (
        NodeBlock(
            rng.integers(256, size=(10_000, dim), dtype=np.uint8),
            rng.integers(n, size=(10_000, R)).astype(np.uint32),
            np.full(10_000, R),
        )
        for _ in starts
    )
    write_graph(index / "graph.imx", NodeFormat(dim, "uint8", R), n, "l2", nodes)
    codebook = Codebook(np.zeros((256, dim), np.float32), np.linspace(0, dim, 21).astype(np.uint32))
    codes = (rng.integers(256, size=(10_000, 20), dtype=np.uint8) for _ in starts)
    write_codes(index / "codes.imx", codebook, n, codes)
    entries = EntryVertices(0, np.zeros((4, dim), np.float32), np.arange(4, dtype=np.uint32))
    write_entries(index / "entries.imx", entries, n)
    write_ids(index / "ids.imx", rng.permutation(n).astype(np.uint32), pa.array(rng.permutation(n)))
    build_id, files = seal_files(index, [p.name for p in index.iterdir()])
    facts = {"n_vectors": n, "dim": dim, "dtype": "uint8", "fingerprint": "0" * 64}
    write_manifest(index, Manifest("graph", build_id, {}, facts, {}, None, files))

def export(name):
    indexmill.export(path / name, "faiss", path / f"{name}-faiss")

write(path / "warm", 10_000)
export("warm")  # loads the modules of an export, and grows buffers that stay
write(path / "ix", N)
"""


@pytest.mark.skipif(not has_proportional_sizes(), reason="needs Linux's smaps_rollup")
def test_nodes_and_codes_pass_through_in_pieces() -> None:
    n = 120_000
    grown = peak_growth(WRITTEN.replace("N)", f"{n})"), "export('ix')")
    assert n * 4 * (200 + 24) > 100_000_000  # bytes of the file that is written
    assert grown < 24_000_000  # buffers that do not grow with it, and 12 bytes a vector a few times


@pytest.mark.skipif(not has_proportional_sizes(), reason="needs Linux's smaps_rollup")
def test_lists_pass_through_in_pieces() -> None:
    n = 300_000
    grown = peak_growth(LISTS_WRITTEN.replace("N)", f"{n})"), "export('ix')")
    assert n * (200 + 4) > 60_000_000  # bytes of the lists
    # Ids and their order, twice while they are read, and a block beside the one that it is made of. Most runs show
    # half of it: the peak lasts less than a sample.
    assert grown < 2 * 12 * n + 2 * BLOCK_BYTES


@needs_sizes
@pytest.mark.parametrize(
    ("target", "n", "how"),
    [
        ("svs", 5_000, {"R": 8, "L": 8, "pq_bytes": 4, "order": "identity", "navigation": 0}),
        ("faiss-ivf", 50_000, {"kind": "ivf", "lists": 2000, "copies": 2}),
        ("faiss-lsh", 50_000, {"kind": "lsh", "n_tables": 3, "n_radii": 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_export_with_deletions_stays_within_the_smallest_budget_its_compaction_accepts(
    tmp_path: Path, target: str, n: int, how: dict[str, Any]
) -> None:
    vectors = np.random.default_rng(1).integers(0, 256, (n, 16), dtype=np.uint8)
    ids = [f"{i:016000}" for i in range(n)] if target == "svs" else None
    indexmill.build(vectors, tmp_path / "ix", ids=ids, workers=1, **how)
    indexmill.delete(tmp_path / "ix", np.arange(0, n, 100), by="vector")
    budget = least_budget(partial(indexmill.export, tmp_path / "ix", target, tmp_path / "out"))
    command = ("export", tmp_path / "ix", "--to", target, "--out", tmp_path / "out")
    assert 0 < peak_of_command(budget, *command) <= budget
