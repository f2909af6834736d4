"""Page files: sections and fields, checksums of every page, versions, and writes that are whole or absent."""

from __future__ import annotations

import errno
import hashlib
import os
import struct
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.oracles.files.hostile import patch_page_file

from indexmill.formats.errors import CorruptFile, ForeignFile, FormatError, TooNew, TooOld
from indexmill.formats.pagefile.atomic import atomic_write, copy_file, write_json_atomic
from indexmill.formats.pagefile.frame import f64_from_bits
from indexmill.formats.pagefile.reader import PageFile, content_digest
from indexmill.formats.pagefile.writer import PageFileWriter, stamp_build_id

PAGE = 4096


def write(path: Path, sections: dict[str, bytes], fields: dict[str, int | float] | None = None) -> Path:
    with PageFileWriter(path, "TEST", fields or {"n": 5}) as file:
        for name, payload in sections.items():
            with file.section(name) as section:
                section.write(payload)
    return path


def check_all(path: Path) -> None:
    with PageFile(path, "TEST") as file:
        file.verify()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path / "a.imx", {"first": bytes(range(256)) * 20, "empty": b"", "last": b"x" * 10})


NAMES = st.text("abcdefghijklmnop_", min_size=1, max_size=16).filter(lambda name: name != "crc")
PAYLOADS = st.one_of(
    st.binary(max_size=64), st.sampled_from([4095, 4096, 4097, 12288, 20001]).map(lambda n: b"\7" * n)
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sections=st.dictionaries(NAMES, PAYLOADS, max_size=6),
    fields=st.dictionaries(NAMES, st.integers(0, 2**64 - 1) | st.floats(allow_nan=False), max_size=100),
    piece=st.integers(1, 9000),
)
def test_sections_and_fields_come_back_whatever_the_size_of_the_pieces(
    tmp_path: Path, sections: dict[str, bytes], fields: dict[str, int | float], piece: int
) -> None:
    path = tmp_path / "a.imx"
    with PageFileWriter(path, "TEST", fields) as file:
        for name, payload in sections.items():
            with file.section(name) as section:
                for at in range(0, len(payload), piece):
                    section.write(payload[at : at + piece])
    with PageFile(path, "TEST", bytes(16)) as opened:
        opened.verify()
        for name, payload in sections.items():
            assert opened.section(name) == payload
        for field, value in fields.items():
            got = opened.field(field)
            assert (f64_from_bits(got) if isinstance(value, float) else got) == value
    assert path.stat().st_size % PAGE == 0


def test_arrays_are_written_as_their_bytes(tmp_path: Path) -> None:
    array = np.arange(3000, dtype="<f4").reshape(30, 100)
    with PageFileWriter(tmp_path / "a.imx", "TEST", {}) as file, file.section("a") as section:
        section.write(array[:7])
        section.write(memoryview(array[7:]))
    with PageFile(tmp_path / "a.imx", "TEST") as opened:
        assert opened.section("a") == array.tobytes()


def test_bytes_stand_where_the_specification_says(small: Path) -> None:
    data = small.read_bytes()
    assert google_crc32c.value(b"123456789") == 0xE3069283  # the published check value of CRC32C
    assert data[:16] == b"\x89IMILL\r\nTEST\1\0\3\0"
    assert data[16:32] == bytes(16)
    assert struct.unpack_from("<IHHQ", data, 32) == (4096, 4, 1, len(data))
    assert len(data) == 6 * PAGE  # header, 2 + 0 + 1 pages, crc, footer
    table = [struct.unpack_from("<16sQQQ", data, 64 + 40 * i) for i in range(4)]
    assert [(name.rstrip(b"\0"), *rest) for name, *rest in table] == [
        (b"first", 1, 2, 5120),
        (b"empty", 3, 0, 0),
        (b"last", 3, 1, 10),
        (b"crc", 4, 1, 12),
    ]
    assert struct.unpack_from("<16sQ", data, 64 + 160) == (b"n".ljust(16, b"\0"), 5)
    sums = [google_crc32c.value(data[p * PAGE : (p + 1) * PAGE]) for p in (1, 2, 3)]
    assert list(struct.unpack_from("<3I", data, 4 * PAGE)) == sums
    assert struct.unpack_from("<8sQI", data, 5 * PAGE) == (
        b"IMILLEND",
        len(data),
        google_crc32c.value(data[4 * PAGE : 5 * PAGE]),
    )
    for page in (0, 5):
        (stored,) = struct.unpack_from("<I", data, page * PAGE + 4092)
        assert stored == google_crc32c.value(data[page * PAGE : page * PAGE + 4092])


def test_every_flipped_byte_is_found_without_a_manifest(small: Path) -> None:
    data = small.read_bytes()
    interesting = [
        *range(0, 300),
        *range(4080, 4100),
        *range(4 * PAGE, 4 * PAGE + 16),
        *range(5 * PAGE, 5 * PAGE + 24),
    ]
    for at in {*interesting, *range(0, len(data), 13), len(data) - 1}:
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        small.write_bytes(damaged)
        with pytest.raises(FormatError):
            check_all(small)
    small.write_bytes(data)
    check_all(small)


def test_a_damaged_page_is_named_and_the_others_stay_readable(small: Path) -> None:
    data = bytearray(small.read_bytes())
    data[2 * PAGE + 7] ^= 1
    small.write_bytes(data)
    with PageFile(small, "TEST") as file:
        assert file.section("last") == b"x" * 10
        assert len(file.read_pages("first", 0, 1)) == PAGE
        with pytest.raises(
            CorruptFile, match=r"a\.imx: page 2 \(offset 8192\): CRC32C: expected \w{8}, got \w{8}; "
        ):
            file.section("first")


@pytest.mark.parametrize("length", [0, 1, 8, 4095, 4096, 8191, 8192, 12288, 20480, 24575])
def test_a_truncated_file_is_rejected_when_opened(small: Path, length: int) -> None:
    small.write_bytes(small.read_bytes()[:length])
    with pytest.raises(ForeignFile if length < 2 * PAGE else CorruptFile, match=r"a\.imx.*expected.*got"):
        PageFile(small, "TEST")


def test_a_longer_file_is_rejected(small: Path) -> None:
    small.write_bytes(small.read_bytes() + bytes(PAGE))
    with pytest.raises(
        CorruptFile, match=r"size of the file \(offset 40\): expected 24576 bytes, got 28672 bytes"
    ):
        PageFile(small, "TEST")


def test_another_file_is_foreign(tmp_path: Path) -> None:
    path = tmp_path / "a.imx"
    path.write_bytes(b"PAR1" + bytes(3 * PAGE))
    with pytest.raises(
        ForeignFile, match=r"a\.imx: offset 0: expected the magic .* not a page file of indexmill"
    ):
        PageFile(path, "TEST")


def test_a_newer_and_an_older_major_are_told_apart(small: Path) -> None:
    patch_page_file(
        small, {12: b"\2\0\7\0", 36: b"\xff\xff"}
    )  # the version comes before the rest of the header
    with pytest.raises(TooNew, match=r"a\.imx: format version: expected major 1, got 2\.7; install a newer"):
        PageFile(small, "TEST")


def test_an_older_major_is_too_old(small: Path) -> None:
    patch_page_file(small, {12: b"\0\0\3\0"})
    with pytest.raises(TooOld, match=r"expected major 1, got 0\.3; build the index again"):
        PageFile(small, "TEST")


def test_a_higher_minor_is_read(small: Path) -> None:
    patch_page_file(small, {14: b"\x09\0"})
    with PageFile(small, "TEST") as file:
        file.verify()
        assert file.section("last") == b"x" * 10


def test_a_foreign_build_id_is_rejected(small: Path) -> None:
    stamp_build_id(small, b"A" * 16)
    with PageFile(small, "TEST", b"A" * 16) as file:
        assert file.header.build_id == b"A" * 16
    with pytest.raises(
        CorruptFile, match=r"build id \(offset 16\): expected (42){16}.*got (41){16}.*another build"
    ) as error:
        PageFile(small, "TEST", b"B" * 16)
    assert "copy the whole index" in str(error.value)


HOSTILE = {
    "kind": ({8: b"GRPH"}, r"kind \(offset 8\): expected TEST, got GRPH"),
    "page bytes": ({32: struct.pack("<I", 8192)}, "page bytes"),
    "no sections": ({36: b"\0\0"}, "number of sections"),
    "17 sections": ({36: b"\x11\0"}, "number of sections"),
    "101 fields": ({38: b"\x65\0"}, "number of fields"),
    "size": ({40: struct.pack("<Q", 2**63)}, "size of the file"),
    "first page": ({64 + 16: struct.pack("<Q", 2)}, "section 'first': first page: expected 1, got 2"),
    "huge pages": ({64 + 24: struct.pack("<Q", 2**60)}, "section 'first': pages: expected 2"),
    "huge payload": ({64 + 24: struct.pack("<QQ", 2**52, 2**64 - 1)}, "section 'empty': first page"),
    "overlap": ({104 + 16: struct.pack("<Q", 1)}, "section 'empty': first page: expected 3, got 1"),
    "same name": ({104: b"first"}, "section table"),
    "no name": ({64: bytes(16)}, "name in the header"),
    "crc not last": ({64 + 120: b"abc"}, "section table"),
    "crc payload": ({64 + 120 + 32: struct.pack("<Q", 8)}, "section 'crc': payload"),
    "footer size": ({5 * PAGE + 8: struct.pack("<Q", 1)}, "footer page .*: size"),
    "footer magic": ({5 * PAGE: b"X"}, "footer page .*: magic"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_header_with_valid_checksums_but_wrong_content_is_rejected(small: Path, name: str) -> None:
    changes, message = HOSTILE[name]
    data = small.read_bytes()
    for at, new in changes.items():  # patch_page_file reads the table, so the header's CRC is renewed by hand
        data = data[:at] + new + data[at + len(new) :]
    for page in (0, 5 * PAGE):
        data = (
            data[: page + 4092]
            + struct.pack("<I", google_crc32c.value(data[page : page + 4092]))
            + data[page + PAGE :]
        )
    small.write_bytes(data)
    with pytest.raises(CorruptFile, match=message):
        PageFile(small, "TEST")


def test_pages_outside_a_section_cannot_be_read(small: Path) -> None:
    with PageFile(small, "TEST") as file:
        for first, count in ((0, 3), (2, 1), (-1, 1), (1, -1)):
            with pytest.raises(IndexError):
                file.read_pages("first", first, count)
        assert file.read_pages("first", 2, 0) == b""
        with pytest.raises(CorruptFile, match="a section 'absent'"):
            file.section("absent")
        with pytest.raises(CorruptFile, match=r"field 'absent': expected 0\.\.9, got nothing"):
            file.field("absent", 0, 9)


def test_stamping_a_build_id_twice_is_stamping_it_once_and_leaves_the_content_digest(small: Path) -> None:
    before, digest = small.read_bytes(), content_digest(small)
    stamp_build_id(small, b"B" * 16)
    once = small.read_bytes()
    stamp_build_id(small, b"B" * 16)
    assert small.read_bytes() == once
    assert content_digest(small) == digest
    assert [
        i for i in range(len(once)) if once[i] != before[i] and not (16 <= i < 32 or 4092 <= i < 4096)
    ] == []
    zeroed = bytearray(once)
    zeroed[16:32], zeroed[4092:4096] = bytes(16), bytes(4)
    assert digest == hashlib.sha256(zeroed).hexdigest()
    check_all(small)


def test_the_content_digest_of_another_file_is_its_sha256(tmp_path: Path) -> None:
    path = tmp_path / "metadata.parquet"
    path.write_bytes(b"z" * 10_000)
    assert content_digest(path) == hashlib.sha256(b"z" * 10_000).hexdigest()


def write_half(path: Path) -> None:
    with PageFileWriter(path, "TEST", {}) as file, file.section("a") as section:
        section.write(b"x" * 9000)
        raise RuntimeError


def test_a_writer_that_fails_leaves_the_old_file_and_no_other(small: Path) -> None:
    before = small.read_bytes()
    with pytest.raises(RuntimeError):
        write_half(small)
    with pytest.raises(ValueError, match="a name has"):
        write(small, {"a name that is too long": b""})
    assert small.read_bytes() == before
    assert [entry.name for entry in small.parent.iterdir()] == ["a.imx"]


def interrupt(path: Path) -> None:
    with atomic_write(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def test_an_atomic_write_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json_atomic(path, {"b": "ü", "a": [1]})
    assert path.read_text("utf-8") == '{\n  "b": "ü",\n  "a": [\n    1\n  ]\n}\n'
    with pytest.raises(KeyboardInterrupt):
        interrupt(path)
    with pytest.raises(ValueError, match="JSON"):
        write_json_atomic(path, {"x": float("nan")})
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]
    assert path.read_text("utf-8").startswith('{\n  "b"')


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
def test_a_copy_onto_a_full_disk_names_what_cannot_be_written_and_the_bytes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(5000))
    target.symlink_to("/dev/full")  # the link is removed, not the device
    with pytest.raises(OSError, match=rf"copying {source} takes 5,000 bytes, [\d,]+ are free") as caught:
        copy_file(source, target)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(target))
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        copy_file(tmp_path / "nowhere", target)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_ends_an_atomic_write_with_the_name_of_the_file(tmp_path: Path, code: int) -> None:
    with pytest.raises(OSError, match=os.strerror(code)) as caught, atomic_write(tmp_path / "run.json"):
        raise OSError(code, os.strerror(code))
    assert caught.value.filename == str(tmp_path / "run.json")
