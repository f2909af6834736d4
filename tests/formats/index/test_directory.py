"""An index directory: verification of every byte, equal bytes for equal input, and the search oracle on it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracles.brute_force import exact_neighbours
from tests.oracles.files.hostile import patch_manifest, patch_page_file, section_offset
from tests.oracles.files.small_index import Aids, SmallIndex, write_small_index
from tests.oracles.files.verify import verify_index
from tests.oracles.graph.search import SearchOracle

from indexmill.formats.errors import CorruptFile, FormatError
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.index.manifest import file_sha256, seal_files

FLOATS = ["float32", "float16", "sq16", "sq8"]
ALL = [*((d, m) for d in FLOATS for m in ("l2", "ip", "cosine")), ("uint8", "l2"), ("int8", "l2")]


@pytest.fixture
def index(tmp_path: Path) -> SmallIndex:
    return write_small_index(tmp_path / "i", n=25, dim=6, dtype="int8", R=4, id_type="string", metadata=True)


@pytest.mark.parametrize(("dtype", "metric"), ALL)
@pytest.mark.parametrize("id_type", ["none", "binary"])
def test_an_intact_index_verifies_and_its_parts_come_back(
    tmp_path: Path, dtype: str, metric: str, id_type: str
) -> None:
    written = write_small_index(tmp_path, n=60, dim=10, dtype=dtype, metric=metric, id_type=id_type)
    assert verify_index(tmp_path) == []
    with IndexFiles(tmp_path) as index:
        nodes = index.graph.read_all()
        assert np.array_equal(nodes.vectors, written.stored)
        assert np.array_equal(nodes.neighbours, written.neighbours)
        assert np.array_equal(nodes.degrees, written.degrees)
        assert np.array_equal(index.codes, written.codes)
        assert np.array_equal(index.vector_ids, written.vector_ids)
        assert index.entries.medoid == written.entries.medoid
        assert index.navigation is not None
        assert np.array_equal(index.navigation.slots, written.navigation.slots)
        assert np.array_equal(index.navigation.offsets, written.navigation.offsets)
        assert np.array_equal(index.navigation.neighbours, written.navigation.neighbours)
        assert (index.user_ids is None) == (id_type == "none")
        assert index.manifest == written.manifest


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_smallest_indexes_verify(tmp_path: Path, n: int) -> None:
    write_small_index(tmp_path, n=n, dim=1, R=2, aids=Aids(n_chunks=1))
    assert verify_index(tmp_path) == []
    assert len(SearchOracle(tmp_path).search(np.ones(1), n, n, 4).slots) == n


def test_equal_calls_write_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_small_index(tmp_path / name, n=40, seed=3)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_every_flipped_byte_is_found(index: SmallIndex) -> None:
    for path in sorted(index.path.iterdir()):
        data = path.read_bytes()
        # every byte of a header; a SHA-256 covers all others alike
        head, stride = (0, 7) if path.name == "manifest.json" else (128, 127)
        for at in (*range(head), *range(head + len(data) % 5, len(data), stride)):
            with open(path, "r+b") as file:
                file.seek(at)
                file.write(bytes([data[at] ^ (1 << at % 8)]))
            assert verify_index(index.path), f"{path.name}: byte {at}"
            with open(path, "r+b") as file:
                file.seek(at)
                file.write(data[at : at + 1])
    assert verify_index(index.path) == []


def test_every_truncation_is_found_and_named(index: SmallIndex) -> None:
    for path in sorted(index.path.iterdir()):
        data = path.read_bytes()
        for length in {0, 1, 100, len(data) // 2, len(data) - 1, *range(0, len(data), 4096)} - {len(data)}:
            path.write_bytes(data[:length])
            problems = verify_index(index.path)
            assert problems
            assert path.name in problems[0]
        path.unlink()
        assert path.name in verify_index(index.path)[0]
        path.write_bytes(data)


def test_a_damaged_page_is_named_with_its_number(index: SmallIndex) -> None:
    path = index.path / "graph.imx"
    data = bytearray(path.read_bytes())
    data[4096 + 50] ^= 1
    path.write_bytes(data)
    problems = verify_index(index.path)
    assert any("graph.imx: SHA-256: expected" in problem for problem in problems)
    assert any("graph.imx: page 1 (offset 4096): CRC32C: expected" in problem for problem in problems)


def test_run_json_is_outside_of_everything(index: SmallIndex) -> None:
    (index.path / "run.json").write_text("not even JSON")
    assert verify_index(index.path) == []


@pytest.mark.parametrize("name", ["graph.imx", "codes.imx", "entries.imx", "ids.imx", "navigation.imx"])
def test_a_file_of_another_build_is_rejected(index: SmallIndex, tmp_path: Path, name: str) -> None:
    other = write_small_index(tmp_path / "other", n=25, dim=6, dtype="int8", R=4, id_type="string", seed=9)
    shutil.copy(other.path / name, index.path / name)

    def trust(value: dict[str, list[dict[str, object]]]) -> None:
        for entry in value["files"]:
            if entry["name"] == name:
                entry["bytes"] = (index.path / name).stat().st_size
                entry["sha256"] = file_sha256(index.path / name)

    patch_manifest(index.path, trust)
    with pytest.raises(
        CorruptFile, match=r"build id \(offset 16\): expected .* as in the manifest, got .*another build"
    ):
        IndexFiles(index.path)
    assert any("build id of the files" in problem for problem in verify_index(index.path))


def reseal(index: SmallIndex) -> None:
    """Make build id and manifest fit what the files are now."""
    names = [entry.name for entry in index.manifest.files]
    identity, files = seal_files(index.path, names)
    patch_manifest(index.path, lambda v: v.update(build_id=identity, files=[vars(entry) for entry in files]))


@pytest.mark.parametrize("change", [{"n": 26}, {"dim": 7}])
@pytest.mark.parametrize("name", ["codes.imx", "entries.imx", "ids.imx", "navigation.imx"])
def test_parts_of_another_size_are_rejected(
    index: SmallIndex, tmp_path: Path, change: dict[str, int], name: str
) -> None:
    if name in ("ids.imx", "navigation.imx") and "dim" in change:
        change = {"n": 24}
    arguments = {"n": 25, "dim": 6, "R": 4} | change
    other = write_small_index(tmp_path / "other", dtype="int8", **arguments)
    shutil.copy(other.path / name, index.path / name)
    reseal(index)
    with pytest.raises(FormatError, match=f"{name}: field '(n_vertices|dim)': expected (25|6)"):
        IndexFiles(index.path)
    assert len(verify_index(index.path)) == 1


def test_a_repeated_neighbour_is_found(index: SmallIndex) -> None:
    slot = int(np.flatnonzero(index.degrees >= 2)[0])
    f = index.node_format
    at = section_offset(index.path / "graph.imx", "nodes") + slot * f.node_bytes + f.vector_bytes + 4
    first = index.neighbours[slot, 0].tobytes()
    patch_page_file(index.path / "graph.imx", {at + 4: first})
    reseal(index)
    assert len(verify_index(index.path)) == 1
    assert f"slot {slot}: expected different neighbours" in verify_index(index.path)[0]


def test_metadata_of_another_length_is_found(index: SmallIndex) -> None:
    pq.write_table(pa.table({"colour": ["red"]}), index.path / "metadata.parquet")
    reseal(index)
    assert "metadata.parquet: rows: expected 25, got 1" in verify_index(index.path)[0]


@pytest.mark.parametrize(("dtype", "metric"), ALL)
@pytest.mark.parametrize("policy", ["beam", "page"])
def test_the_search_oracle_is_exact_when_its_list_holds_every_vertex(
    tmp_path: Path, dtype: str, metric: str, policy: str
) -> None:
    written = write_small_index(tmp_path, n=80, dim=12, dtype=dtype, metric=metric)
    oracle = SearchOracle(tmp_path)
    queries = written.vectors[:5]
    wanted, scores = exact_neighbours(written.vectors, queries, 3, metric)
    for query, ids, best in zip(queries, wanted, scores, strict=True):
        found = oracle.search(query, 3, 80, 4, policy, "medoid")
        assert found.exact_distances == 80  # the graph is connected
        assert np.allclose(found.scores, best, rtol=0.03, atol=0.5 if dtype == "sq8" else 0.1)
        if dtype == "float32" or (metric == "l2" and dtype != "sq8"):
            assert found.vector_ids.tolist() == ids.tolist()


def test_page_search_reads_no_page_twice_and_beam_search_may(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, n=300, dim=30, R=8)
    oracle = SearchOracle(tmp_path)
    n_pages = written.node_format.n_pages(300)
    for query in written.vectors[:20]:
        page, beam = (oracle.search(query, 5, 20, 4, policy) for policy in ("page", "beam"))
        assert page.pages_read <= n_pages
        assert page.pages_read <= beam.pages_read
        assert beam.exact_distances == len(beam.expanded) == len(set(beam.expanded))
        assert len(page.expanded) == len(set(page.expanded))
