"""The file of deletions, and ids.imx read in blocks."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.oracles.files.hostile import field_offset, patch_page_file, section_offset
from tests.oracles.files.small_index import write_small_index

from indexmill.formats.errors import CorruptFile, FormatError
from indexmill.formats.index.deleted import (
    are_deleted,
    next_generation,
    read_deleted,
    read_deleted_bits,
    write_deleted,
)
from indexmill.formats.index.ids import IdBlocks, read_ids, write_ids
from indexmill.formats.index.manifest import Manifest, read_manifest, write_manifest
from indexmill.formats.index.names import deleted_name, is_deleted_name, kept_generation, kept_name
from indexmill.formats.pagefile.reader import PageFile

N = 3000


@pytest.fixture
def index(tmp_path: Path) -> tuple[Path, Manifest]:
    """An index with 1,500 deleted vectors, on two pages."""
    path = write_small_index(tmp_path / "ix", n=N, dim=4, R=3).path
    manifest = next_generation(path, read_manifest(path), 2, N, np.arange(0, N, 2))
    write_manifest(path, manifest)
    return path, read_manifest(path)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 2**32 - 1), data=st.data())
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, n: int, data: Any) -> None:
    slots = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=40))))
    folder = tmp_path_factory.mktemp("deleted")
    manifest = deletion_of(folder, n, slots)
    found = read_deleted(folder, manifest, n)
    np.testing.assert_array_equal(found, slots)
    others = np.arange(max(0, int(slots[0]) - 3), int(slots[0]) + 50)
    np.testing.assert_array_equal(are_deleted(others, found), np.isin(others, slots))


def deletion_of(folder: Path, n: int, slots: NDArray[np.integer], generation: int = 2) -> Manifest:
    """Write a file of deletions, and return a manifest that names it."""
    name = deleted_name(generation)
    write_deleted(folder / name, n, slots, bytes(range(16)))
    return Manifest(
        "graph", bytes(range(32)).hex(), generation=generation, parameters={}, input={}, software={},
        certificate=None, deleted={"file": name, "vectors": len(slots), "previous": 1}, files=(),
    )  # fmt: skip


@pytest.mark.parametrize("n", [1, 8, 9, 300_001])
def test_bits_are_those_of_the_slots(tmp_path: Path, n: int) -> None:
    gone = np.random.default_rng(n).random(n) < 0.9
    gone[-1] = True
    manifest = deletion_of(tmp_path, n, np.flatnonzero(gone))
    bits = read_deleted_bits(tmp_path, manifest, n)
    assert bits.shape == (-(-n // 8),)
    np.testing.assert_array_equal(np.unpackbits(bits, count=n, bitorder="little"), gone)
    none = replace(manifest, deleted=None)
    assert read_deleted_bits(tmp_path, none, n).shape == read_deleted(tmp_path, none, n).shape == (0,)


def test_slots_ascend_from_block_to_block(tmp_path: Path) -> None:
    n = 200_000
    manifest = deletion_of(tmp_path, n, np.arange(1, n))
    path = tmp_path / deleted_name(2)
    assert len(read_deleted(tmp_path, manifest, n)) == n - 1
    # The first slot of the second block again.
    patch_page_file(path, {section_offset(path, "slots") + 4 * (1 << 17): u32(1 << 17)})
    with pytest.raises(CorruptFile, match="ascending slots below 200000"):
        read_deleted_bits(tmp_path, manifest, n)


def test_reading_bits_takes_little_memory(tmp_path: Path) -> None:
    n = 4_000_000
    manifest = deletion_of(tmp_path, n, np.arange(n))
    tracemalloc.start()
    try:
        read_deleted_bits(tmp_path, manifest, n)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n / 8 + (3 << 20)


@pytest.mark.parametrize("generation", [2, 999_999, 1_000_000, 10**9])
def test_a_generation_of_any_number_has_names(tmp_path: Path, generation: int) -> None:
    assert kept_generation(kept_name(generation)) == generation
    assert is_deleted_name(deleted_name(generation))
    assert len(read_deleted(tmp_path, deletion_of(tmp_path, 9, np.array([3]), generation), 9)) == 1


@pytest.mark.parametrize("digits", ["00002", "0000002", "0999999", "00000a", ""])
def test_other_names_are_not_those_of_a_generation(digits: str) -> None:
    assert kept_generation(f"manifest-{digits}.json") is None
    assert not is_deleted_name(f"deleted-{digits}.imx")


@pytest.mark.parametrize("slots", [[], [3, 3], [4, 2], [-1, 2], [1, 10]])
def test_slots_that_do_not_ascend_are_not_written(tmp_path: Path, slots: list[int]) -> None:
    with pytest.raises(ValueError, match=r"not ascending in \[0, 10\)"):
        write_deleted(tmp_path / "deleted-000002.imx", 10, np.array(slots, np.int64), bytes(16))
    assert list(tmp_path.iterdir()) == []


def u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


@pytest.mark.parametrize(
    ("at", "new", "message"),
    [
        (lambda path: section_offset(path, "slots") + 4, u32(0), "section 'slots': expected ascending slots below"),
        (lambda path: section_offset(path, "slots") + 4 * 1499, u32(N), "section 'slots'"),
        (lambda path: field_offset(path, "n_vertices"), u32(N + 1), "field 'n_vertices': expected 3000"),
        (lambda path: field_offset(path, "n_deleted"), u32(7), "field 'n_deleted': expected 1500"),
        (lambda path: 16, b"?", "build id"),
    ],
)  # fmt: skip
def test_damage_with_valid_checksums_is_found(
    index: tuple[Path, Manifest], at: Callable[[Path], int], new: bytes, message: str
) -> None:
    directory, manifest = index
    path = directory / "deleted-000002.imx"
    assert len(read_deleted(directory, manifest, N)) == 1500
    patch_page_file(path, {at(path): new})
    with pytest.raises(CorruptFile, match=message):
        read_deleted(directory, manifest, N)


def test_every_flipped_byte_is_found(index: tuple[Path, Manifest]) -> None:
    directory, manifest = index
    path = directory / "deleted-000002.imx"
    raw = path.read_bytes()
    for at in range(0, len(raw), 61):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :])
        with pytest.raises(FormatError), PageFile(path, "DELS", manifest.page_file_build_id) as file:
            file.verify()


USERS = {
    "none": None,
    "int64": pa.array(range(-1500, 1500), pa.int64()),
    "uint64": pa.array([2**64 - 1 - i for i in range(N)], pa.uint64()),
    "string": pa.array(["é" * (i % 9) + str(i) for i in range(N)], pa.large_string()),
    "binary": pa.array([bytes([i % 256]) * (i % 700) for i in range(N)], pa.large_binary()),
}


@pytest.mark.parametrize("kind", USERS)
@pytest.mark.parametrize("rows", [1000, 777, N])
def test_blocks_of_ids_are_the_ids(tmp_path: Path, kind: str, rows: int) -> None:
    vector_ids = np.random.default_rng(1).permutation(N).astype(np.uint32)
    write_ids(tmp_path / "ids.imx", vector_ids, USERS[kind])
    whole, users = read_ids(tmp_path / "ids.imx")
    with IdBlocks(tmp_path / "ids.imx") as blocks:
        for by, want in (("vector", pa.array(whole)), ("user", pa.array(whole) if users is None else users)):
            read = list(blocks.read(by, rows))  # type: ignore[arg-type]
            assert [first for first, _ in read] == list(range(0, N, rows))
            assert pa.concat_arrays([block for _, block in read]).equals(want)
            assert {block.type for _, block in read} == {blocks.arrow_type(by)}  # type: ignore[arg-type]


def test_damaged_ids_are_found_in_their_block(tmp_path: Path) -> None:
    path = tmp_path / "ids.imx"
    for section, at, new in (
        ("offsets", 8 * 2500, bytes(8)),
        ("offsets", 8 * N, b"\xff" * 8),
        ("bytes", 0, b"\xff"),
    ):
        write_ids(path, np.arange(N, dtype=np.uint32), USERS["string"])
        patch_page_file(path, {section_offset(path, section) + at: new})
        with IdBlocks(path) as blocks, pytest.raises(CorruptFile, match=rf"ids\.imx: section '{section}'"):
            list(blocks.read("user", 1000))
