"""Peak memory of laying out: so many bytes a vertex for an order, and nothing else grows with the index."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.oracles.files.verify import verify_index
from tests.support.indexes.append import build, points
from tests.support.processes.memory import peak_growth

import indexmill
from indexmill.formats.errors import BudgetError
from indexmill.pipeline.mill.peak import has_proportional_sizes

pytestmark = pytest.mark.memory

linux = pytest.mark.skipif(not has_proportional_sizes(), reason="needs Linux's smaps_rollup")

GRAPH = """
import numpy as np
from indexmill.layout.star import star_order

n, R = 400_000, 6
star_order(np.zeros((8, R), np.uint32), np.zeros(8, np.int32), 3, np.empty(1, np.uint32))
neighbours = np.lib.format.open_memmap(path / "neighbours.npy", "w+", np.uint32, (n, R))
degrees = np.lib.format.open_memmap(path / "degrees.npy", "w+", np.int32, (n,))
sources = np.lib.format.open_memmap(path / "sources.npy", "w+", np.uint32, (n * R,))
rng = np.random.default_rng(1)
for first in range(0, n, 10_000):
    neighbours[first : first + 10_000] = rng.integers(n, size=(10_000, R))
degrees[:] = R
"""


@linux
def test_star_packing_takes_20_bytes_a_vertex() -> None:
    grown = peak_growth(GRAPH, "order = star_order(neighbours, degrees, 5, sources)")
    assert 16 * 400_000 < grown < 23 * 400_000


GROUPS = """
import numpy as np
from functools import partial
from indexmill.formats.pagefile.mapped import scratch_array
from indexmill.layout.agglomerative.order import AgglomerativeOrder
from indexmill.layout.order import Adjacency, Work

n, R, dim = 400_000, 12, 16
neighbours = np.lib.format.open_memmap(path / "neighbours.npy", "w+", np.uint32, (n, R))
degrees = np.lib.format.open_memmap(path / "degrees.npy", "w+", np.int32, (n,))
points = np.lib.format.open_memmap(path / "points.npy", "w+", np.uint8, (n, dim))
rng = np.random.default_rng(1)
for first in range(0, n, 10_000):
    rows = slice(first, first + 10_000)
    near = np.arange(first, first + 10_000)[:, None] + rng.integers(-20, 21, (10_000, R))
    neighbours[rows] = np.clip(near, 0, n - 1)
    points[rows] = rng.integers(0, 256, (10_000, dim))
degrees[:] = R

def fit(lists, work):
    rows = slice(len(lists))
    return AgglomerativeOrder().fit(
        Adjacency(lists, degrees[rows]), points[rows], 15, 1, work=work, scratch=partial(scratch_array, path)
    )

fit(np.minimum(neighbours[:3000], 2999), Work())
"""


@linux
@pytest.mark.parametrize(("limit", "a_vertex"), [("None", 24), ("1", 36)])
def test_groups_take_24_bytes_a_vertex_and_36_where_no_work_is_left(limit: str, a_vertex: int) -> None:
    grown = peak_growth(GROUPS, f"order = fit(neighbours, Work({limit}))")
    assert 0.75 * a_vertex * 400_000 < grown < (a_vertex + 2) * 400_000


WRITTEN = """
import numpy as np
from pathlib import Path
from indexmill.formats.graph.codes import Codebook, write_codes
from indexmill.formats.graph.entries import EntryVertices, write_entries
from indexmill.formats.graph.file import NodeBlock, NodeFormat, write_graph
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import Manifest, seal_files, write_manifest
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.relayout.run import LayoutRequest, run_layout

n, dim, R = 120_000, 200, 24
index = path / "ix"
index.mkdir()
rng = np.random.default_rng(1)

def nodes():
    for first in range(0, n, 10_000):
        vectors = rng.integers(256, size=(10_000, dim), dtype=np.uint8)
        yield NodeBlock(vectors, rng.integers(n, size=(10_000, R)).astype(np.uint32), np.full(10_000, R))

write_graph(index / "graph.imx", NodeFormat(dim, "uint8", R), n, "l2", nodes())
codebook = Codebook(np.zeros((256, dim), np.float32), np.linspace(0, dim, 21).astype(np.uint32))
codes = (rng.integers(256, size=(10_000, 20), dtype=np.uint8) for _ in range(12))
write_codes(index / "codes.imx", codebook, n, codes)
entries = EntryVertices(0, np.zeros((4, dim), np.float32), np.arange(4, dtype=np.uint32))
write_entries(index / "entries.imx", entries, n)
write_ids(index / "ids.imx", rng.permutation(n).astype(np.uint32), None)
build_id, files = seal_files(index, [p.name for p in index.iterdir()])
facts = {"n_vectors": n, "dim": dim, "dtype": "uint8", "fingerprint": "0" * 64}
write_manifest(index, Manifest("graph", build_id, {}, facts, {}, None, files))
run_layout(index, LayoutRequest("random"), RunOptions(workers=1))  # loads the modules of a run
"""


@linux
def test_nodes_and_codes_pass_through_in_pieces() -> None:
    grown = peak_growth(WRITTEN, "run_layout(index, LayoutRequest('identity'), RunOptions(workers=1))")
    nodes = 120_000 * (200 + 4 + 4 * 24 + 20)
    assert nodes > 36_000_000
    assert grown < 24_000_000  # buffers that do not grow with it, and 4 bytes a vertex a few times


def test_the_least_memory_it_asks_for_is_enough(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", points(500, 1), order="identity", ids=np.arange(500) * 7)
    with pytest.raises(BudgetError) as refusal:
        indexmill.lay_out(index, "star", memory=1)
    found = re.search(r"give at least ([\d,]+)", str(refusal.value))
    assert found is not None
    indexmill.lay_out(index, "star", memory=int(found[1].replace(",", "")))
    assert verify_index(index) == []
