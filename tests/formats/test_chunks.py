"""A chunk file gives back what was written, sorted, or one error that says where it is damaged."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.processes.memory import peak_growth

from indexmill.formats.chunks.reader import FOOTER, FOOTER_BYTES, RUN_END_ENCODED, ChunkFile, Records
from indexmill.formats.chunks.writer import Compression, write_chunk, write_runs
from indexmill.formats.errors import CorruptFile, ForeignFile, TooNew, TooOld
from indexmill.formats.pagefile.frame import checksum

BOUNDS = [0, 3, 4, 20]


def some_records(m: int, keys: int = 20, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    return Records(
        rng.integers(0, keys, m).astype(np.uint32),
        rng.integers(0, 2**32, m).astype(np.uint32),
        rng.normal(size=(m, 5)).astype(np.float32),
    )


def in_order(records: Records) -> Records:
    order = np.lexsort((records.values, records.keys))
    return Records(*(column[order] for column in records))


def read_all(path: Path) -> Records:
    with ChunkFile(path) as file:
        batches = [file.read(i) for i in range(len(file.directory))]
        empty = Records(np.empty(0, np.uint32), np.empty(0, np.uint32), np.empty((0, file.width), file.dtype))
    return Records(*(np.concatenate(parts) for parts in zip(empty, *batches, strict=True)))


def assert_equal(a: Records, b: Records) -> None:
    for mine, other in zip(a, b, strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("m", [0, 1, 300])
def test_records_come_back_sorted_and_any_arrow_reader_finds_them(
    tmp_path: Path, m: int, compression: Compression
) -> None:
    path, records = tmp_path / "a.chunk", some_records(m)
    write_chunk(path, records, BOUNDS, compression=compression, batch_bytes=700)
    expected = in_order(records)
    assert_equal(read_all(path), expected)
    table = pa.ipc.open_stream(pa.OSFile(str(path))).read_all()
    table.validate(full=True)
    assert table["value"].to_pylist() == expected.values.tolist()
    assert table["payload"].to_pylist() == [row.tobytes() for row in expected.payload]


@pytest.mark.parametrize("notes", [None, {}, {"looked_for": 1 << 40, "missed": 0}])
def test_notes_come_back_and_change_no_record(tmp_path: Path, notes: dict[str, int] | None) -> None:
    records, plain, runs = in_order(some_records(30)), tmp_path / "plain.chunk", tmp_path / "runs.chunk"
    write_chunk(plain, records, BOUNDS, notes=notes)
    write_runs(runs, [records], run_end_encoded=False, notes=notes)
    for path in (plain, runs):
        with ChunkFile(path) as file:
            assert file.notes == (notes or {})
        assert_equal(read_all(path), records)


@pytest.mark.parametrize("m", [[0], [0, 0], [0, 5, 0]])
def test_runs_may_be_empty(tmp_path: Path, m: list[int]) -> None:
    runs = [in_order(some_records(size)) for size in m]
    write_runs(tmp_path / "a.chunk", runs, run_end_encoded=False)
    assert_equal(read_all(tmp_path / "a.chunk"), runs[len(m) // 2])
    with pytest.raises(ValueError, match="expected at least one"):
        write_runs(tmp_path / "b.chunk", [], run_end_encoded=False)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16", "float32", "uint32", "float64", "V3", "bool"])
def test_the_payload_keeps_its_type(tmp_path: Path, dtype: str) -> None:
    raw = np.random.default_rng(1).integers(0, 2, (9, 4 * np.dtype(dtype).itemsize), dtype=np.uint8)
    records = Records(np.arange(9, dtype=np.uint32), np.zeros(9, np.uint32), raw.view(dtype))
    write_chunk(tmp_path / "a.chunk", records, [0, 9])
    with ChunkFile(tmp_path / "a.chunk") as file:
        assert (file.dtype, file.width) == (np.dtype(dtype), 4)
        assert file.read(0).payload.tobytes() == raw.tobytes()


def test_equal_pairs_keep_their_order(tmp_path: Path) -> None:
    keys = np.random.default_rng(2).integers(0, 3, 500).astype(np.uint32)
    records = Records(keys, keys % 2, np.arange(500).reshape(-1, 1))
    write_chunk(tmp_path / "a.chunk", records, BOUNDS, batch_bytes=100)
    assert_equal(read_all(tmp_path / "a.chunk"), in_order(records))


def test_records_may_share_a_payload(tmp_path: Path) -> None:
    records, rows = some_records(40), np.random.default_rng(3).integers(0, 8, 40)
    shared = records._replace(payload=records.payload[:8])
    write_chunk(tmp_path / "a.chunk", shared, BOUNDS, rows=rows)
    write_chunk(tmp_path / "b.chunk", shared._replace(payload=shared.payload[rows]), BOUNDS)
    assert (tmp_path / "a.chunk").read_bytes() == (tmp_path / "b.chunk").read_bytes()


@pytest.mark.parametrize("batch_bytes", [1, 400, 1 << 20])
def test_no_batch_crosses_a_bound_or_outgrows_its_size(tmp_path: Path, batch_bytes: int) -> None:
    write_chunk(tmp_path / "a.chunk", some_records(300), BOUNDS, batch_bytes=batch_bytes)
    with ChunkFile(tmp_path / "a.chunk") as file:
        directory = file.directory
        assert file.record_bytes == 28
    part = np.searchsorted(BOUNDS, directory["first_key"], side="right")
    np.testing.assert_array_equal(part, np.searchsorted(BOUNDS, directory["last_key"], side="right"))
    assert directory["rows"].max() <= max(1, batch_bytes // 28)
    assert len(directory) == sum(-(-n // max(1, batch_bytes // 28)) for n in _per_part(directory, part))


def _per_part(directory: np.ndarray, part: np.ndarray) -> list[int]:
    return [int(directory["rows"][part == p].sum()) for p in np.unique(part)]


def test_many_equal_keys_are_run_end_encoded_and_few_are_not(tmp_path: Path) -> None:
    for keys, kind in ((4, RUN_END_ENCODED), (1000, pa.uint32())):
        write_chunk(tmp_path / "a.chunk", some_records(300, keys), [0, 1000])
        assert pa.ipc.open_stream(pa.OSFile(str(tmp_path / "a.chunk"))).schema.field("key").type == kind


def test_the_largest_key_and_bound_fit(tmp_path: Path) -> None:
    most = np.full(3, 2**32 - 1, np.uint32)
    records = Records(most, most, np.zeros((3, 1), np.uint8))
    write_chunk(tmp_path / "a.chunk", records, [0, 2**32])
    assert_equal(read_all(tmp_path / "a.chunk"), records)


@pytest.mark.parametrize("bounds", [[0, 19], [1, 20], [0], []])
def test_a_key_outside_the_bounds_is_refused(tmp_path: Path, bounds: list[int]) -> None:
    with pytest.raises(ValueError, match=r"keys lie in 0\.\.19"):
        write_chunk(tmp_path / "a.chunk", some_records(300), bounds)


def test_records_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    good = some_records(10)
    for bad in (
        good._replace(keys=good.keys.astype(np.int64)),
        good._replace(values=good.values[:9]),
        good._replace(payload=good.payload[:, :0]),
        good._replace(payload=good.payload[:, ::2]),
        good._replace(payload=good.payload.astype(">f4")),
        good._replace(payload=good.payload.astype(object)),
    ):
        with pytest.raises(ValueError, match=r"keys and values|shapes|payload"):
            write_chunk(tmp_path / "a.chunk", bad, BOUNDS)
    with pytest.raises(ValueError, match="rows lie in"):
        write_chunk(tmp_path / "a.chunk", good, BOUNDS, rows=np.arange(1, 11))


@pytest.fixture(scope="module")
def chunks(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    path = tmp_path_factory.mktemp("chunk") / "a.chunk"
    made = []
    for m, compression in ((0, "none"), (60, "none"), (60, "zstd")):
        write_chunk(path, some_records(m), BOUNDS, compression=compression, batch_bytes=500)
        made.append(path.read_bytes())
    return made


@settings(max_examples=100, deadline=None)
@given(which=st.integers(0, 2), share=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_changed_byte_is_corrupt_wherever_it_is(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], which: int, share: float, flip: int
) -> None:
    data = bytearray(chunks[which])
    data[int(share * len(data))] ^= flip
    path = tmp_path_factory.mktemp("flip") / "a.chunk"
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=r"a\.chunk: .*offset \d+.*expected .*got "):
        read_all(path)


def test_a_file_cut_short_anywhere_is_corrupt(tmp_path: Path, chunks: list[bytes]) -> None:
    path = tmp_path / "a.chunk"
    for whole in chunks:
        for length in [*range(0, len(whole), 13), len(whole) - 1]:
            path.write_bytes(whole[:length])
            with pytest.raises(CorruptFile, match=r"offset \d+.*expected .*got "):
                read_all(path)


def test_a_file_that_goes_on_is_corrupt(tmp_path: Path, chunks: list[bytes]) -> None:
    for more in (b"x", bytes(FOOTER_BYTES), chunks[0]):
        (tmp_path / "a.chunk").write_bytes(chunks[1] + more)
        with pytest.raises(CorruptFile):
            read_all(tmp_path / "a.chunk")


def test_a_file_cut_short_after_it_was_opened_is_corrupt(tmp_path: Path, chunks: list[bytes]) -> None:
    path = tmp_path / "a.chunk"
    path.write_bytes(chunks[1])
    with ChunkFile(path) as file:
        path.write_bytes(chunks[1][:600])
        with pytest.raises(CorruptFile, match="batch"):
            file.read(len(file.directory) - 1)


@pytest.mark.parametrize(("version", "error"), [(2, TooNew), (0, TooOld)])
def test_another_version_is_named(
    tmp_path: Path, chunks: list[bytes], version: int, error: type[Exception]
) -> None:
    footer = bytearray(chunks[1][-FOOTER_BYTES:])
    struct.pack_into("<I", footer, 8, version)
    struct.pack_into("<I", footer, FOOTER.size, checksum(bytes(footer[: FOOTER.size])))
    (tmp_path / "a.chunk").write_bytes(chunks[1][:-FOOTER_BYTES] + footer)
    with pytest.raises(error, match=rf"expected 1, got {version}"):
        ChunkFile(tmp_path / "a.chunk")


def arrow_stream(path: Path) -> None:
    table = pa.table({"x": [1, 2, 3]})
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize(
    "write",
    [arrow_stream, lambda path: np.save(path.open("wb"), np.zeros(999)), lambda path: path.write_text("x")],
)
def test_a_file_of_another_kind_is_foreign(tmp_path: Path, write: Callable[[Path], object]) -> None:
    write(tmp_path / "a.chunk")
    with pytest.raises(ForeignFile, match="expected a chunk file"):
        ChunkFile(tmp_path / "a.chunk")


@pytest.mark.memory
def test_writing_holds_no_second_copy_of_the_payload() -> None:
    rows = 400_000
    grown = peak_growth(
        setup=f"""
            import numpy as np
            from indexmill.formats.chunks.reader import Records
            from indexmill.formats.chunks.writer import write_chunk
            rng = np.random.default_rng(0)
            def records(m):
                keys = rng.integers(0, 1000, m).astype(np.uint32)
                return Records(keys, np.arange(m, dtype=np.uint32), np.ones((m, 128), np.uint8))
            write_chunk(path / "warm", records(50_000), [0, 1000])
            large = records({rows})
        """,
        measured="write_chunk(path / 'a.chunk', large, [0, 1000])",
    )
    assert grown <= rows * 24 + 3 * (1 << 20) + (1 << 20)
    assert grown >= rows * 16  # the sampling sees the sort
