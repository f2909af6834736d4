"""Exports to DiskANN: field by field by a slow reader, and back through our importer."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.oracles.files.diskann import read_disk_index
from tests.oracles.files.small_index import SmallIndex, write_small_index
from tests.support.indexes.append import SMALL, build, manifest, points
from tests.support.indexes.export import id_map

import indexmill
from indexmill.formats.errors import ConfigError
from indexmill.formats.exports.diskann import node_width
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.graph.nodes import NodeFormat
from indexmill.formats.imports.diskann import open_diskann

PARTS = ("graph.imx", "codes.imx", "entries.imx", "navigation.imx", "ids.imx")


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name.startswith("ann_")}


def payloads(index: Path) -> dict[str, bytes]:
    """Every page of every file but the first and the last, which carry the identity of the index."""
    return {name: (index / name).read_bytes()[4096:-4096] for name in PARTS}


def there_and_back(index: Path, folder: Path, **how: object) -> Path:
    indexmill.export(index, "diskann", folder / "ann")
    indexmill.import_index(folder / "ann" / "ann", folder / "ix", **how)
    return folder / "ix"


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8"])
def test_every_field_is_what_diskann_reads(tmp_path: Path, dtype: str) -> None:
    small = write_small_index(tmp_path / "ix", dtype=dtype, dim=13, id_type="none")
    indexmill.export(small.path, "diskann", tmp_path / "out")
    prefix = tmp_path / "out" / "ann"
    vectors, lists, medoid = read_disk_index(Path(f"{prefix}_disk.index"), dtype)
    assert (vectors == small.stored).all()
    assert lists == [row[:d].tolist() for row, d in zip(small.neighbours, small.degrees, strict=True)]
    assert medoid == small.entries.medoid
    index = open_diskann(str(prefix), dtype)
    assert index.codes is not None
    assert (index.codes.codes == small.codes).all()
    assert (index.codes.codebook.pivots[:32] == small.codebook.pivots).all()
    assert index.codes.codebook.pivots.shape == (256, 13)
    assert index.entries is not None
    assert index.entries.vertices.tolist() == small.entries.vertices.tolist()
    assert (index.entries.centroids == small.entries.centroids).all()
    assert index.vectors.ids.to_pylist() == small.vector_ids.tolist()  # .tags


@pytest.mark.parametrize(("dtype", "metric"), [("float32", "l2"), ("uint8", "l2"), ("int8", "l2"),
                                              ("float32", "ip"), ("float32", "cosine")])  # fmt: skip
def test_import_of_export_is_the_index_byte_for_byte(tmp_path: Path, dtype: str, metric: str) -> None:
    x = build(tmp_path / "x", points(300, 3, dtype), metric=metric, order="identity")
    y = there_and_back(x, tmp_path / "1", dtype=dtype, metric=metric)
    found = manifest(y)["input"]["imported"]
    assert (found["codes"], found["entries"], found["dropped_neighbours"]) == ("kept", "kept", 0)
    assert {name: data for name, data in payloads(x).items() if name != "ids.imx"} == {
        name: data for name, data in payloads(y).items() if name != "ids.imx"
    }
    with IndexFiles(y) as files:  # a number in the input has become a name
        assert files.user_ids.to_pylist() == files.vector_ids.tolist()
    indexmill.export(y, "diskann", tmp_path / "again")
    assert files_of(tmp_path / "again") == files_of(tmp_path / "1" / "ann")


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_rotated_codes_go_there_and_back(tmp_path: Path, metric: str) -> None:
    x = build(tmp_path / "x", points(300, 3), metric=metric, order="identity", pq_rotation="opq")
    y = there_and_back(x, tmp_path / "1", dtype="float32", metric=metric)
    assert payloads(x)["codes.imx"] == payloads(y)["codes.imx"]
    imported = manifest(y)["input"]["imported"]
    assert imported["codes"] == "kept"
    rotation = tmp_path / "1" / "ann" / "ann_pq_pivots.bin_rotation_matrix.bin"
    assert rotation.name in [file["name"] for file in imported["files"]]
    with IndexFiles(x) as files:
        stored = np.fromfile(rotation, "<f4", offset=8).reshape(np.fromfile(rotation, "<u4", 2))
        np.testing.assert_array_equal(stored, files.codebook.rotation)
    with pytest.raises(ConfigError, match=r"jvector: codes of rotated vectors .* --pq-rotation none"):
        indexmill.export(x, "jvector", tmp_path / "jvector")


def test_slots_become_numbers_whatever_the_layout(tmp_path: Path) -> None:
    x = build(tmp_path / "x", points(300, 3), order="star")
    y = there_and_back(x, tmp_path / "1", dtype="float32")
    with IndexFiles(x) as before, IndexFiles(y) as after:
        assert before.vector_ids.tolist() != list(range(300))
        assert after.user_ids.to_pylist() == before.vector_ids.tolist()
    differ = [name for name, data in payloads(x).items() if data != payloads(y)[name]]
    assert set(differ) <= {"ids.imx", "navigation.imx"}  # its sample is drawn by number


@pytest.mark.parametrize(("dim", "dtype", "R"), [(1100, "float32", 5), (1023, "float32", 8), (4090, "uint8", 3),
                                                 (9000, "int8", 4)])  # fmt: skip
def test_nodes_larger_than_a_sector_begin_one(tmp_path: Path, dim: int, dtype: str, R: int) -> None:
    small = write_small_index(tmp_path / "ix", n=20, dim=dim, dtype=dtype, R=R, id_type="none")
    indexmill.export(small.path, "diskann", tmp_path / "out")
    vectors, lists, _ = read_disk_index(tmp_path / "out" / "ann_disk.index", dtype)
    assert (vectors == small.stored).all()
    assert lists == [row[:d].tolist() for row, d in zip(small.neighbours, small.degrees, strict=True)]
    header = struct.unpack_from("<9Q", (tmp_path / "out" / "ann_disk.index").read_bytes(), 8)
    assert header[4] == small.node_format.nodes_per_page == 0
    assert header[8] == (tmp_path / "out" / "ann_disk.index").stat().st_size


@pytest.mark.parametrize("dim", range(100, 140))
def test_nodes_share_sectors_as_they_share_pages(dim: int) -> None:
    """Their nodes are up to 3 bytes shorter than ours; a place more in the lists makes up for it."""
    for dtype, R in (("uint8", 32), ("int8", 24), ("float32", 32)):
        node = NodeFormat(dim, dtype, R)
        width = node_width(node)
        node_bytes = dim * node.element_dtype.itemsize + 4 + 4 * width
        assert 4096 // node_bytes == node.nodes_per_page
        assert width - R in (0, 1)


def test_pages_are_exactly_ours(small: SmallIndex, tmp_path: Path) -> None:
    indexmill.export(small.path, "diskann", tmp_path / "out", ids="slot")
    disk = (tmp_path / "out" / "ann_disk.index").read_bytes()
    graph = (small.path / "graph.imx").read_bytes()
    pages = -(-200 // small.node_format.nodes_per_page)
    assert disk[4096:] == graph[4096 : 4096 * (1 + pages)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallIndex:
    return write_small_index(tmp_path_factory.mktemp("diskann") / "ix")


def test_a_vertex_without_neighbours_becomes_its_own(tmp_path: Path) -> None:
    indexmill.build(np.ones((1, 8), np.float32), tmp_path / "ix", **{**SMALL, "pq_bytes": 2})
    indexmill.export(tmp_path / "ix", "diskann", tmp_path / "out")
    _, lists, _ = read_disk_index(tmp_path / "out" / "ann_disk.index", "float32")
    assert lists == [[0]]
    back = indexmill.import_index(tmp_path / "out" / "ann", tmp_path / "back", dtype="float32")
    assert len(back) == 1


def test_inner_products_keep_every_bit(tmp_path: Path) -> None:
    rows = points(300, 1) * np.linspace(0.1, 9, 300, dtype=np.float32)[:, None]
    x = build(tmp_path / "x", rows, metric="ip")
    indexmill.export(x, "diskann", tmp_path / "out")
    index = open_diskann(str(tmp_path / "out" / "ann"), "float32")
    assert index.metric == "ip"
    stored, _, _ = read_disk_index(tmp_path / "out" / "ann_disk.index", "float32")
    lengths = np.linalg.norm(stored.astype(np.float64), axis=1)
    assert 0.5 < lengths.max() <= 1.0000001
    np.testing.assert_allclose(lengths, lengths[0], rtol=1e-6)
    order = id_map(tmp_path / "out")["vector_id"].to_numpy()
    assert (index.vectors.read(0, 300) == rows[order]).all()


@pytest.mark.parametrize("dtype", ["float16", "sq8", "sq16"])
def test_node_types_that_diskann_has_not_are_refused(tmp_path: Path, dtype: str) -> None:
    small = write_small_index(tmp_path / "ix", dtype=dtype, id_type="none")
    with pytest.raises(
        ConfigError,
        match=f"nodes of type {dtype}, but diskann holds float32, uint8, int8; export.*--keep-vectors",
    ):
        indexmill.export(small.path, "diskann", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_exact_vectors_are_exported_in_place_of_codes(tmp_path: Path, dtype: str) -> None:
    rows = points(300, 1).astype(dtype)
    index = build(tmp_path / "x", rows, node_dtype="sq8", keep_vectors=True)
    exported = indexmill.export(index, "diskann", tmp_path / "out")
    assert "vector_dtype=np.float32" in exported["open"]
    vectors, lists, _ = read_disk_index(tmp_path / "out" / "ann_disk.index", "float32")
    assert (vectors == rows[id_map(tmp_path / "out")["vector_id"].to_numpy()]).all()
    with IndexFiles(index) as files:
        nodes = files.graph.read_all()
    assert lists == [row[:d].tolist() for row, d in zip(nodes.neighbours, nodes.degrees, strict=True)]


@pytest.mark.parametrize(("ids", "message"), [
    (list(range(5_000_000_000, 5_000_000_300)), "ids: 5,000,000,.* but diskann holds ids from 0 to 4,294,967,295"),
    ([-1, *range(299)], "ids: -1 of vector 0"),
    ([f"a{i}" for i in range(300)], "ids: string ids"),
])  # fmt: skip
def test_ids_that_tags_cannot_hold_are_refused_unless_slots_will_do(
    tmp_path: Path, ids: list[object], message: str
) -> None:
    x = build(tmp_path / "x", points(300, 1), ids=ids)
    with pytest.raises(ConfigError, match=f"{message}.*give --ids slot"):
        indexmill.export(x, "diskann", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    indexmill.export(x, "diskann", tmp_path / "out", ids="slot")
    assert not (tmp_path / "out" / "ann_disk.index.tags").exists()
    table = id_map(tmp_path / "out")
    assert pa.array(ids).take(table["vector_id"].combine_chunks()).to_pylist() == table["id"].to_pylist()
