"""faiss's inverted lists in another order: the same lists under other numbers, and damage is refused."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import suppress
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
from tests.support.indexes.made_by_faiss import lists_of, make_ivf, write_on_disk

from indexmill.formats.errors import CorruptFile, ForeignFile, FormatError, InputError
from indexmill.formats.reordered.opening import open_engine_file

N, DIM, LISTS = 600, 8, 12
ROWS = clustered_rows(N, dim=DIM)
IDS = np.random.default_rng(8).permutation(N) + 7_000_000_000

#: Every kind of file that is laid out.
MADE: dict[str, Callable[[], Any]] = {
    "flat": lambda: make_ivf(ROWS, f"IVF{LISTS},Flat"),
    "ip": lambda: make_ivf(ROWS, f"IVF{LISTS},Flat", faiss.METRIC_INNER_PRODUCT),
    "own-ids": lambda: make_ivf(ROWS, f"IVF{LISTS},Flat", ids=IDS),
    "sq8": lambda: make_ivf(ROWS, f"IVF{LISTS},SQ8"),
    "fp16": lambda: make_ivf(ROWS, f"IVF{LISTS},SQfp16"),
    "sq4": lambda: make_ivf(ROWS, f"IVF{LISTS},SQ4"),
    "pq": lambda: make_ivf(ROWS, f"IVF{LISTS},PQ4x4"),
    "rabitq": lambda: make_ivf(ROWS, f"IVF{LISTS},RaBitQ"),
    "rabitq-4": lambda: make_ivf(ROWS, f"IVF{LISTS},RaBitQ4"),
    "rotated": lambda: make_ivf(ROWS, f"RR,IVF{LISTS},RaBitQ"),
    "opq": lambda: make_ivf(ROWS, f"OPQ2,IVF{LISTS},PQ2x4"),
    "pca": lambda: make_ivf(ROWS, f"PCA4,IVF{LISTS},Flat"),
    "unit": lambda: make_ivf(ROWS, f"L2norm,IVF{LISTS},Flat"),
    "mapped": lambda: make_ivf(ROWS, f"IDMap,IVF{LISTS},SQ8", ids=IDS),
    "mapped2": lambda: make_ivf(ROWS, f"IDMap2,OPQ2,IVF{LISTS},PQ2x4", ids=IDS),
    "sparse": lambda: sparse(),
}


def sparse() -> Any:
    """Most lists are empty."""
    index = make_ivf(ROWS, f"IVF{LISTS},Flat")
    home = index.quantizer.search(ROWS, 1)[1].ravel()
    index.reset()
    index.add(ROWS[home % 4 == 1])
    return index


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    for name, make in MADE.items():
        faiss.write_index(make(), str(folder / name))
    write_on_disk(MADE["own-ids"](), folder / "on-disk")
    return folder


@pytest.mark.parametrize("name", [*MADE, "on-disk"])
def test_the_lists_that_faiss_reads_are_the_same_under_their_new_numbers(
    files: Path, tmp_path: Path, name: str
) -> None:
    order = np.random.default_rng(2).permutation(LISTS)
    (tmp_path / "new").write_bytes(reordered(files / name, order))
    before, after = lists_of(files / name), lists_of(tmp_path / "new")
    assert (after["kind"], after["outer"]) == (before["kind"], before["outer"])
    assert np.array_equal(after["centroids"], before["centroids"][order])
    for what in ("ids", "codes"):
        assert after[what] == [before[what][number] for number in order]
    assert sum(map(len, after["ids"])) == 8 * open_engine_file(files / name).n_vectors
    assert (tmp_path / "new").stat().st_size == open_engine_file(files / name).size


@pytest.mark.parametrize("name", MADE)
def test_the_order_of_the_file_gives_the_file(files: Path, name: str) -> None:
    assert reordered(files / name, np.arange(LISTS)) == (files / name).read_bytes()


def test_lists_of_a_file_on_their_own_come_into_the_new_file(files: Path) -> None:
    assert open_engine_file(files / "on-disk").files == (files / "on-disk", files / "on-disk.ivfdata")
    assert reordered(files / "on-disk", np.arange(LISTS)) == (files / "own-ids").read_bytes()


@pytest.mark.parametrize("name", ["pq", "mapped2", "sparse"])
@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_an_order_and_its_inverse_give_the_file_back(files: Path, name: str, seed: int) -> None:
    check_there_and_back(files / name, seed)


def test_points_are_centroids(files: Path) -> None:
    file = open_engine_file(files / "pq")
    assert (file.n, file.n_vectors) == (LISTS, N)
    assert np.array_equal(file.points, lists_of(files / "pq")["centroids"])


def test_progress_counts_every_list_as_often_as_is_said(files: Path) -> None:
    told: list[int] = []
    file = open_engine_file(files / "flat")
    file.write(np.arange(LISTS, dtype=np.uint32), io.BytesIO(), told.append)
    assert sum(told) == file.passes * LISTS


def test_a_damaged_file_is_refused(files: Path, tmp_path: Path) -> None:
    flat, pq, sq8, mapped = ((files / name).read_bytes() for name in ("flat", "pq", "sq8", "mapped"))
    lists, coarse = 37, 37 + 16
    codec = coarse + 4 + 33 + 8 + 4 * LISTS * DIM + 1 + 8
    third = coarse + 4 + 33 + 8 + 4 * 2 * DIM
    cases: list[tuple[bytes, Change, str]] = [
        (flat, put("<Q", lists, 0), rf"storage: expected 0 x {DIM} as its owner"),
        (flat, put("<f", third + 8, np.nan), rf"byte {third}: centroid 2: expected finite numbers"),
        (
            mapped,
            put("<f", third + 37 + 8, -np.inf),
            rf"byte {third + 37}: centroid 2: expected finite numbers",
        ),
        (flat, put("<Q", lists, LISTS + 1), rf"storage: expected {LISTS + 1} x {DIM} as its owner"),
        (flat, put("<Q", coarse + 37, LISTS), rf"components: expected {LISTS} x {DIM}"),
        (flat, put("<Q", codec + 4, 11), rf"lists: expected {LISTS} of {4 * DIM}, got 11 lists of"),
        (flat, put("<Q", codec + 32, 1 << 40), r"size of list 0: expected at most"),
        (flat, put("<Q", codec + 32, 0), r"sizes of the lists: expected 600 in all"),
        (flat, put("<q", 8, N + 1), rf"sizes of the lists: expected {N + 1} in all"),
        (flat, add(), "the end of the file, got 4 more bytes"),
        (flat, cut(-1), "lists at byte"),
        (pq, put("<Q", codec + 1, 7), r"codec: expected 8 components, and twice the same 1 to 52 bytes"),
        (pq, put("<Q", codec + 9, 9), r"codec: expected 8 components.* got 9 components, 2 and 2 bytes"),
        (pq, put("<QQQQ", codec + 1, 2**60, DIM, 2**60, 8), r"codec: .* 1,152,921,504,606,846,976 and"),
        (sq8, put("<Q", codec + 20, 2**64 - 1), r"codec: .* 18,446,744,073,709,551,615 and 8 bytes a code"),
        (mapped, put("<q", 8, N + 1), "one a vector, got 601 vectors and 600 ids"),
        (mapped, cut(-8), "ids at byte"),
    ]
    for data, change, message in cases:
        check_refused(tmp_path / "x", data, change, message, read_whole)


def test_lists_that_are_missing_or_shorter_are_refused(files: Path, tmp_path: Path) -> None:
    for name in ("on-disk", "on-disk.ivfdata"):
        (tmp_path / name).write_bytes((files / name).read_bytes())
    file = open_engine_file(tmp_path / "on-disk")
    os.truncate(tmp_path / "on-disk.ivfdata", 100)
    with pytest.raises(CorruptFile, match=r"on-disk.ivfdata: byte .* more bytes, got the end of the file"):
        file.write(np.arange(LISTS, dtype=np.uint32), io.BytesIO(), lambda lists: None)
    with pytest.raises(CorruptFile, match=r"on-disk.ivfdata: size of the file"):
        open_engine_file(tmp_path / "on-disk")
    (tmp_path / "on-disk.ivfdata").unlink()
    with pytest.raises(InputError, match=r"on-disk.ivfdata: no such file"):
        open_engine_file(tmp_path / "on-disk")


def with_map(kind: int) -> Any:
    index = make_ivf(ROWS, f"IVF{LISTS},Flat")
    index.set_direct_map_type(kind)
    return index


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: make_ivf(ROWS, f"IVF{LISTS}_HNSW4,Flat"),
            r"coarse quantizer: expected a flat index .* got 'IHNf'; only lists under these are laid out",
        ),
        (lambda: with_map(faiss.DirectMap.Array), r"direct map: expected none.* got an array; drop it with"),
        (lambda: with_map(faiss.DirectMap.Hashtable), r"direct map: expected none.* got a hash table; drop it with"),
        (lambda: make_ivf(ROWS, f"IVF{LISTS},PQ2x4fs"), r"kind of index: expected .* got 'IwPf'"),
        (lambda: make_ivf(ROWS, f"IVF{LISTS},PQ2+2"), r"kind of index: expected .* got 'IwQR'"),
        (lambda: make_ivf(ROWS, f"ITQ4,IVF{LISTS},Flat"), r"kind of transform: expected VNrm, .* got 'Viqt'"),
        (
            lambda: make_ivf(ROWS, "RR,HNSW4,Flat"),
            r"got 'IHNf'; a transform stands before the graph; lay out the index within",
        ),
        (lambda: make_ivf(ROWS, "RR,Flat"), r"kind of index: expected faiss IndexIVFFlat .* got 'IxF2'"),
        (lambda: make_ivf(ROWS, "Flat"), r"expected .*IndexHNSWFlat .*IndexIVFFlat .*, or an hnswlib index, got 'IxF2"),
    ],
)  # fmt: skip
def test_other_kinds_of_files_are_refused_by_name(
    tmp_path: Path, make: Callable[[], Any], message: str
) -> None:
    faiss.write_index(make(), str(tmp_path / "x"))
    before = (tmp_path / "x").read_bytes()
    with pytest.raises(ForeignFile, match=message) as refusal:
        open_engine_file(tmp_path / "x")
    assert str(tmp_path / "x") in str(refusal.value)
    assert (tmp_path / "x").read_bytes() == before


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(["flat", "pq", "sq8", "opq", "mapped", "sparse", "rabitq-4", "on-disk"]),
    damage=damages(0.05, [N, LISTS]),
)
def test_any_damage_is_read_or_refused(files: Path, name: str, damage: Damage) -> None:
    (files / "damaged").write_bytes(damage.of((files / name).read_bytes()))
    with suppress(FormatError, InputError):
        read_whole(files / "damaged")
