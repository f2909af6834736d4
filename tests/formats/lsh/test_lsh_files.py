"""The files of an LSH index: their contents, and the damage that a decoder names."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from tests.oracles.lsh import tables as oracle
from tests.oracles.lsh.verify import lsh_problems
from tests.support.indexes.lsh import build_lsh, clusters, damaged

from indexmill.builders.lsh.pack import BlockPacker
from indexmill.formats.errors import CorruptFile, OtherKind, TooNew
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.index.manifest import parse_manifest
from indexmill.formats.index.vectors import RowFormat, VectorsFile, write_vectors
from indexmill.formats.lsh import blocks
from indexmill.formats.lsh.functions import HashFunctions, SearchDefaults, write_functions
from indexmill.formats.lsh.index import LshFiles
from indexmill.formats.lsh.shape import BLOCK_BYTES, LshShape, block_capacity, pointers_to
from indexmill.formats.pagefile.frame import checksum

N, DIM = 700, 6


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All buckets of its widest radius are chains: 22 entries a block."""
    out = tmp_path_factory.mktemp("lsh") / "index"
    build_lsh(out, clusters(N, DIM), n_tables=3, n_functions=4, n_radii=4, block_bytes=128, workers=1)
    return out


def longest_chain(files: LshFiles) -> tuple[int, int]:
    """(pointer, blocks) of the longest chain."""
    pointers = files.pairs[0].tables.all_pointers()
    best = int(pointers[np.argmax(pointers >> np.uint64(48))])
    return best % 2**48, best >> 48


def test_capacities_are_those_of_the_specification() -> None:
    assert {size: block_capacity(size) for size in BLOCK_BYTES} == {
        128: 22, 256: 48, 512: 99, 1024: 201, 2048: 406, 4096: 816,
    }  # fmt: skip


def test_a_slot_that_needs_many_bits_leaves_the_fingerprint_fewer() -> None:
    small, large = LshShape(1000, 1, 1, 4, 512), LshShape(2**32 - 1, 1, 1, 4, 512)
    assert (small.id_bits, small.fingerprint_bits) == (10, 28)
    assert (large.id_bits, large.fingerprint_bits) == (32, 8)
    assert LshShape(1, 1, 1, 0, 512).id_bits == 1
    assert LshShape(1025, 1, 1, 4, 512).id_bits == 11


def test_packed_blocks_hold_what_was_put_in_however_it_was_cut() -> None:
    rng = np.random.default_rng(1)
    sizes = rng.integers(0, 120, 40)
    buckets = np.repeat(np.arange(7, 47, dtype=np.uint32), sizes)
    fingerprints, slots = (rng.integers(0, 2**20, len(buckets), np.uint32) for _ in range(2))
    pieces, counts = packed(buckets, fingerprints, slots, len(buckets))
    expected = np.concatenate(pieces)
    assert len(expected) == int((-(-sizes // 22)).sum())
    entries = fingerprints.astype(np.uint64) << np.uint64(20) | slots
    assert np.array_equal(blocks.entries_of(expected), entries)
    assert counts.tolist() == sizes.tolist()
    for cut in (1, 7, 50):
        pieces, again = packed(buckets, fingerprints, slots, cut)
        assert np.array_equal(np.concatenate(pieces), expected)
        assert np.array_equal(again, counts)


def packed(
    buckets: np.ndarray, fingerprints: np.ndarray, slots: np.ndarray, cut: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Blocks and counts of entries that come `cut` at a time."""
    packer = BlockPacker(128, 20, 7, 47)
    pieces = [
        packer.add(buckets[a : a + cut], fingerprints[a : a + cut], slots[a : a + cut])
        for a in range(0, len(buckets), cut)
    ]
    return [*pieces, packer.finish()], packer.counts


def test_a_run_longer_than_16_bits_is_cut_and_an_empty_bucket_is_zero() -> None:
    pointers = pointers_to(np.array([0, 5, 9]), np.array([0, 3, 70_000]), 512).tolist()
    assert pointers == [0, 3 << 48 | 4096 + 5 * 512, 65535 << 48 | 4096 + 9 * 512]


@pytest.mark.parametrize(
    ("dim", "dtype"), [(3, "float32"), (1030, "float32"), (7, "uint8"), (5, "float16"), (4100, "int8")]
)
def test_vectors_come_back_from_pages_of_several_and_from_several_pages(
    tmp_path: Path, dim: int, dtype: str
) -> None:
    vectors = (np.random.default_rng(2).normal(size=(61, dim)) * 50).clip(0, 100).astype(dtype)
    row = RowFormat(dim, dtype)
    write_vectors(tmp_path / "v.imx", row, 61, "l2", vectors)
    raw = (tmp_path / "v.imx").read_bytes()
    with VectorsFile(tmp_path / "v.imx") as file:
        assert np.array_equal(file.read(0, 61), vectors)
        assert np.array_equal(file.read(17, 9), vectors[17:26])
        assert np.array_equal(np.concatenate([block for _, block in file.blocks()]), vectors)
        some = np.random.default_rng(3).integers(61, size=100).astype(np.uint32)
        assert np.array_equal(file.take(some), vectors[some])
        assert file.take(some[:0]).shape == (0, dim)
        with pytest.raises(IndexError):
            file.take(np.array([3, 61], np.uint32))
    for slot in (0, 13, 60):
        page = slot // row.rows_per_page if row.rows_per_page else slot * row.pages_per_row
        at = 4096 + page * 4096 + (slot % row.rows_per_page * row.vector_bytes if row.rows_per_page else 0)
        assert raw[at : at + vectors[slot].nbytes] == vectors[slot].tobytes()


def test_functions_that_do_not_fit_together_are_not_written(tmp_path: Path) -> None:
    good = HashFunctions(
        np.ones((2, 3, 4), np.float32),
        np.ones((1, 2, 3), np.float32),
        np.ones((2, 3), np.uint64),
        np.ones(1),
        4.0,
    )
    shape = LshShape(10, 2, 1, 0, 512)
    write_functions(tmp_path / "f.imx", shape, good, SearchDefaults(2.0, 4, 0))
    for name, value in {
        "multipliers": np.full((2, 3), 2, np.uint64),
        "radii": np.zeros(1),
        "offsets": np.full((1, 2, 3), 5, np.float32),
        "width": 0.0,
    }.items():
        bad = HashFunctions(**{**vars(good), name: value})
        with pytest.raises(ValueError, match=name):
            write_functions(tmp_path / "f.imx", shape, bad, SearchDefaults(2.0, 4, 0))


def test_both_decoders_read_the_same_chains(index: Path) -> None:
    with LshFiles(index) as files:
        decoded = oracle.Decoded.of(files)
        for e, pointer in enumerate(files.pairs[0].tables.all_pointers().tolist()):
            assert decoded.pointer(e) == pointer
            if pointer:
                slots, fingerprints = files.pairs[0].buckets.split(files.pairs[0].buckets.chain(pointer))
                assert decoded.chain(e) == list(zip(slots.tolist(), fingerprints.tolist(), strict=True))


def test_a_sound_index_has_nothing_wrong(index: Path) -> None:
    assert lsh_problems(index) == []


def test_an_index_of_one_kind_is_not_taken_for_the_other(index: Path) -> None:
    with pytest.raises(OtherKind, match="expected an index of kind graph, got one of kind lsh"):
        IndexFiles(index)


def test_a_kind_of_the_future_is_too_new(index: Path, tmp_path: Path) -> None:
    text = (index / "manifest.json").read_text().replace('"kind": "lsh"', '"kind": "tsh"', 1)
    body = text[:-81]
    digest = hashlib.sha256(body.encode()).hexdigest()
    (tmp_path / "manifest.json").write_text(f'{body}  "digest": "{digest}"\n}}\n')
    with pytest.raises(TooNew, match="expected 'graph' or 'lsh' or 'ivf', got 'tsh'"):
        parse_manifest(tmp_path)


def problems(index: Path) -> str:
    found = lsh_problems(index)
    assert len(found) == 1, found
    return found[0]


def with_block(index: Path, out: Path, at: int, offset: int, new: bytes) -> Path:
    return damaged(index, out, "buckets.imx", {at + offset: new}, seal_block=128)


def test_damaged_chains_are_named_and_never_followed_for_ever(index: Path, tmp_path: Path) -> None:
    with LshFiles(index) as files:
        head, length = longest_chain(files)
        end = 4096 + files.pairs[0].buckets.n_blocks * 128
    assert length >= 3
    second = head + 128
    run = 1 << 48
    for name, at, field, new, said in (
        (
            "itself",
            head,
            8,
            (run | head).to_bytes(8, "little"),
            "next pointer: expected a block further on (else a cycle)",
        ),
        (
            "back",
            second,
            8,
            (run | head).to_bytes(8, "little"),
            "next pointer: expected a block further on (else a cycle)",
        ),
        ("far", head, 8, (run | end).to_bytes(8, "little"), "next pointer: expected the offset of a block"),
        (
            "inside",
            head,
            8,
            (run | second + 5).to_bytes(8, "little"),
            "next pointer: expected the offset of a block",
        ),
        ("long", head, 8, (60_000 << 48 | second).to_bytes(8, "little"), "expected a run of 1.."),
        (
            "skips",
            head,
            8,
            (run | second + 128).to_bytes(8, "little"),
            "expected one pointer that leads to it",
        ),
        ("many", head, 4, (23).to_bytes(2, "little"), "count: expected 1..22, got 23"),
        ("none", head, 4, bytes(2), "count: expected 1..22, got 0"),
        ("slot", head, 16, (N).to_bytes(2, "little"), f"slot: expected below {N}, got"),
    ):
        bad = with_block(index, tmp_path / name, at, field, new)
        message = problems(bad)
        assert said in message, (name, message)
        assert "buckets.imx" in message
        refused = (
            nullcontext() if name == "skips" else pytest.raises(CorruptFile)
        )  # a chain alone cannot tell
        with LshFiles(bad) as files, refused:
            files.pairs[0].buckets.chain(run | head)


def test_a_damaged_block_is_told_from_its_page(index: Path, tmp_path: Path) -> None:
    bad = damaged(index, tmp_path / "x", "buckets.imx", {4096 + 128 + 20: b"\xff"})
    assert "block 1 (offset 4224): CRC32C" in problems(bad)


def test_entries_in_the_wrong_place_are_found_from_the_vectors(index: Path, tmp_path: Path) -> None:
    with LshFiles(index) as files:
        block = files.pairs[0].buckets.read(0, 1)
        entry = int(blocks.entries_of(block)[-1])
        count = int(blocks.counts_of(block)[0])
    other = (entry ^ 1 << 39).to_bytes(5, "little")  # another fingerprint, in order still
    bad = with_block(index, tmp_path / "x", 4096, 16 + 5 * (count - 1), other)
    assert "as its vector hashes" in problems(bad)
    bad = with_block(index, tmp_path / "y", 4096, 4, (count - 1).to_bytes(2, "little"))
    assert f"table 0 of radius 0: expected all {N} slots" in problems(bad)


def test_pointers_that_the_bitmap_does_not_know_are_found(index: Path, tmp_path: Path) -> None:
    with LshFiles(index) as files:
        pointers = files.pairs[0].tables.all_pointers()
        full, empty = int(np.flatnonzero(pointers)[0]), int(np.flatnonzero(pointers == 0)[0])
        head = int(pointers[full])
    bad = damaged(index, tmp_path / "x", "tables.imx", {4096 + 8 * full: bytes(8)})
    assert f"entry {full}: expected a bucket with entries as in the bitmap, got pointer 0" in problems(bad)
    bad = damaged(index, tmp_path / "y", "tables.imx", {4096 + 8 * empty: head.to_bytes(8, "little")})
    assert f"entry {empty}: expected an empty bucket as in the bitmap" in problems(bad)


def test_a_functions_file_of_another_index_is_refused(index: Path, tmp_path: Path) -> None:
    raw = (index / "functions.imx").read_bytes()
    at = raw.index(b"hash_bits".ljust(16, b"\0")) + 16
    patched = bytearray(raw)
    patched[at] ^= 1
    patched[4092:4096] = checksum(bytes(patched[:4092])).to_bytes(4, "little")
    shutil.copytree(index, tmp_path / "x")
    (tmp_path / "x" / "functions.imx").write_bytes(patched)
    with pytest.raises(CorruptFile, match="as the rest of the index says"):
        LshFiles(tmp_path / "x")


@pytest.mark.parametrize("size", [16, 19, 20, 128, 509, 512])
def test_checksums_of_blocks_are_crc32c(size: int) -> None:
    sealed = np.random.default_rng(size).integers(0, 256, (40, size), dtype=np.uint8)
    blocks.seal_blocks(sealed, np.zeros(40, np.uint64), np.arange(40, dtype=np.uint64))
    stated = sealed[:, :4].copy().view("<u4")[:, 0]
    assert stated.tolist() == [checksum(block[4:].tobytes()) for block in sealed]
    assert len(blocks.bad_checksums(sealed)) == 0
    sealed[7, 9] ^= 1
    assert blocks.bad_checksums(sealed).tolist() == [7]
