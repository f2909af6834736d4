"""Indexes of diskannpy: read as they are, and searched with the answers diskannpy gives."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.oracles.files.diskann import bin_bytes, read_disk_index, read_memory_index, write_disk_index
from tests.support.indexes.append import assert_sound, manifest
from tests.support.indexes.imports import DISKANN, costs, lists_of, read_all, unpack_diskann

import indexmill
from indexmill.formats.errors import ConfigError, CorruptFile
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.imports.diskann import open_diskann
from indexmill.formats.imports.ids import read_id_file

ON_DISK = [name for name in DISKANN if name != "memory"]


@pytest.fixture(scope="module")
def diskann(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_diskann(tmp_path_factory.mktemp("diskann"))


@pytest.fixture(scope="module")
def imported(diskann: Path) -> dict[str, Path]:
    """The golden indexes, imported."""
    found = {}
    for name, (_, metric) in DISKANN.items():
        found[name] = diskann / f"{name}.index"
        asked = "cosine" if metric == "cosine" else None  # the others say it, or need not
        indexmill.import_index(diskann / name / "ann", found[name], metric=asked)
    return found


@pytest.mark.parametrize("name", ON_DISK)
def test_a_disk_index_is_read_as_it_is(diskann: Path, name: str) -> None:
    dtype, metric = DISKANN[name]
    index = open_diskann(str(diskann / name / "ann"))
    vectors, lists = read_all(index)
    stored, expected, medoid = read_disk_index(diskann / name / "ann_disk.index", dtype)
    assert lists == expected
    assert index.entry == medoid
    given = np.load(diskann / name / "answers.npz")["vectors"]
    if metric == "ip":  # stored divided by the largest norm
        assert index.metric == "ip"
        np.testing.assert_allclose(vectors, given, rtol=1e-6)
    else:
        assert (vectors == stored).all()
        assert (vectors == given).all()


def test_a_memory_index_is_read_as_it_is(diskann: Path) -> None:
    index = open_diskann(str(diskann / "memory" / "ann"))
    vectors, lists = read_all(index)
    assert (lists, index.entry) == read_memory_index(diskann / "memory" / "ann")
    given = np.load(diskann / "memory" / "answers.npz")["vectors"].astype(np.float64)
    np.testing.assert_allclose(vectors, given / np.linalg.norm(given, axis=1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("name", DISKANN)
def test_the_graph_is_kept_slot_by_slot(diskann: Path, imported: dict[str, Path], name: str) -> None:
    vectors, lists = read_all(open_diskann(str(diskann / name / "ann")))
    ours = lists_of(imported[name])
    if manifest(imported[name])["graph"]["edges_added"] == 0:
        assert [sorted(list_) for list_ in ours] == [sorted(list_) for list_ in lists]
    with IndexFiles(imported[name]) as files:
        assert files.vector_ids.tolist() == list(range(500))
        assert files.graph.node_format.max_degree == max(map(len, lists)) == 8
        stored = files.graph.read_all().vectors
    if name in ("float32", "uint8", "int8"):
        assert (stored == vectors).all()
    for v in (0, 250, 499):
        wide = stored.astype(np.float64)
        away = [((wide[v] - wide[u]) ** 2).sum() for u in ours[v]]
        assert away == sorted(away)


@pytest.mark.parametrize("name", DISKANN)
def test_both_programs_answer_alike(diskann: Path, imported: dict[str, Path], name: str) -> None:
    answers, metric = np.load(diskann / name / "answers.npz"), DISKANN[name][1]
    queries, theirs = answers["queries"], answers["ids"]
    index = indexmill.open(imported[name])
    for policy, entry in (("pipeline", "navigation"), ("beam", "medoid")):
        found = index.search(queries, 10, L=500, policy=policy, entry=entry).vector_ids
        cost = [costs(answers["vectors"], queries, ids, metric) for ids in (found, theirs)]
        np.testing.assert_allclose(*cost, rtol=1e-5, atol=1e-5)  # other ids only where distances are equal


@pytest.mark.parametrize("name", ON_DISK)
def test_codes_are_kept_and_mean_the_same(diskann: Path, imported: dict[str, Path], name: str) -> None:
    folder = diskann / name
    raw = (folder / "ann_pq_compressed.bin").read_bytes()
    n, m = struct.unpack_from("<ii", raw)
    codes = np.frombuffer(raw, np.uint8, n * m, 8).reshape(n, m)
    with IndexFiles(imported[name]) as files:
        assert (files.codes == codes).all()
        book = files.codebook
    raw = (folder / "ann_pq_pivots.bin").read_bytes()
    _, _, at_pivots, at_centroid, at_chunks, _ = struct.unpack_from("<ii4Q", raw)
    dim = book.pivots.shape[1]
    pivots = np.frombuffer(raw, "<f4", 256 * dim, at_pivots + 8).reshape(256, dim)
    centroid = np.frombuffer(raw, "<f4", dim, at_centroid + 8)
    norm = 1.0
    if name == "product":
        norm = float(np.frombuffer((folder / "ann_disk.index_max_base_norm.bin").read_bytes(), "<f4")[2])
    assert book.offsets.tolist() == np.frombuffer(raw, "<u4", m + 1, at_chunks + 8).tolist()
    np.testing.assert_allclose(book.pivots, norm * (pivots + centroid), rtol=1e-5, atol=1e-5)
    assert manifest(imported[name])["input"]["imported"]["codes"] == "kept"


@pytest.mark.parametrize("name", DISKANN)
def test_an_imported_index_is_sound_and_tells_where_it_comes_from(
    imported: dict[str, Path], name: str
) -> None:
    assert_sound(imported[name])
    found = manifest(imported[name])
    assert found["certificate"]["recall"] > 0.99
    assert found["layout"]["order"] == "identity"
    origin = found["input"]["imported"]
    assert origin["from"] == ("diskann-memory" if name == "memory" else "diskann")
    assert origin["files"][0]["name"] == ("ann" if name == "memory" else "ann_disk.index")
    assert origin["unreachable"] == 0 or origin["repaired"]


@pytest.mark.parametrize(
    ("dim", "dtype", "width"), [(1100, "float32", 5), (1023, "float32", 1), (3, "int8", 3), (13, "uint8", 7)]
)
def test_nodes_of_any_size_are_found(tmp_path: Path, dim: int, dtype: str, width: int) -> None:
    rng = np.random.default_rng(dim)
    vectors = rng.integers(-9 if dtype != "uint8" else 0, 9, (23, dim)).astype(dtype)
    lists = [rng.choice(23, rng.integers(1, width + 1), replace=False).tolist() for _ in range(23)]
    write_disk_index(tmp_path / "x_disk.index", vectors, lists, 5, width)
    index = open_diskann(str(tmp_path / "x"), dtype)
    found, found_lists = read_all(index)
    assert (found == vectors).all()
    assert found_lists == lists
    assert index.vectors.read(20, 23).tolist() == vectors[20:].tolist()


def test_a_file_with_the_header_of_the_rust_client_is_read(diskann: Path, tmp_path: Path) -> None:
    data = bytearray((diskann / "uint8" / "ann_disk.index").read_bytes())
    struct.pack_into("<I", data, 0, 96)
    struct.pack_into("<QQII", data, 80, 0, 4096, 1, 0)
    (tmp_path / "x_disk.index").write_bytes(data)
    cpp = read_all(open_diskann(str(diskann / "uint8" / "ann")))
    rust = read_all(open_diskann(str(tmp_path / "x"), "uint8"))
    assert (cpp[0] == rust[0]).all()
    assert cpp[1] == rust[1]


def test_medoids_become_entry_vertices(diskann: Path, tmp_path: Path) -> None:
    for file in (diskann / "uint8").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    medoids = np.array([[3], [77], [400]], np.uint32)
    centroids = np.load(tmp_path / "answers.npz")["vectors"][medoids.ravel()].astype(np.float32)
    (tmp_path / "ann_disk.index_medoids.bin").write_bytes(bin_bytes(medoids))
    (tmp_path / "ann_disk.index_centroids.bin").write_bytes(bin_bytes(centroids))
    indexmill.import_index(tmp_path / "ann", tmp_path / "ix")
    with IndexFiles(tmp_path / "ix") as files:
        assert files.entries.vertices.tolist() == [3, 77, 400]
        assert (files.entries.centroids == centroids).all()
        assert files.entries.medoid == read_disk_index(tmp_path / "ann_disk.index", "uint8")[2]
    assert manifest(tmp_path / "ix")["input"]["imported"]["entries"] == "kept"


def test_what_codes_cannot_express_is_trained_anew(diskann: Path, tmp_path: Path) -> None:
    for file in (diskann / "uint8").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert open_diskann(str(tmp_path / "ann"), with_codes=False).codes is None
    (tmp_path / "ann_pq_pivots.bin").rename(tmp_path / "gone")
    indexmill.import_index(tmp_path / "ann", tmp_path / "ix")
    assert manifest(tmp_path / "ix")["input"]["imported"]["codes"] == "trained: theirs are missing"
    assert_sound(tmp_path / "ix")


def test_a_centroid_is_rotated_before_it_is_added(diskann: Path, tmp_path: Path) -> None:
    for file in (diskann / "uint8").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    plain = open_diskann(str(tmp_path / "ann")).codes
    assert plain is not None
    dim = plain.codebook.pivots.shape[1]
    turn = np.roll(np.eye(dim, dtype=np.float32), 1, axis=1)  # component i becomes i + 1
    path = tmp_path / "ann_pq_pivots.bin_rotation_matrix.bin"
    path.write_bytes(bin_bytes(turn))
    rotated = open_diskann(str(tmp_path / "ann"))
    assert rotated.codes is not None
    assert path in rotated.files
    pivots_file = (tmp_path / "ann_pq_pivots.bin").read_bytes()
    centroid_at = struct.unpack_from("<Q", pivots_file, 16)[0]
    centroid = np.frombuffer(pivots_file, "<f4", dim, centroid_at + 8)
    expected = plain.codebook.pivots.astype(np.float64) - centroid + np.roll(centroid, 1)
    np.testing.assert_allclose(rotated.codes.codebook.pivots, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(rotated.codes.codebook.rotation, turn)
    for wrong, message in (
        (turn[:3], "rows and columns"),
        (turn * 2, "a rotation"),
        (turn[::-1] + turn, "a rotation"),
    ):
        path.write_bytes(bin_bytes(np.ascontiguousarray(wrong)))
        with pytest.raises(CorruptFile, match=message):
            open_diskann(str(tmp_path / "ann"))


def test_tags_are_ids(diskann: Path, tmp_path: Path) -> None:
    for file in (diskann / "uint8").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tags = np.arange(500, dtype=np.uint32)[::-1].copy() + 7
    (tmp_path / "ann_disk.index.tags").write_bytes(bin_bytes(tags[:, None]))
    assert open_diskann(str(tmp_path / "ann")).vectors.ids.to_pylist() == tags.tolist()
    ids, id_type = read_id_file(tmp_path / "ann_disk.index.tags")
    assert (ids.type, id_type, ids.to_pylist()) == (pa.uint64(), "uint64", tags.tolist())


def test_the_type_must_be_told_where_no_file_does(diskann: Path, tmp_path: Path) -> None:
    source = diskann / "uint8" / "ann_disk.index"
    (tmp_path / "x_disk.index").write_bytes(source.read_bytes())
    with pytest.raises(ConfigError, match=r"dtype: nothing says .* give one of float32"):
        open_diskann(str(tmp_path / "x"))
    with pytest.raises(ConfigError, match=r"dtype: float32, but .*ann_metadata.bin says uint8"):
        open_diskann(str(diskann / "uint8" / "ann"), "float32")
    with pytest.raises(ConfigError, match="dtype: expected one of"):
        open_diskann(str(tmp_path / "x"), "float16")
