"""Committed indexes of every format version: today's code reads them, and writes the newest to the byte."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.oracles.files.lists import read_list
from tests.oracles.files.on_page import read_on_page
from tests.oracles.files.verify import verify_index
from tests.oracles.golden import graph as golden
from tests.oracles.golden import ivf as golden_ivf
from tests.oracles.golden import lsh as golden_lsh
from tests.oracles.lsh import tables as lsh
from tests.oracles.lsh.verify import lsh_problems

from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.index.deleted import read_deleted
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.lsh.index import LshFiles
from indexmill.reader import _native
from indexmill.reader.index import Index
from indexmill.reader.ivf import IvfIndex
from indexmill.reader.lsh import LshIndex

GOLDEN = Path(__file__).parents[1] / "golden"
BUILD_IDS = {
    "v1_0": "98715c6a8c39b58ac3bd1b71f6dbe44721d3f000ef0371f3db7777e0b33a5744",
    "v1_1": "dfc0d490d44dcf453c92b0e90bca9800ca207a9d89ea3ff82fb8b117a2a7ecb7",
    "v1_2": "0245a5120f98fa7cc88fe510828c29ba066c7b76469110b7ca5ea4c8b586fb02",
    "v1_3": "1f728e0dc5882fded20f4cc1065e734d94a3e7ed3543cb1903baf8acc8326987",
}
NEWEST = GOLDEN / "v1_3"


@pytest.mark.parametrize("version", BUILD_IDS)
def test_every_version_opens_and_says_what_was_written(version: str) -> None:
    assert verify_index(GOLDEN / version) == []
    with IndexFiles(GOLDEN / version) as index:
        assert index.manifest.build_id == BUILD_IDS[version]
        assert index.manifest.certificate == {"recall_at_10": 1.0}
        assert index.manifest.parameters["note"] == "golden, größer"
        graph = index.graph
        assert (graph.n_vertices, graph.node_format, graph.metric) == (golden.N, golden.NODE_FORMAT, "ip")
        assert graph.max_norm == golden.MAX_NORM
        scale = graph.scale()
        assert scale is not None
        assert np.array_equal(scale, golden.SCALE)
        nodes = graph.read_all()
        assert np.array_equal(nodes.vectors, golden.NODES.vectors)
        assert np.array_equal(nodes.degrees, golden.NODES.degrees)
        for slot, degree in enumerate(nodes.degrees):
            wanted = [*golden.NODES.neighbours[slot, :degree], *[0] * (golden.R - int(degree))]
            assert nodes.neighbours[slot].tolist() == wanted
        assert np.array_equal(index.codebook.pivots, golden.CODEBOOK.pivots)
        assert np.array_equal(index.codebook.offsets, golden.CODEBOOK.offsets)
        assert np.array_equal(index.codes, golden.CODES)
        assert index.entries.medoid == golden.ENTRIES.medoid
        assert np.array_equal(index.entries.centroids, golden.ENTRIES.centroids)
        assert np.array_equal(index.entries.vertices, golden.ENTRIES.vertices)
        assert np.array_equal(index.vector_ids, golden.VECTOR_IDS)
        assert index.user_ids == golden.USER_IDS


@pytest.mark.parametrize("version", BUILD_IDS)
def test_every_version_is_searched_by_the_native_reader(version: str) -> None:
    assert _native.verify(str(GOLDEN / version)) == []
    index = Index(GOLDEN / version)
    assert index.native.n_navigation == (0 if version == "v1_0" else len(golden.NAVIGATION.slots))
    found = index.search(np.ones((1, golden.DIM), np.float32), golden.N, L=golden.N)
    assert sorted(found.vector_ids[0].tolist()) == list(range(golden.N))


def test_version_1_0_has_no_navigation_graph_and_later_ones_have_what_was_written() -> None:
    with IndexFiles(GOLDEN / "v1_0") as index:
        assert index.navigation is None
    for version in ("v1_1", "v1_2", "v1_3"):
        with IndexFiles(GOLDEN / version) as index:
            assert index.navigation is not None
            for name, want in vars(golden.NAVIGATION).items():
                assert np.array_equal(getattr(index.navigation, name), want), name


def test_versions_before_1_2_are_first_generations_and_later_ones_say_what_was_written() -> None:
    for version in ("v1_0", "v1_1"):
        with IndexFiles(GOLDEN / version) as index:
            assert (index.manifest.generation, index.manifest.parents, index.manifest.drift) == (1, (), None)
    for version in ("v1_2", "v1_3"):
        with IndexFiles(GOLDEN / version) as index:
            assert (index.manifest.generation, index.manifest.parents) == (golden.GENERATION, golden.PARENTS)
            assert index.manifest.drift == golden.DRIFT


def test_since_1_3_a_manifest_says_how_an_index_was_laid_out_again() -> None:
    for version in BUILD_IDS:
        with IndexFiles(GOLDEN / version) as index:
            expected = golden.LAYOUT if version == "v1_3" else {"order": "identity"}
            assert index.manifest.layout == expected


def test_today_the_same_contents_give_the_same_bytes_as_the_newest_version(tmp_path: Path) -> None:
    golden.write_golden(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in NEWEST.iterdir())
    for path in NEWEST.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize(
    "version",
    [*BUILD_IDS, "v1_3_rotated", "v2_0_kept", "v2_0_on_page", "v3_0_deleted", "v3_0_ivf", "v4_0_lsh"],
)
def test_the_golden_manifests_state_their_version(version: str) -> None:
    major, minor = map(int, version[1:].split("_")[:2])
    stated = json.loads((GOLDEN / version / "manifest.json").read_text("utf-8"))["format"]
    assert stated == {"name": "indexmill", "major": major, "minor": minor}


def test_the_golden_index_of_rotated_codes_says_what_was_written(tmp_path: Path) -> None:
    index = GOLDEN / "v1_3_rotated"
    assert (verify_index(index), _native.verify(str(index))) == ([], [])
    with IndexFiles(index) as files:
        assert files.manifest.build_id == "cef68188c79e270cd5e55d8d648a18d57212ed198d9e66b64488675079d366f0"
        assert np.array_equal(files.codebook.rotation, golden.ROTATION)
        assert np.array_equal(files.codebook.pivots, golden.CODEBOOK.pivots)
        assert np.array_equal(files.codes, golden.CODES)
    found = Index(index).search(np.ones((1, golden.DIM), np.float32), golden.N, L=golden.N)
    assert sorted(found.vector_ids[0].tolist()) == list(range(golden.N))
    golden.write_golden(tmp_path, rotated=True)
    for path in index.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_golden_index_of_kept_vectors_says_what_was_written(tmp_path: Path) -> None:
    index = GOLDEN / "v2_0_kept"
    assert (verify_index(index), _native.verify(str(index))) == ([], [])
    with IndexFiles(index) as files:
        assert files.manifest.build_id == "e88516b2e1e03411e82fba4964e87fc6a26706fe8331058fc89a6bb902d424fb"
        assert files.vectors is not None
        assert np.array_equal(files.vectors.read(0, golden.N), golden.EXACT)
        assert np.array_equal(files.graph.read_all().vectors, golden.NODES.vectors)
    query = np.linspace(-1, 1, golden.DIM, dtype=np.float32)
    found = Index(index).search(query[None], 3, L=golden.N)
    products = golden.EXACT[:, : golden.DIM] @ query
    assert found.slots[0].tolist() == np.argsort(-products)[:3].tolist()
    golden.write_golden(tmp_path, kept=True)
    for path in index.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_golden_index_with_codes_in_its_nodes_says_what_was_written(tmp_path: Path) -> None:
    index = GOLDEN / "v2_0_on_page"
    assert (verify_index(index), _native.verify(str(index))) == ([], [])
    nodes = read_on_page(index / "graph.imx")
    assert nodes is not None
    assert np.array_equal(nodes.vectors, golden.NODES.vectors)
    for slot, degree in enumerate(golden.NODES.degrees):
        neighbours = golden.NODES.neighbours[slot, :degree].tolist()
        assert nodes.neighbours[slot] == neighbours
        assert nodes.codes[slot] == [golden.CODES[neighbour].tobytes() for neighbour in neighbours]
    with IndexFiles(index) as files:
        assert files.graph.node_format == golden.ON_PAGE_FORMAT
        assert files.navigation is None
    found = Index(index).search(np.ones((1, golden.DIM), np.float32), golden.N, L=golden.N)
    assert sorted(found.vector_ids[0].tolist()) == list(range(golden.N))
    golden.write_golden(tmp_path, on_page=True)
    for path in index.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_golden_index_with_deletions_says_what_was_written(tmp_path: Path) -> None:
    index = GOLDEN / "v3_0_deleted"
    assert (verify_index(index), _native.verify(str(index))) == ([], [])
    with IndexFiles(index) as files:
        manifest = files.manifest
    assert (manifest.build_id, manifest.generation) == (BUILD_IDS["v1_3"], golden.GENERATION + 1)
    assert manifest.n_deleted == len(golden.DELETED)
    assert np.array_equal(read_deleted(index, manifest, golden.N), golden.DELETED)
    found = Index(index).search(np.ones((1, golden.DIM), np.float32), golden.N, L=golden.N)
    left = set(range(golden.N)) - set(golden.DELETED.tolist())
    assert set(found.slots[0].tolist()) == left | {-1}
    golden.write_golden(tmp_path, deleted=True)
    for path in index.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize(
    ("name", "build_id"),
    [
        ("v1_3_lsh", "002061e93d3b86a303781e3ee883114162c6294b03510142cc2311ee87d058b2"),
        ("v4_0_lsh", "7777c7e765717659fd470affaaff362ab567c86b4338c07a99e01693e7841644"),
    ],
)
def test_the_golden_lsh_indexes_say_what_was_written(tmp_path: Path, name: str, build_id: str) -> None:
    index, is_added = GOLDEN / name, name == "v4_0_lsh"
    assert lsh_problems(index) == [] == _native.verify(str(index))
    with LshFiles(index) as files:
        assert files.manifest.build_id == build_id
        assert (files.shape, files.defaults) == (golden_lsh.SHAPE, golden_lsh.DEFAULTS)
        assert [pair.shape for pair in files.pairs] == golden_lsh.shapes(is_added)
        for field, want in vars(golden_lsh.FUNCTIONS).items():
            assert np.array_equal(getattr(files.functions, field), want), field
        assert np.array_equal(files.vectors.read(0, 150), golden_lsh.VECTORS)
        assert files.user_ids == golden_lsh.USER_IDS
        pairs = [lsh.Decoded.of(files), *([lsh.Decoded.added(files)] if is_added else [])]
        for decoded, shape in zip(pairs, golden_lsh.shapes(is_added), strict=True):
            for (radius, table), places in golden_lsh.places(shape).items():
                for bucket in range(4):
                    chain = decoded.chain((radius * 2 + table) * 4 + bucket)
                    assert chain == [(slot, print_) for b, print_, slot in places if b == bucket]
    found = LshIndex(index).search(golden_lsh.VECTORS[::30], 20, candidates=150)
    assert (found.scores[:, 0] == 0).all()
    golden_lsh.write_golden(tmp_path, is_added)
    for path in index.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize(
    ("name", "build_id"),
    [
        ("v1_3_ivf", "71c28e7ff33c79c129ef4643558cb21fa9cb65e60aa64fea404297295b45c11d"),
        ("v1_3_ivf_sq8", "9cca0b244bc27622ca79d0f3c50a3022716b503bc6fe8bd4651e340409d3846b"),
        ("v1_3_ivf_pq", "a0ea76da4c22d844f0470b34fdca87aa46d4d76130e3acf5d290a9c2df0b375f"),
        ("v1_3_ivf_rabitq", "10f5cc34087df064e6430786e56db1fbbabc5baf6c7f9b693bb25f2eb6189ed5"),
        ("v1_3_ivf_opq", "48956fc13df797606200b0eff174754d33db8fefb5b25ab7e9b204700f0de27d"),
        ("v3_0_ivf", "456a9b8fe3c50f7c91fe763d792a02e9249966f3259156790a2c8aa84530348f"),
    ],
)
def test_the_golden_ivf_indexes_say_what_was_written(tmp_path: Path, name: str, build_id: str) -> None:
    index, codec = GOLDEN / name, golden_ivf.NAMES[name]
    full = codec != "flat"
    assert verify_index(index) == [] == _native.verify(str(index))
    files = IvfFiles(index)
    assert files.manifest.build_id == build_id
    shared = files.centroids
    assert np.array_equal(shared.centroids, golden_ivf.centroids(codec))
    assert (shared.copies, shared.graph is not None, shared.codec) == (1 + full, full, codec)
    for number, (first, last) in enumerate(((0, 35), (35, 60))):
        wanted = golden_ivf.lists_of(full, first, last)
        with files.open_batch(number) as batch:
            for place, entry in enumerate(batch.directory):
                ids, rows = read_list(batch, place)
                assert ids.tolist() == wanted[entry["list"]]
                for vector, row in zip(ids.tolist(), rows, strict=True):
                    assert np.array_equal(row, golden_ivf.row(codec, vector, int(entry["list"])))
    found = IvfIndex(index).search(golden_ivf.VECTORS[:9], 60, nprobe=5, rerank=60 if full else None)
    assert np.array_equal(np.sort(found.vector_ids, axis=1), np.tile(np.arange(60), (9, 1)))
    assert (found.scores[:, 0] == 0).all()
    assert found.ids[0, 0] == "é0"
    golden_ivf.write_golden(tmp_path, codec, name == "v3_0_ivf")
    for path in index.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name
