"""Codes, entries and ids: they come back, lie where the specification says, and hostile ones are rejected."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.oracles.files.hostile import patch_page_file, section_offset
from tests.oracles.files.small_index import random_user_ids

from indexmill.formats.errors import CorruptFile
from indexmill.formats.graph.codes import Codebook, read_codes, write_codes
from indexmill.formats.graph.entries import EntryVertices, read_entries, write_entries
from indexmill.formats.index.ids import read_ids, write_ids

SETTINGS = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
DIMS = st.sampled_from([1, 50, 2048])
LARGE = {"string": pa.large_string(), "binary": pa.large_binary()}


def codebook(rng: np.random.Generator, dim: int, n_chunks: int, n_centres: int) -> Codebook:
    inner = np.sort(rng.choice(np.arange(1, dim), n_chunks - 1, replace=False)) if n_chunks > 1 else []
    offsets = np.array([0, *inner, dim], np.uint32)
    return Codebook(rng.standard_normal((n_centres, dim)).astype(np.float32), offsets)


@SETTINGS
@given(data=st.data(), n=st.integers(1, 200), dim=DIMS, n_centres=st.sampled_from([1, 2, 255, 256]))
def test_codes_come_back(tmp_path: Path, data: st.DataObject, n: int, dim: int, n_centres: int) -> None:
    rng = np.random.default_rng(n)
    book = codebook(rng, dim, data.draw(st.integers(1, min(dim, 64))), n_centres)
    codes = rng.integers(0, n_centres, (n, len(book.offsets) - 1)).astype(np.uint8)
    cut = data.draw(st.integers(0, n))
    write_codes(tmp_path / "codes.imx", book, n, iter([codes[:cut], codes[cut:]]))
    got, got_codes = read_codes(tmp_path / "codes.imx", bytes(16))
    assert np.array_equal(got.pivots, book.pivots)
    assert np.array_equal(got.offsets, book.offsets)
    assert np.array_equal(got_codes, codes)


@SETTINGS
@given(n=st.integers(1, 200), dim=DIMS, c=st.integers(1, 30))
def test_entries_come_back(tmp_path: Path, n: int, dim: int, c: int) -> None:
    rng = np.random.default_rng(c)
    centroids = rng.standard_normal((c, dim)).astype(np.float32)
    entries = EntryVertices(n - 1, centroids, rng.integers(0, n, c).astype(np.uint32))
    write_entries(tmp_path / "entries.imx", entries, n)
    got = read_entries(tmp_path / "entries.imx", bytes(16), n)
    assert got.medoid == n - 1
    assert np.array_equal(got.centroids, centroids)
    assert np.array_equal(got.vertices, entries.vertices)


@SETTINGS
@given(n=st.integers(1, 200), kind=st.sampled_from(["none", "int64", "uint64", "string", "binary"]))
def test_ids_come_back(tmp_path: Path, n: int, kind: str) -> None:
    rng = np.random.default_rng(n)
    vector_ids = rng.permutation(n).astype(np.uint32)
    user_ids = random_user_ids(rng, n, kind)
    write_ids(tmp_path / "ids.imx", vector_ids, user_ids)
    got_vector_ids, got = read_ids(tmp_path / "ids.imx", bytes(16))
    assert np.array_equal(got_vector_ids, vector_ids)
    assert got == (user_ids if user_ids is None else user_ids.cast(LARGE.get(kind, user_ids.type)))


@SETTINGS
@given(values=st.lists(st.text() | st.just(""), min_size=1, max_size=50), skip=st.integers(0, 3))
def test_any_text_is_an_id_and_a_slice_of_a_longer_array_too(
    tmp_path: Path, values: list[str], skip: int
) -> None:
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        array = pa.array(["before"] * skip + values + ["after"], kind).slice(skip, len(values))
        write_ids(tmp_path / "ids.imx", np.arange(len(values), dtype=np.uint32), array)
        got = read_ids(tmp_path / "ids.imx")[1]
        assert got is not None
        assert got.to_pylist() == values


def test_codes_stand_where_the_specification_says(tmp_path: Path) -> None:
    path = tmp_path / "codes.imx"
    book = Codebook(np.arange(6, dtype=np.float32).reshape(2, 3), np.array([0, 1, 3], np.uint32))
    write_codes(path, book, 4, [np.array([[0, 1], [1, 0], [1, 1], [0, 0]], np.uint8)])
    data = path.read_bytes()
    assert struct.unpack_from("<3I", data, section_offset(path, "offsets")) == (0, 1, 3)
    assert struct.unpack_from("<6f", data, section_offset(path, "pivots")) == (0, 1, 2, 3, 4, 5)
    assert data[section_offset(path, "codes") :][:9] == bytes([0, 1, 1, 0, 1, 1, 0, 0, 0])


def test_a_rotation_stands_before_pivots_of_another_name(tmp_path: Path) -> None:
    path = tmp_path / "codes.imx"
    turn = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]], np.float32)  # (x, y, z) becomes (y, -x, z)
    book = Codebook(np.arange(6, dtype=np.float32).reshape(2, 3), np.array([0, 1, 3], np.uint32), turn)
    assert book.rotated(np.array([[5, 6, 7]], np.uint8)).tolist() == [[6, -5, 7]]
    assert book.decoded(np.array([[1, 0]], np.uint8)).tolist() == [[3, 1, 2]]
    write_codes(path, book, 1, [np.array([[0, 1]], np.uint8)])
    data = path.read_bytes()
    rows = struct.unpack_from("<9f", data, section_offset(path, "rotation"))
    assert rows == (0, 1, 0, -1, 0, 0, 0, 0, 1)  # row j makes component j
    assert struct.unpack_from("<6f", data, section_offset(path, "rotated_pivots")) == (0, 1, 2, 3, 4, 5)
    with pytest.raises(KeyError):
        section_offset(path, "pivots")
    found = read_codes(path)[0]
    assert found.rotation is not None
    np.testing.assert_array_equal(found.rotation, turn)


def test_what_is_no_rotation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "codes.imx"
    book = codebook(np.random.default_rng(0), 8, 4, 16)
    codes = np.zeros((5, 4), np.uint8)
    for wrong in (2 * np.eye(8), np.eye(7), np.full((8, 8), np.nan)):
        with pytest.raises(ValueError, match="rotation of 8 components"):
            write_codes(path, replace(book, rotation=wrong.astype(np.float32)), 5, [codes])
    write_codes(path, replace(book, rotation=np.eye(8, dtype=np.float32)), 5, [codes])
    for new in (struct.pack("<f", 1.1), struct.pack("<f", np.nan)):
        patch_page_file(path, {section_offset(path, "rotation"): new})
        with pytest.raises(CorruptFile, match="section 'rotation': expected rows of length 1"):
            read_codes(path)


def test_string_ids_stand_where_the_specification_says(tmp_path: Path) -> None:
    path = tmp_path / "ids.imx"
    write_ids(path, np.array([2, 0, 1], np.uint32), pa.array(["ab", "", "ü"]))
    data = path.read_bytes()
    assert struct.unpack_from("<3I", data, section_offset(path, "vector_ids")) == (2, 0, 1)
    assert struct.unpack_from("<4Q", data, section_offset(path, "offsets")) == (0, 2, 2, 4)
    assert data[section_offset(path, "bytes") :][:5] == b"ab\xc3\xbc\0"


def test_the_writers_refuse_what_does_not_fit(tmp_path: Path) -> None:
    book = codebook(np.random.default_rng(0), 8, 4, 16)
    codes = np.zeros((5, 4), np.uint8)
    path = tmp_path / "a.imx"
    bad_codes: list[tuple[Codebook, int, Any]] = [
        (book, 6, codes),
        (book, 5, codes.astype(np.int16)),
        (book, 5, codes[:, :3]),
        (book, 5, codes + np.uint8(16)),
        (Codebook(book.pivots, np.array([0, 4, 4, 8, 8], np.uint32)), 5, codes),
        (Codebook(book.pivots, np.array([0, 2, 4, 6, 7], np.uint32)), 5, codes),
    ]
    for wrong_book, n, wrong in bad_codes:
        with pytest.raises(ValueError, match=r"codes|codebook"):
            write_codes(path, wrong_book, n, [wrong])
    centroids = np.zeros((2, 3), np.float32)
    for medoid, vertices in ((5, [0, 1]), (0, [0, 5]), (0, [0])):
        with pytest.raises(ValueError, match="entries"):
            write_entries(path, EntryVertices(medoid, centroids, np.array(vertices, np.uint32)), 5)
    three = np.array([1, 2, 0], np.uint32)
    bad_ids = [
        (np.array([0, 1, 1], np.uint32), None),
        (np.array([0, 1, 3], np.uint32), None),
        (three, pa.array([1, 2])),
        (three, pa.array([1, None, 2])),
        (three, pa.array([1.5, 2.5, 3.5])),
    ]
    for vector_ids, user_ids in bad_ids:
        with pytest.raises(ValueError, match="ids"):
            write_ids(path, vector_ids, user_ids)
    assert list(tmp_path.iterdir()) == []


def test_hostile_codes_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "codes.imx"
    write_codes(path, codebook(np.random.default_rng(0), 8, 4, 16), 5, [np.zeros((5, 4), np.uint8)])
    good = path.read_bytes()
    for section, at, new, message in (
        ("codes", 9, b"\x10", "code of slot 2: expected values below 16, got 16"),
        ("offsets", 0, b"\1", "section 'offsets'"),
        ("offsets", 4, b"\xff" * 4, "section 'offsets'"),
    ):
        path.write_bytes(good)
        patch_page_file(path, {section_offset(path, section) + at: new})
        with pytest.raises(CorruptFile, match=message):
            read_codes(path)


def test_hostile_entries_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "entries.imx"
    write_entries(path, EntryVertices(1, np.zeros((2, 3), np.float32), np.array([0, 4], np.uint32)), 5)
    with pytest.raises(CorruptFile, match="field 'n_vertices': expected 6, got 5"):
        read_entries(path, None, 6)
    patch_page_file(path, {section_offset(path, "vertices") + 4: b"\5"})
    with pytest.raises(CorruptFile, match="entry vertex 1: expected a slot below 5, got 5"):
        read_entries(path)


def test_hostile_ids_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "ids.imx"
    write_ids(path, np.array([1, 2, 0], np.uint32), pa.array(["ab", "c", "ü"]))
    good = path.read_bytes()
    for section, at, new, message in (
        ("vector_ids", 0, b"\2", "a permutation"),
        ("vector_ids", 0, b"\xff\xff\xff\xff", "a permutation"),
        ("offsets", 0, b"\1", "section 'offsets': ends"),
        ("offsets", 24, b"\4", "section 'offsets': ends"),
        ("offsets", 8, b"\xff" * 8, "user id of slot 1"),
        ("bytes", 4, b"\xff", "UTF-8"),
    ):
        path.write_bytes(good)
        patch_page_file(path, {section_offset(path, section) + at: new})
        with pytest.raises(CorruptFile, match=message):
            read_ids(path)
