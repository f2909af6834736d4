"""import(export(x)) == x: all that a format holds comes back as it was (docs/guides/import.md has the table)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.files.small_index import SmallIndex, write_small_index
from tests.support.indexes.append import DIM, assert_sound, build, manifest, points

import indexmill
from indexmill.formats.errors import CorruptFile, ForeignFile, FormatError
from indexmill.formats.exports.jvector import CODES_NAME, FILE_NAME
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.imports.jvector import open_jvector

N = 300
#: Parts with which every graph comes back; where a format has no names, ids.parquet beside it has them.
ALWAYS = {"vectors", "lists", "entry", "names"}
#: Program, file of the export that is imported, and further parts that come back.
SOURCES: dict[str, tuple[str, str, set[str]]] = {
    "diskann": ("diskann", "ann", {"centroids", "codes"}),
    "faiss": ("faiss", "index.faiss", set()),
    "faiss-nsg": ("faiss", "index.faiss", set()),
    "svs": ("svs", "", set()),
    "jvector": ("jvector", FILE_NAME, {"codes"}),
}
NAMELESS = ("svs", "jvector")


def there_and_back(target: str, x: Path, folder: Path, **how: Any) -> Path:
    """Export `x`, and import what was written as docs/guides/import.md says it is done."""
    program, name, kept = SOURCES[target]
    indexmill.export(x, target, folder / "out")
    if target in NAMELESS:
        how |= {"ids": folder / "out" / "ids.parquet", "id_column": "id"}
    if "codes" not in kept:
        how["pq_bytes"] = 6
    indexmill.import_index(folder / "out" / name, folder / "y", program=program, **how)
    assert_sound(folder / "y")
    return folder / "y"


def parts_of(index: Path) -> dict[str, Any]:
    """Return each part of a graph index in slot order, in a form that compares; of pivots the user's components."""
    with IndexFiles(index) as files:
        nodes, entries, book = files.graph.read_all(), files.entries, files.codebook
        names = files.vector_ids if files.user_ids is None else files.user_ids
        return {
            "vectors": nodes.vectors.astype(np.float32).tobytes(),
            "lists": [row[:d].tolist() for row, d in zip(nodes.neighbours, nodes.degrees, strict=True)],
            "names": names.tolist(),
            "entry": entries.medoid,
            "centroids": (entries.centroids.tobytes(), entries.vertices.tolist()),
            "codes": (
                files.codes.tobytes(),
                book.offsets[:-1].tolist(),
                np.ascontiguousarray(book.pivots[:, :DIM]).tobytes(),
            ),
        }


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Indexes whose order, codes and names no import would find by itself."""
    folder, names = tmp_path_factory.mktemp("x"), np.random.default_rng(7).permutation(N) * 11 + 5
    found = {
        metric: build(folder / metric, points(N, 3), metric=metric, order="star", ids=names, seed=5)
        for metric in ("l2", "ip", "cosine")
    }
    found["uint8"] = build(folder / "uint8", points(N, 3, "uint8"), ids=names, seed=5, order="identity")
    return found


@pytest.mark.parametrize("name", ["l2", "ip", "cosine", "uint8"])
@pytest.mark.parametrize("target", SOURCES)
def test_import_of_export_is_the_index_in_all_that_the_format_holds(
    indexes: dict[str, Path], tmp_path: Path, target: str, name: str
) -> None:
    how: dict[str, Any] = {"metric": "l2" if name == "uint8" else name}
    if target == "diskann":
        how["dtype"] = "uint8" if name == "uint8" else "float32"
    y = there_and_back(target, indexes[name], tmp_path, **how)
    before, after = parts_of(indexes[name]), parts_of(y)
    assert {part for part in before if before[part] == after[part]} == ALWAYS | SOURCES[target][2]
    imported = manifest(y)["input"]["imported"]
    assert (imported["codes"] == "kept") == ("codes" in SOURCES[target][2])
    assert (imported["unreachable"], imported["dropped_neighbours"]) == (0, 0)
    program, path, _ = SOURCES[target]
    indexmill.export(y, target, tmp_path / "again")
    first, again = (contents(tmp_path / folder, program, path) for folder in ("out", "again"))
    assert first == again


def contents(folder: Path, program: str, name: str) -> dict[str, bytes]:
    """Return the files that the engine opens; those of SVS without the id of the index they were made of."""
    if program == "svs":
        return {str(p): (folder / p).read_bytes()[24:] for p in (Path(GRAPH), Path(DATA))}
    return {p.name: p.read_bytes() for p in folder.glob("ann_*" if name == "ann" else "index.*")}


GRAPH, DATA = "graph/graph_0.svs", "data/data_0.svs"


@pytest.mark.parametrize("target", ["diskann", "jvector"])
def test_an_index_without_names_comes_back_as_the_same_build(tmp_path: Path, target: str) -> None:
    """Nothing is left to compute but centroids, which are found as in a build, and the navigation graph."""
    program, name, _ = SOURCES[target]
    x = tmp_path / "x"
    indexmill.build(points(N, 3), x, R=12, L=30, pq_bytes=6, order="identity")
    indexmill.export(x, target, tmp_path / "out", ids="slot")
    dtype = {"dtype": "float32"} if target == "diskann" else {}
    indexmill.import_index(tmp_path / "out" / name, tmp_path / "y", program=program, **dtype)
    assert manifest(tmp_path / "y")["build_id"] == manifest(x)["build_id"]


def test_codes_beside_a_graph_of_inner_products_get_the_component_that_is_added(tmp_path: Path) -> None:
    """A centre's added component is the mean over the vectors that have it; where no chunk is left, also."""
    rows = points(N, 3) * np.linspace(0.2, 3, N, dtype=np.float32)[:, None]
    for pq_bytes in (5, DIM + 1):
        folder = tmp_path / str(pq_bytes)
        x = build(folder / "x", rows, metric="ip", pq_bytes=pq_bytes)
        indexmill.export(x, "jvector", folder / "out")
        indexmill.import_index(folder / "out" / FILE_NAME, folder / "y", program="jvector", metric="ip")
        with IndexFiles(folder / "y") as files:
            book, added = files.codebook, files.graph.read_all().vectors[:, -1].astype(np.float64)
            last = files.codes[:, -1]
        assert book.pivots.shape[1] == book.offsets[-1] == DIM + 1
        assert len(book.offsets) - 1 == min(pq_bytes, DIM)
        for code in np.unique(last):
            assert book.pivots[code, -1] == pytest.approx(added[last == code].mean(), rel=1e-6)
        found = indexmill.open(folder / "y").search(rows[:20], 5, L=100)
        exact = np.sort(rows[:20] @ rows.T, axis=1)[:, ::-1][:, :5]
        np.testing.assert_allclose(found.scores, exact, rtol=1e-4)


def test_a_centre_is_added_to_jvector_s_pivots(tmp_path: Path, small: SmallIndex) -> None:
    """Pivots that are relative to a centre, as JVector writes them where it subtracts one."""
    indexmill.export(small.path, "jvector", tmp_path / "out")
    path = tmp_path / "out" / CODES_NAME
    data, centre = path.read_bytes(), np.arange(16, dtype=">f4")
    begin = 16 + 4 * 4 + 8  # behind header, sizes, weight and number of centres
    sizes = np.diff(small.codebook.offsets.astype(int))
    k = len(small.codebook.pivots)
    moved = np.frombuffer(data, ">f4", k * 16, begin).copy()
    moved -= np.concatenate([np.tile(part, k) for part in np.split(centre, np.cumsum(sizes)[:-1])])
    head = data[:8] + struct.pack(">I", 16) + centre.tobytes() + data[12:begin]
    path.write_bytes(head + moved.tobytes() + data[begin + moved.nbytes :])
    codes = open_jvector(tmp_path / "out" / FILE_NAME).codes
    assert codes is not None
    np.testing.assert_allclose(codes.codebook.pivots, small.codebook.pivots, atol=1e-5)
    assert (codes.codes == small.codes).all()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallIndex:
    return write_small_index(tmp_path_factory.mktemp("small") / "ix", id_type="none")


def test_codes_are_trained_where_there_are_none_or_others_are_asked_for(
    small: SmallIndex, tmp_path: Path
) -> None:
    indexmill.export(small.path, "jvector", tmp_path / "out")
    graph = tmp_path / "out" / FILE_NAME
    indexmill.import_index(graph, tmp_path / "y", program="jvector", pq_bytes=2)
    assert manifest(tmp_path / "y")["input"]["imported"]["codes"] == "trained: others were asked for"
    (tmp_path / "out" / CODES_NAME).unlink()
    indexmill.import_index(graph, tmp_path / "z", program="jvector")
    assert manifest(tmp_path / "z")["input"]["imported"]["codes"] == "trained: there is no index.pqv"


def put(at: int, *values: int, kind: str = "I") -> Callable[[bytearray], object]:
    return lambda data: struct.pack_into(f">{len(values)}{kind}", data, at, *values)


#: Byte of the number of codes, behind header, sizes, weight, number of centres, and the pivots of 32 centres.
COUNT = 16 + 16 + 8 + 32 * 16 * 4
DAMAGES: list[tuple[Callable[[bytearray], object], type[FormatError], str]] = [
    (put(0, 7), ForeignFile, "byte 0: expected 0x75ec4012, version 3 to 6, got 0x7, 3"),
    (put(4, 2), ForeignFile, "version 3 to 6"),
    (put(8, 15), CorruptFile, "components of the centre: expected 0 or 16, got 15"),
    (put(12, 0), CorruptFile, "number of chunks: expected 1 to 16"),
    (put(12, 2**31), CorruptFile, "number of chunks: expected 1 to 16"),
    (put(16, 5), CorruptFile, "sizes of the chunks: expected positive numbers that add up to 16"),
    (put(16, -4, 12, kind="i"), CorruptFile, "sizes of the chunks"),
    (put(36, 257), CorruptFile, "number of centres: expected 1 to 256"),
    (put(40, 0x7FC00000), CorruptFile, "finite numbers"),
    (put(COUNT, 199), CorruptFile, "codes: expected 200 of 4, .* got 199 of 4"),
    (put(COUNT + 4, 3), CorruptFile, "codes: expected 200 of 4"),
    (put(COUNT + 38, 255, kind="B"), CorruptFile, rf"byte {COUNT + 36:,}: code of vector 7: .* below 32, got 255"),
    (lambda data: data.__delitem__(slice(-1, None)), CorruptFile, "size of the file"),
    (lambda data: data.__delitem__(slice(30, None)), CorruptFile, "at byte"),
    (lambda data: data.__setitem__(slice(COUNT + 8, None), bytes(800)), CorruptFile, "are all files of one index"),
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(DAMAGES)))
def test_damaged_codes_are_refused_and_named(small: SmallIndex, tmp_path: Path, i: int) -> None:
    change, error, message = DAMAGES[i]
    indexmill.export(small.path, "jvector", tmp_path / "out")
    path = tmp_path / "out" / CODES_NAME
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    with pytest.raises(error, match=message) as refusal:
        indexmill.import_index(tmp_path / "out" / FILE_NAME, tmp_path / "y", program="jvector")
    assert str(path) in str(refusal.value)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_codes_longer_than_ours_can_be_are_trained_anew(tmp_path: Path) -> None:
    vectors = np.random.default_rng(3).normal(size=(40, 520)).astype(np.float32)
    x = build(tmp_path / "x", vectors, order="identity", pq_bytes=512)
    indexmill.export(x, "jvector", tmp_path / "out")
    codes = tmp_path / "out" / CODES_NAME
    sizes = struct.pack(">520i", *[1] * 520)
    head = codes.read_bytes()[:12] + struct.pack(">I", 520) + sizes + struct.pack(">fI", -1.0, 1)
    codes.write_bytes(head + bytes(4 * 520) + struct.pack(">II", 40, 520) + bytes(40 * 520))
    indexmill.import_index(tmp_path / "out" / FILE_NAME, tmp_path / "y", program="jvector")
    assert (
        manifest(tmp_path / "y")["input"]["imported"]["codes"] == "trained: theirs have more than 512 bytes"
    )
