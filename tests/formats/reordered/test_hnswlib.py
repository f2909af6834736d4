"""hnswlib's files in another order: the same index by label, whatever the order."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.files.hnswlib import ByLabel, from_bytes, random_vertices, to_bytes
from tests.support.damage import Change, add, check_refused, cut, put
from tests.support.indexes.engine_files import read_whole, reordered

from indexmill.formats.errors import CorruptFile
from indexmill.formats.reordered.hnswlib import HnswlibFile
from indexmill.formats.reordered.opening import open_engine_file

N, DIM, M = 60, 5, 4
#: Bytes of a vertex, and where the first one is.
VERTEX, FIRST = 4 + 8 * M + 4 * DIM + 8, 96


def write(path: Path, seed: int = 3, n: int = N) -> bytes:
    data = to_bytes(random_vertices(n, DIM, M, seed), M)
    path.write_bytes(data)
    return data


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 80), data=st.data())
def test_any_order_keeps_vectors_lists_marks_and_entry_by_label(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    before = from_bytes(write(path, seed, n))
    order = np.array(data.draw(st.permutations(range(n))))
    after = reordered(path, order)
    assert from_bytes(after) == before
    assert len(after) == open_engine_file(path).size
    assert list(from_bytes(after).vertices) == [list(before.vertices)[v] for v in order]


def test_an_order_and_its_inverse_give_the_file_back_but_for_what_stands_behind_lists(tmp_path: Path) -> None:
    write(tmp_path / "a")
    (tmp_path / "b").write_bytes(reordered(tmp_path / "a", np.arange(N)))  # ends of lists are 0 now
    order = np.random.default_rng(1).permutation(N)
    (tmp_path / "c").write_bytes(reordered(tmp_path / "b", order))
    assert (tmp_path / "c").read_bytes() != (tmp_path / "b").read_bytes()
    assert reordered(tmp_path / "c", np.argsort(order)) == (tmp_path / "b").read_bytes()


def test_blocks_are_the_lowest_lists(tmp_path: Path) -> None:
    vertices = random_vertices(N, DIM, M, 3)
    (tmp_path / "a").write_bytes(to_bytes(vertices, M))
    file = open_engine_file(tmp_path / "a")
    assert isinstance(file, HnswlibFile)
    assert (file.n, file.lists.width, file.row_bytes, file.points) == (N, 2 * M, VERTEX, None)
    found = [
        lists[v, : degrees[v]].tolist()
        for _, lists, degrees in file.lists.blocks()
        for v in range(len(degrees))
    ]
    assert found == [vertex.lists[0] for vertex in vertices]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut(95), "header at byte 0"),
        (put("<Q", 8, N - 1), f"n: expected 1 to the room, {N - 1}, got {N}"),
        (put("<Q", 16, 0), "n: expected 1 to the room"),
        (put("<Q", 24, VERTEX + 4), "vertex_bytes: expected"),
        (put("<Q", 32, 4 + 8 * M), f"label_at: expected more than {4 + 8 * M}"),
        (put("<Q", 40, 8), f"vector_at: expected {4 + 8 * M}, got 8"),
        (put("<i", 48, -1), "top: expected a level, got -1"),
        (put("<I", 52, N), f"entry: expected a vertex below {N}, got {N}"),
        (put("<Q", 56, 0), "places on higher levels: expected 1 to 512, got 0"),
        (put("<Q", 64, 2**40), "places on level 0: expected 1 to 512"),
        (put("<H", FIRST + 3 * VERTEX, 9), "vertex 3, at byte .*: degree: expected 0 to 8, got 9"),
        (put("<I", FIRST + N * VERTEX, 5), "vertex 0, .*: higher levels: expected up to . lists of 20 bytes, got 5"),
        (add(), "size of the file: expected .* by its lists"),
        (cut(-1), "higher levels|by its lists"),
        (cut(FIRST + N * VERTEX - 1), "vertices at byte 96"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused(tmp_path: Path, change: Change, message: str) -> None:
    check_refused(tmp_path / "x", write(tmp_path / "x"), change, message, read_whole)


def test_a_neighbour_that_is_no_vertex_of_the_level_is_refused(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "x"))
    by_number = random_vertices(N, DIM, M, 3)
    high = next(v for v in range(N) if len(by_number[v].lists) > 1 and by_number[v].lists[1])
    low = next(v for v in range(N) if len(by_number[v].lists) == 1)
    at = FIRST + N * VERTEX
    for vertex in by_number[:high]:
        at += 4 + (len(vertex.lists) - 1) * 4 * (M + 1)
    for value, got in ((low, str(low)), (N, str(N))):
        struct.pack_into("<I", data, at + 8, value)
        (tmp_path / "x").write_bytes(data)
        with pytest.raises(CorruptFile, match=f"vertex {high}: neighbour on a higher level: .* got {got};"):
            reordered(tmp_path / "x", np.arange(N))
    struct.pack_into("<H", data, at + 4, M + 1)
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(CorruptFile, match=f"vertex {high}: list on a higher level: expected 0 to {M}"):
        reordered(tmp_path / "x", np.arange(N))


def test_the_oracle_tells_indexes_apart() -> None:
    first, second = (from_bytes(to_bytes(random_vertices(N, DIM, M, seed), M)) for seed in (1, 2))
    assert isinstance(first, ByLabel)
    assert first != second
