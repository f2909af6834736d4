"""Damaged and foreign files end in an error that says where, without a crash, a large allocation or a trace."""

from __future__ import annotations

import os
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.files.diskann import bin_bytes
from tests.support.damage import Change, cut, put
from tests.support.indexes.imports import clustered_rows, read_all, unpack_diskann
from tests.support.indexes.made_by_faiss import make_hnsw, make_nsg

import indexmill
from indexmill.formats.errors import (
    ConfigError,
    CorruptFile,
    ForeignFile,
    FormatError,
    IndexmillError,
    InputError,
)
from indexmill.formats.imports.diskann import open_diskann
from indexmill.formats.imports.faiss import open_faiss
from indexmill.formats.imports.index import ImportedIndex
from indexmill.pipeline.imports import graph

ROWS = clustered_rows(90, dim=4)
#: Reading files this small needs no more.
MOST_BYTES = 8 << 20


@pytest.fixture(scope="module")
def diskann(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_diskann(tmp_path_factory.mktemp("diskann"))


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faiss")
    faiss.write_index(make_hnsw(ROWS, 4), str(folder / "hnsw"))
    faiss.write_index(make_nsg(ROWS, 5), str(folder / "nsg"))
    mapped = faiss.IndexIDMap(make_hnsw(ROWS[:0].copy(), 4))
    mapped.add_with_ids(ROWS, np.arange(90) + 7)
    faiss.write_index(mapped, str(folder / "mapped"))
    return folder


def copy_of(folder: Path, target: Path, name: str, change: Change) -> Path:
    """Copy an index of DiskANN with one file changed; returns its prefix."""
    shutil.copytree(folder, target, dirs_exist_ok=True)
    data = bytearray((target / name).read_bytes())
    change(data)
    (target / name).write_bytes(data)
    return target / "ann"


DISK = "ann_disk.index"
#: Node 5 of the uint8 index: vector of 16 bytes, degree, neighbours.
NODE_5 = 4096 + 5 * 52
DISKANN_CASES = [
    ("uint8", DISK, cut(0), CorruptFile, "size of the file: expected"),
    ("uint8", DISK, cut(4096), CorruptFile, "two sectors at least, got 4,096 bytes"),
    ("uint8", DISK, cut(32767), CorruptFile, "what the header says = 32,768 bytes, got 32,767"),
    ("uint8", DISK, lambda d: d.extend(b"x"), CorruptFile, "what the header says = 32,768 bytes, got 32,769"),
    ("uint8", DISK, put("<I", 0, 7), ForeignFile, "header: expected 9 or 96, and 1.* got 7 and 1"),
    ("uint8", DISK, put("<I", 0, 12), ForeignFile, "flag of reordered vectors"),
    ("uint8", DISK, put("<Q", 8, 600), CorruptFile, "4096 . 8 x 4,096 = 36,864 bytes, got 32,768"),
    ("uint8", DISK, put("<Q", 8, 2**60), InputError, "one index holds at most"),
    ("uint8", DISK, put("<Q", 8, 0), CorruptFile, "number of vectors: expected at least 1, got 0"),
    ("uint8", DISK, put("<Q", 8, 499), CorruptFile, "codes: expected 499|499, one a vector|vectors and dimension"),
    ("uint8", DISK, put("<Q", 16, 0), CorruptFile, "dimension: expected 1 to 65,536, got 0"),
    ("uint8", DISK, put("<Q", 16, 2**40), CorruptFile, "dimension: expected 1 to 65,536"),
    ("uint8", DISK, put("<Q", 24, 500), CorruptFile, "medoid: expected a vertex below 500, got 500"),
    ("uint8", DISK, put("<Q", 32, 51), CorruptFile, "bytes of a node .is the dtype right"),
    ("uint8", DISK, put("<Q", 32, 2**50), CorruptFile, "neighbours that a node has room for"),
    ("uint8", DISK, put("<Q", 40, 77), CorruptFile, "nodes a sector: expected 4096 / 52 = 78, got 77"),
    ("uint8", DISK, put("<Q", 48, 1), ForeignFile, "frozen vertices"),
    ("uint8", DISK, put("<Q", 72, 1), CorruptFile, "what the header says = 1 bytes, got 32,768"),
    ("uint8", DISK, put("<I", NODE_5 + 16, 9), CorruptFile,
     rf"vertex 5, at byte {NODE_5 + 16:,}: degree: expected 0 to 8, got 9"),
    ("uint8", DISK, put("<I", NODE_5 + 16, 2**32 - 1), CorruptFile, "vertex 5, .*degree"),
    ("uint8", DISK, put("<I", NODE_5 + 24, 500), CorruptFile,
     rf"vertex 5, neighbour 1, at byte {NODE_5 + 24:,}: expected a vertex below 500, got 500"),
    ("float32", DISK, put("<f", 4096 + 100 * 7 + 8, np.nan), InputError, "ann_disk.index: row 7: component 2 is nan"),
    ("float32", DISK, put("<f", 4096, np.inf), InputError, "row 0: component 0 is inf"),
    ("uint8", "ann_metadata.bin", put("<Q", 0, 3), CorruptFile, "type of the components: expected one of"),
    ("uint8", "ann_metadata.bin", put("<Q", 16, 501), CorruptFile, "expected 500 x 16 as in the index, got 501 x 16"),
    ("uint8", "ann_metadata.bin", cut(31), CorruptFile, "4 x 8 = 32 bytes, got 31"),
    ("uint8", "ann_metadata.bin", put("<Q", 0, 0), CorruptFile, "is the dtype right"),
    ("int8", "ann_metadata.bin", put("<Q", 0, 2), CorruptFile, "codes .*is the dtype right"),
    ("uint8", "ann_pq_compressed.bin", put("<I", 0, 499), CorruptFile, "499 rows x 8 columns|500, one a vector"),
    ("uint8", "ann_pq_compressed.bin", cut(4007), CorruptFile, "500 x 8 x 1 = 4,000 bytes"),
    ("uint8", "ann_pq_compressed.bin", lambda d: d.__setitem__(slice(8, None), bytes(4000)), CorruptFile,
     "codes .are all files of one index"),
    ("uint8", "ann_pq_pivots.bin", put("<I", 0, 3), CorruptFile, "number of parts: expected 4 or 5"),
    ("uint8", "ann_pq_pivots.bin", put("<Q", 16, 2**62), CorruptFile, "part 0: expected offsets that ascend"),
    ("uint8", "ann_pq_pivots.bin", put("<I", 4100, 2**31 - 1), CorruptFile, "pivots at byte"),
    ("uint8", "ann_pq_pivots.bin", put("<i", 4096, -5), CorruptFile, "rows and columns, got -5 x 16"),
    ("uint8", "ann_pq_pivots.bin", put("<f", 4104, np.nan), CorruptFile, "finite numbers"),
    ("uint8", "ann_pq_pivots.bin", put("<I", 20568, 99), CorruptFile, "chunk offsets: expected ascending from 0"),
    ("uint8", "ann_pq_pivots.bin", cut(20600), CorruptFile, "part 2: expected offsets that ascend to 20,600"),
    ("product", "ann_disk.index_max_base_norm.bin", put("<f", 8, -1), CorruptFile, "largest norm: expected one"),
    ("product", "ann_disk.index_max_base_norm.bin", put("<f", 8, np.nan), CorruptFile, "largest norm"),
    ("memory", "ann", cut(22), CorruptFile, "size of the file"),
    ("memory", "ann", put("<Q", 0, 5), CorruptFile, "what the header says = 5 bytes"),
    ("memory", "ann", put("<I", 12, 500), CorruptFile, "entry vertex: expected a vertex below 500"),
    ("memory", "ann", put("<Q", 16, 1), ForeignFile, "a static index"),
    ("memory", "ann", put("<I", 24, 2**32 - 1), CorruptFile, "vertex 0, at byte 24: list"),
    ("memory", "ann", put("<I", 28, 500), CorruptFile, "vertex 0, neighbour 0, at byte 28: .* got 500"),
    ("memory", "ann.data", cut(31999), CorruptFile, "vectors at byte 8: expected 500 x 16 x 4 = 32,000 bytes"),
    ("memory", "ann.data", put("<i", 0, 2**31 - 1), CorruptFile, "vectors at byte 8"),
    ("memory", "ann.data", put("<i", 0, 499), CorruptFile, "8 . 499 rows x 16 columns x 4"),
]  # fmt: skip


@pytest.mark.parametrize(("folder", "name", "change", "error", "message"), DISKANN_CASES)
def test_a_damaged_index_of_diskann_is_refused(
    diskann: Path, tmp_path: Path, folder: str, name: str, change: Change, error: type, message: str
) -> None:
    prefix = copy_of(diskann / folder, tmp_path / "copy", name, change)
    metric = "cosine" if folder == "memory" else None
    with pytest.raises(error, match=message) as refusal:
        indexmill.import_index(prefix, tmp_path / "ix", metric=metric)
    assert str(tmp_path / "copy" / "ann") in str(refusal.value)
    assert [p.name for p in tmp_path.iterdir()] == ["copy"]


def test_a_metric_that_only_the_user_can_tell_is_asked_for(diskann: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ann_metadata.bin: byte 8: metric 2, expected 0.* with --metric"):
        indexmill.import_index(diskann / "memory" / "ann", tmp_path / "ix")
    prefix = copy_of(diskann / "uint8", tmp_path / "copy", "ann_metadata.bin", put("<Q", 8, 3))
    with pytest.raises(ConfigError, match="byte 8: metric 3"):
        indexmill.import_index(prefix, tmp_path / "ix")
    assert [p.name for p in tmp_path.iterdir()] == ["copy"]


@pytest.mark.parametrize("folder", ["uint8", "int8"])
def test_a_disk_index_of_integers_is_not_of_cosine(diskann: Path, tmp_path: Path, folder: str) -> None:
    with pytest.raises(ConfigError, match=rf"metric: cosine, but .*holds {folder} vectors"):
        indexmill.import_index(diskann / folder / "ann", tmp_path / "ix", metric="cosine")
    assert list(tmp_path.iterdir()) == []


def test_files_that_change_while_they_are_read_are_refused(
    diskann: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = copy_of(diskann / "uint8", tmp_path / "copy", DISK, lambda data: None)
    measure = graph.longest_list

    def then_touch(*arguments: Any) -> int:
        os.utime(tmp_path / "copy" / DISK, (1, 1))
        return measure(*arguments)

    monkeypatch.setattr(graph, "longest_list", then_touch)
    with pytest.raises(InputError, match="has changed while it was imported"):
        indexmill.import_index(prefix, tmp_path / "ix")
    monkeypatch.setattr(graph, "longest_list", lambda *arguments: measure(*arguments) - 3)
    with pytest.raises(InputError, match=r"vertex \d+: expected at most 5 neighbours as before, got [678]"):
        indexmill.import_index(prefix, tmp_path / "ix")
    assert [p.name for p in tmp_path.iterdir()] == ["copy"]


@pytest.mark.parametrize(
    ("extra", "content", "message"),
    [
        ("ann_disk.index_pq_pivots.bin", b"any", "whole vectors on disk"),
        ("ann_disk.index_medoids.bin", bin_bytes(np.array([[500]], np.uint32)), "medoid 0: expected a vertex below"),
        ("ann_disk.index_medoids.bin", bin_bytes(np.zeros((2, 1), np.uint32)), "2 x 16, one a medoid, got 1 x 16"),
        ("ann_disk.index.tags", bin_bytes(np.zeros((9, 1), np.uint32)), "500, one a vector, got 9"),
    ],
)  # fmt: skip
def test_files_beside_an_index_must_belong_to_it(
    diskann: Path, tmp_path: Path, extra: str, content: bytes, message: str
) -> None:
    shutil.copytree(diskann / "uint8", tmp_path / "copy")
    (tmp_path / "copy" / extra).write_bytes(content)
    centroids = bin_bytes(np.zeros((1, 16), np.float32))
    (tmp_path / "copy" / "ann_disk.index_centroids.bin").write_bytes(centroids)
    with pytest.raises(FormatError, match=message):
        indexmill.import_index(tmp_path / "copy" / "ann", tmp_path / "ix")
    assert [p.name for p in tmp_path.iterdir()] == ["copy"]


def test_what_is_no_index_is_refused(diskann: Path, graphs: Path, tmp_path: Path) -> None:
    flat = faiss.IndexFlatL2(4)
    flat.add(ROWS)
    faiss.write_index(flat, str(tmp_path / "flat"))
    quantized = faiss.IndexHNSWSQ(4, faiss.ScalarQuantizer.QT_8bit, 4)
    quantized.train(ROWS)
    quantized.add(ROWS)
    faiss.write_index(quantized, str(tmp_path / "sq"))
    manhattan = make_hnsw(ROWS, 4, faiss.METRIC_L1)
    faiss.write_index(manhattan, str(tmp_path / "l1"))
    faiss.write_index(make_hnsw(ROWS[:0].copy(), 4), str(tmp_path / "empty"))
    for program, path, error, message in (
        (
            "diskann",
            tmp_path / "none",
            InputError,
            "no index of DiskANN: neither none_disk.index nor none with",
        ),
        ("faiss", tmp_path / "none", InputError, "no such file"),
        ("faiss", diskann / "uint8" / DISK, ForeignFile, "kind of index: expected IndexHNSWFlat"),
        ("faiss", tmp_path / "flat", ForeignFile, "kind of index: expected .* got 'IxF2'"),
        ("faiss", tmp_path / "sq", ForeignFile, "kind of index: expected .* got 'IHNs'"),
        ("faiss", tmp_path / "l1", ForeignFile, "metric: expected one of .* got 2"),
        ("faiss", tmp_path / "empty", CorruptFile, "number of vectors: expected at least 1, got 0"),
    ):
        with pytest.raises(error, match=message):
            indexmill.import_index(path, tmp_path / "ix", program=program)
    assert not (tmp_path / "ix").exists()


def test_a_damaged_file_of_faiss_is_refused(graphs: Path, tmp_path: Path) -> None:
    hnsw, nsg = (graphs / "hnsw").read_bytes(), (graphs / "nsg").read_bytes()
    places = 37 + 8 + 8 * struct.unpack_from("<Q", hnsw, 37)[0] + 8  # behind header and probabilities
    levels = places + 4 * struct.unpack_from("<Q", hnsw, places - 8)[0] + 8
    neighbours = levels + 4 * 90 + 8 + 8 * 91 + 8
    parameters = neighbours + 4 * struct.unpack_from("<Q", hnsw, neighbours - 8)[0]
    nsg_graph = 37 + 21
    cases: list[tuple[bytes, Change, str]] = [
        (hnsw, put("<i", 4, 0), "dimension: expected 1 to"),
        (hnsw, put("<q", 8, -1), "number of vectors: expected at least 1"),
        (hnsw, put("<q", 8, 91), "levels and offsets: expected 91 and 92, got 90 and 91"),
        (hnsw, put("<B", 32, 0), "flag is_trained: expected 1, got 0"),
        (hnsw, put("<Q", 37, 2**61), "probabilities of the levels at byte"),
        (hnsw, put("<i", places + 4, 4000), "numbers that ascend|places on level 0"),
        (hnsw, put("<i", levels, 77), "vertex 0: levels and offsets"),
        (hnsw, put("<Q", levels + 4 * 90 + 8 + 8, 2**63), "vertex 0: levels and offsets"),
        (hnsw, put("<i", neighbours, 90), rf"vertex 0, neighbour 0, at byte {neighbours:,}: .* below 90, got 90"),
        (hnsw, put("<i", neighbours, -2), "vertex 0, neighbour 0"),
        (hnsw, put("<i", parameters, 90), "entry vertex: expected a vertex below 90, got 90"),
        (hnsw, lambda d: d.extend(b"more"), "the end of the file, got 4 more bytes"),
        (hnsw, cut(-1), "vectors at byte"),
        (hnsw, put("<f", len(hnsw) - 4, np.nan), "row 89: component 3 is nan"),
        (nsg, put("<i", nsg_graph, 91), "vertices of the graph: expected 90, got 91"),
        (nsg, put("<i", nsg_graph + 4, 0), "R: expected 1 to 512"),
        (nsg, put("<i", nsg_graph + 20, -1), "entry vertex: expected a vertex below 90"),
        (nsg, put("<B", nsg_graph + 24, 0), "flag is_built"),
        (nsg, put("<i", nsg_graph + 25, 90), "vertex 0, neighbour 0"),
        (nsg, cut(nsg_graph + 25 + 40), "lists"),
    ]  # fmt: skip
    for data, change, message in cases:
        damaged = bytearray(data)
        change(damaged)
        (tmp_path / "x").write_bytes(damaged)
        with pytest.raises(IndexmillError, match=message) as refusal:
            indexmill.import_index(tmp_path / "x", tmp_path / "ix", program="faiss")
        assert str(tmp_path / "x") in str(refusal.value)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def read_whole(open_index: Callable[[], ImportedIndex]) -> str:
    """Read everything; returns ``"read"`` or the kind of refusal, and measures what that took."""
    tracemalloc.start()
    try:
        index = open_index()
        read_all(index)
        if index.codes is not None:
            assert index.codes.codes.shape[0] == index.vectors.n_rows
        return "read"
    except IndexmillError as error:
        return type(error).__name__
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MOST_BYTES


@st.composite
def damages(draw: st.DrawFn) -> tuple[float, list[tuple[float, int, bool]]]:
    """Where a file is cut, and bytes or words that are overwritten; places are shares of the file, mostly early."""
    size = draw(st.one_of(st.just(1.0), st.floats(0, 1)))
    place = st.one_of(st.floats(0, 0.003), st.floats(0, 1))
    value = st.one_of(st.integers(0, 255), st.sampled_from([2**31 - 1, 2**31, 2**32 - 1, 500, 4096]))
    return size, draw(st.lists(st.tuples(place, value, st.booleans()), max_size=4))


def damage(data: bytes, how: tuple[float, list[tuple[float, int, bool]]]) -> bytes:
    size, changes = how
    out = bytearray(data)
    for place, value, whole_word in changes:
        at = min(int(place * len(out)), len(out) - 8)
        if whole_word:
            struct.pack_into("<I", out, at // 4 * 4, value & 0xFFFFFFFF)
        else:
            out[at] = value & 0xFF
    return bytes(out[: int(size * len(out))])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    which=st.sampled_from(["uint8", "float32", "product", "memory"]), file=st.integers(0, 9), how=damages()
)
def test_any_damage_of_diskanns_files_is_read_or_refused(
    diskann: Path, which: str, file: int, how: tuple[float, list[tuple[float, int, bool]]]
) -> None:
    names = sorted(p.name for p in (diskann / which).iterdir() if p.name != "answers.npz")
    name = names[file % len(names)]
    target = diskann / f"fuzz-{which}"
    copy_of(
        diskann / which, target, name, lambda data: data.__setitem__(slice(None), damage(bytes(data), how))
    )
    read_whole(lambda: open_diskann(str(target / "ann")))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(which=st.sampled_from(["hnsw", "nsg", "mapped"]), how=damages())
def test_any_damage_of_a_faiss_file_is_read_or_refused(
    graphs: Path, which: str, how: tuple[float, list[tuple[float, int, bool]]]
) -> None:
    path = graphs / "fuzz"
    path.write_bytes(damage((graphs / which).read_bytes(), how))
    read_whole(lambda: open_faiss(path))


def test_damage_that_no_parser_can_see_still_ends_in_a_sound_index_or_a_refusal(
    diskann: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    ends = set()
    for i in range(8):
        at = int(rng.integers(4096, 32768))
        value = int(rng.integers(256))
        prefix = copy_of(diskann / "uint8", tmp_path / str(i), DISK, put("<B", at, value))
        try:
            indexmill.import_index(prefix, tmp_path / "ix", force=True)
            assert indexmill.open(tmp_path / "ix").search(np.full((2, 16), 99, np.uint8), 3).slots.min() >= 0
            ends.add("read")
        except IndexmillError:
            ends.add("refused")
    assert ends == {"read", "refused"}
