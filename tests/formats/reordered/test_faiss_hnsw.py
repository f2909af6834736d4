"""faiss's HNSW files in another order: the same graph, the same vectors, and damage is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.damage import Change, Damage, add, check_refused, cut, damages, put
from tests.support.indexes.engine_files import check_there_and_back, read_whole, reordered
from tests.support.indexes.imports import clustered_rows
from tests.support.indexes.made_by_faiss import make_hnsw, make_nsg

from indexmill.formats.errors import ForeignFile, FormatError, InputError
from indexmill.formats.reordered.opening import open_engine_file

N, DIM, M = 400, 6, 4
ROWS = clustered_rows(N, dim=DIM)


def scalar(kind: int) -> Any:
    index = faiss.IndexHNSWSQ(DIM, kind, M)
    index.train(ROWS)
    index.add(ROWS)
    return index


def mapped(kind: Any) -> Any:
    index = kind(make_hnsw(ROWS[:0].copy(), M))
    index.add_with_ids(ROWS, np.arange(N) * 3 + 5_000_000_000)
    return index


#: Every kind of file that is laid out.
MADE: dict[str, Callable[[], Any]] = {
    "flat": lambda: make_hnsw(ROWS, M),
    "ip": lambda: make_hnsw(ROWS, M, faiss.METRIC_INNER_PRODUCT),
    "sq8": lambda: scalar(faiss.ScalarQuantizer.QT_8bit),
    "fp16": lambda: scalar(faiss.ScalarQuantizer.QT_fp16),
    "sq4": lambda: scalar(faiss.ScalarQuantizer.QT_4bit),
    "mapped": lambda: mapped(faiss.IndexIDMap),
    "mapped2": lambda: mapped(faiss.IndexIDMap2),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faiss")
    for name, make in MADE.items():
        faiss.write_index(make(), str(folder / name))
    return folder


def graph_of(path: Path) -> dict[str, Any]:
    """What faiss itself reads, named by id."""
    index = faiss.read_index(str(path))
    inner, ids = index, np.arange(index.ntotal)
    if isinstance(index, faiss.IndexIDMap):
        inner, ids = faiss.downcast_index(index.index), faiss.vector_to_array(index.id_map)
    graph = inner.hnsw
    offsets = faiss.vector_to_array(graph.offsets).astype(np.int64)
    neighbours = faiss.vector_to_array(graph.neighbors)
    levels = faiss.vector_to_array(graph.levels)
    storage = faiss.downcast_index(inner.storage)
    codes = faiss.vector_to_array(storage.codes).reshape(index.ntotal, -1)
    lists = [neighbours[a:b] for a, b in pairwise(offsets)]
    return {
        "kind": type(inner),
        "metric": (index.metric_type, inner.metric_type, index.d, index.is_trained),
        "entry": (ids[graph.entry_point], graph.max_level, graph.efConstruction, graph.efSearch),
        "places": faiss.vector_to_array(graph.cum_nneighbor_per_level).tolist(),
        "lists": {
            int(ids[v]): (int(levels[v]), [int(ids[u]) if u >= 0 else -1 for u in lists[v]])
            for v in range(len(ids))
        },
        "codes": {int(ids[v]): codes[v].tobytes() for v in range(len(ids))},
    }


@pytest.mark.parametrize("name", MADE)
def test_the_graph_that_faiss_reads_is_the_same_by_id(files: Path, tmp_path: Path, name: str) -> None:
    order = np.random.default_rng(2).permutation(N)
    (tmp_path / "new").write_bytes(reordered(files / name, order))
    before, after = graph_of(files / name), graph_of(tmp_path / "new")
    assert after == before
    assert list(after["codes"]) == [list(before["codes"])[v] for v in order]
    assert len({level for level, _ in before["lists"].values()}) > 2
    assert (tmp_path / "new").stat().st_size == open_engine_file(files / name).size


@pytest.mark.parametrize("name", ["mapped", "mapped2"])
@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_an_order_and_its_inverse_give_the_file_back(files: Path, name: str, seed: int) -> None:
    check_there_and_back(files / name, seed)


def test_a_file_without_a_map_gets_one_and_keeps_it(files: Path, tmp_path: Path) -> None:
    (tmp_path / "once").write_bytes(reordered(files / "flat", np.arange(N)))
    once = (tmp_path / "once").read_bytes()
    assert once[:4] == b"IxMp"
    assert once[37:].startswith((files / "flat").read_bytes())
    assert reordered(tmp_path / "once", np.arange(N)) == once


@pytest.mark.parametrize("name", MADE)
def test_the_first_vector_is_where_it_is_said_to_be(files: Path, name: str) -> None:
    file, new = open_engine_file(files / name), reordered(files / name, np.arange(N))
    row = graph_of(files / name)["codes"]
    first = next(iter(row.values()))
    assert file.row_bytes == len(first)
    assert new[file.rows_begin : file.rows_begin + len(first)] == first


def test_points_are_flat_vectors_or_bytes(files: Path) -> None:
    for name, points in (("flat", ROWS), ("mapped", ROWS)):
        found = open_engine_file(files / name).points
        assert found is not None
        assert (found == points).all()
    eight = open_engine_file(files / "sq8").points
    assert eight is not None
    assert (eight.shape, eight.dtype) == ((N, DIM), np.uint8)
    assert open_engine_file(files / "fp16").points is None
    assert open_engine_file(files / "sq4").points is None


def test_a_damaged_file_is_refused(files: Path, tmp_path: Path) -> None:
    flat, mapped_ = (files / "flat").read_bytes(), (files / "mapped").read_bytes()
    places = 37 + 8 + 8 * struct.unpack_from("<Q", flat, 37)[0] + 8  # behind header and probabilities
    n_places = struct.unpack_from("<Q", flat, places - 8)[0]
    levels = places + 4 * n_places + 8
    offsets = levels + 4 * N + 8
    neighbours = offsets + 8 * (N + 1) + 8
    tail = neighbours + 4 * struct.unpack_from("<Q", flat, neighbours - 8)[0]
    height = np.frombuffer(flat, "<i4", N, levels)
    high, low = int(np.argmax(height > 1)), int(np.argmax(height == 1))
    above = neighbours + 4 * (struct.unpack_from("<Q", flat, offsets + 8 * high)[0] + 2 * M)
    cases: list[tuple[bytes, Change, str]] = [
        (flat, put("<i", above, low), f"vertex {high}, place {2 * M} of its lists: .* got {low};"),
        (flat, put("<i", above, N), f"vertex {high}, place {2 * M} of its lists: .* got {N};"),
        (flat, put("<i", above, -2), f"vertex {high}, place {2 * M} of its lists: .* got -2;"),
        (flat, put("<i", neighbours, N), "vertex 0, neighbour 0"),
        (flat, put("<i", tail, low), "entry vertex: expected one of level"),
        (flat, put("<i", tail + 4, -1), "entry vertex: expected one of level -1"),
        (flat, put("<q", 8, N + 1), "levels and offsets"),
        (flat, add(), "the end of the file, got 4 more bytes"),
        (flat, cut(-1), "vectors at byte"),
        (flat, cut(2), "first bytes at byte 0"),
        (mapped_, put("<q", 8, N + 1), "one a vector, got 401 vectors and 400 ids"),
        (mapped_, cut(-8), "ids at byte"),
    ]
    for data, change, message in cases:
        check_refused(tmp_path / "x", data, change, message, read_whole)


def test_other_kinds_of_files_are_refused_by_name(files: Path, tmp_path: Path) -> None:
    flat = faiss.IndexFlatL2(DIM)
    flat.add(ROWS)
    codes = faiss.IndexHNSWPQ(DIM, 3, M, 4)
    codes.train(ROWS)
    codes.add(ROWS)
    others = {"IxF2": flat, "INSf": make_nsg(ROWS), "IHNp": codes}
    for name, index in others.items():
        faiss.write_index(index, str(tmp_path / name))
        with pytest.raises(ForeignFile, match=rf"kind of index: expected .* got '{name}'"):
            open_engine_file(tmp_path / name)
    (tmp_path / "text").write_text("a file of words")
    with pytest.raises(ForeignFile, match="got 'a fi'"):
        open_engine_file(tmp_path / "text")
    with pytest.raises(InputError, match="no such file"):
        open_engine_file(tmp_path / "none")
    swapped = (files / "sq8").read_bytes().replace(b"IHNs", b"IHNf", 1)
    (tmp_path / "swapped").write_bytes(swapped)
    with pytest.raises(ForeignFile, match="storage of the vectors: expected a flat index"):
        open_engine_file(tmp_path / "swapped")
    swapped = (files / "flat").read_bytes().replace(b"IHNf", b"IHNs", 1)
    (tmp_path / "swapped").write_bytes(swapped)
    with pytest.raises(ForeignFile, match="storage of the vectors: expected an IndexScalarQuantizer"):
        open_engine_file(tmp_path / "swapped")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(name=st.sampled_from(["flat", "sq8", "mapped"]), damage=damages(0.02, [N]))
def test_any_damage_is_read_or_refused(files: Path, name: str, damage: Damage) -> None:
    (files / "damaged").write_bytes(damage.of((files / name).read_bytes()))
    with suppress(FormatError, InputError):
        read_whole(files / "damaged")
