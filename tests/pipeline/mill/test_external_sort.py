"""A merge gives every record of its range once, in order, however the records lie in chunk files."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.processes.memory import peak_growth

from indexmill.formats.chunks.reader import ChunkFile, Records
from indexmill.formats.chunks.writer import Compression, write_chunk
from indexmill.formats.errors import BudgetError, CorruptFile
from indexmill.pipeline.mill.external_sort import collect, count, fill, sorted_records

PLENTY = 1 << 30


def some_records(m: int, keys: int, values: int, seed: int = 0) -> Records:
    """Records whose payload says where they come from."""
    rng = np.random.default_rng(seed)
    return Records(
        rng.integers(0, keys, m).astype(np.uint32),
        rng.integers(0, values, m).astype(np.uint32),
        np.arange(m, dtype=np.uint32).repeat(3).reshape(m, 3),
    )


def write_chunks(
    directory: Path,
    records: Records,
    cuts: Sequence[int],
    bounds: Sequence[int],
    batch_bytes: int = 100,
    compression: Compression = "none",
) -> list[Path]:
    """Write the records before, between and after `cuts` as one chunk file each."""
    paths = []
    for i, rows in enumerate(np.split(np.arange(len(records.keys)), cuts)):
        paths.append(directory / f"{i}.chunk")
        part = Records(*(np.ascontiguousarray(column[rows]) for column in records))
        write_chunk(paths[-1], part, bounds, batch_bytes=batch_bytes, compression=compression)
    return paths


def one_sort(records: Records, first: int, last: int) -> Records:
    order = np.lexsort((records.values, records.keys))
    order = order[(records.keys[order] >= first) & (records.keys[order] < last)]
    return Records(*(column[order] for column in records))


def merged(chunks: Sequence[Path], first: int, last: int, buffer_bytes: int) -> Records:
    pieces = list(sorted_records(chunks, first, last, buffer_bytes=buffer_bytes))
    assert all(len(piece.keys) for piece in pieces)
    nothing = Records(np.empty(0, np.uint32), np.empty(0, np.uint32), np.empty((0, 3), np.uint32))
    return Records(*(np.concatenate(parts) for parts in zip(nothing, *pieces, strict=True)))


def assert_equal(a: Records, b: Records) -> None:
    for mine, other in zip(a, b, strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other)


def smallest_buffer(chunks: Sequence[Path], first: int, last: int) -> int:
    """Return the buffer that the error names, 0 if there is no error."""
    try:
        for _ in sorted_records(chunks, first, last, buffer_bytes=0):
            raise AssertionError("records without a buffer")
    except BudgetError as error:
        found = re.search(r"at least ([\d,]+) bytes", str(error))
        assert found is not None
        return int(found[1].replace(",", ""))
    return 0


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(0, 200),
    keys=st.sampled_from([1, 4, 40, 2**32 - 1]),
    values=st.sampled_from([1, 3, 2**32 - 1]),
    cuts=st.lists(st.integers(0, 200), max_size=6).map(sorted),
    batch_bytes=st.sampled_from([1, 60, 500, 10_000]),
    compression=st.sampled_from(["none", "zstd"]),
    span=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
    spare=st.sampled_from([0, 1, 300, 10_000, PLENTY]),
    seed=st.integers(0, 1000),
)
def test_merge_equals_one_stable_sort_of_all_records(
    tmp_path_factory: pytest.TempPathFactory,
    m: int,
    keys: int,
    values: int,
    cuts: list[int],
    batch_bytes: int,
    compression: Compression,
    span: list[float],
    spare: int,
    seed: int,
) -> None:
    records = some_records(m, keys, values, seed)
    bounds = [0, keys // 3, keys // 2, keys]
    directory = tmp_path_factory.mktemp("chunks")
    chunks = write_chunks(directory, records, cuts, bounds, batch_bytes, compression)
    first, last = (round(share * keys) for share in span)
    expected = one_sort(records, first, last)
    buffer_bytes = smallest_buffer(chunks, first, last) + spare
    assert_equal(merged(chunks, first, last, buffer_bytes), expected)
    assert_equal(collect(chunks, first, last, buffer_bytes=buffer_bytes), expected)
    n = len(expected.keys)
    room = Records(*(np.repeat(column[:1], n + 1, axis=0) for column in records)) if m else expected
    after = [column[n:].copy() for column in room]
    fill(chunks, first, last, room, buffer_bytes=buffer_bytes)
    assert_equal(Records(*(column[:n] for column in room)), expected)
    assert all(np.array_equal(column[n:], left) for column, left in zip(room, after, strict=True))
    assert count(chunks, first, last) == n


def test_the_smallest_buffer_works_and_one_byte_less_does_not(tmp_path: Path) -> None:
    records = some_records(2000, 50, 1000)
    chunks = write_chunks(tmp_path, records, [500, 1000, 1500], [0, 50], batch_bytes=1000)
    least = smallest_buffer(chunks, 0, 50)
    batch_memory = 1000 // 20 * (20 + 48) + 2048
    assert (
        4 * batch_memory < least < 10 * batch_memory
    )  # a batch of each file, one ahead, two pieces, a message
    assert_equal(merged(chunks, 0, 50, least), one_sort(records, 0, 50))
    with pytest.raises(BudgetError, match=f"{least:,}"):
        next(sorted_records(chunks, 0, 50, buffer_bytes=least - 1))


def test_chunk_files_that_follow_each_other_are_not_held_together(tmp_path: Path) -> None:
    records = some_records(4000, 1000, 10)
    by_key = Records(*(column[np.argsort(records.keys, kind="stable")] for column in records))
    apart = write_chunks(tmp_path, by_key, range(200, 4000, 200), [0, 1000], batch_bytes=1000)
    assert smallest_buffer(apart, 0, 1000) < 9 * (50 * 68 + 2048)


def test_no_chunk_files_and_no_records_give_nothing(tmp_path: Path) -> None:
    assert list(sorted_records([], 0, 9, buffer_bytes=0)) == []
    chunks = write_chunks(tmp_path, some_records(0, 1, 1), [0], [0, 9])
    assert list(sorted_records(chunks, 0, 9, buffer_bytes=0)) == []
    assert collect(chunks, 0, 9, buffer_bytes=0).payload.shape == (0, 3)
    assert count([], 0, 9) == count(chunks, 0, 9) == 0


def damage(path: Path, batch: int) -> None:
    with ChunkFile(path) as file:
        at = int(file.directory["offset"][batch] + file.directory["bytes"][batch] - 1)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_only_batches_that_meet_the_range_are_read_and_damage_there_is_found(tmp_path: Path) -> None:
    records = some_records(600, 30, 1000)
    chunks = write_chunks(tmp_path, records, [300], [0, 10, 20, 30])
    damage(chunks[1], 0)
    assert_equal(merged(chunks, 10, 30, PLENTY), one_sort(records, 10, 30))
    for read in (lambda: merged(chunks, 0, 30, PLENTY), lambda: collect(chunks, 0, 10, buffer_bytes=PLENTY)):
        with pytest.raises(CorruptFile, match=r"1\.chunk: batch 0 .*CRC32C"):
            read()


def test_counts_between_bounds_come_from_the_directories_alone(tmp_path: Path) -> None:
    records = some_records(600, 30, 1000)
    chunks = write_chunks(tmp_path, records, [300], [0, 10, 20, 30])
    for path in chunks:
        with ChunkFile(path) as file:
            batches = len(file.directory)
        for batch in range(batches):
            damage(path, batch)
    assert count(chunks, 10, 30) == np.count_nonzero(records.keys >= 10)


def test_chunk_files_of_different_payloads_are_not_merged(tmp_path: Path) -> None:
    records = some_records(10, 5, 5)
    write_chunk(tmp_path / "a", records, [0, 5])
    write_chunk(tmp_path / "b", records._replace(payload=records.payload.view(np.float32)), [0, 5])
    with pytest.raises(ValueError, match="differ in their payload"):
        next(sorted_records([tmp_path / "a", tmp_path / "b"], 0, 5, buffer_bytes=PLENTY))


def test_a_merge_may_be_left_early(tmp_path: Path) -> None:
    chunks = write_chunks(tmp_path, some_records(2000, 50, 10), [1000], [0, 50])
    pieces = sorted_records(chunks, 0, 50, buffer_bytes=smallest_buffer(chunks, 0, 50))
    next(pieces)
    pieces.close()
    assert list(pieces) == []


@pytest.mark.memory
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_merge_stays_within_its_buffers(compression: str) -> None:
    setup = f"""
        import numpy as np
        from indexmill.formats.chunks.reader import Records
        from indexmill.formats.chunks.writer import write_chunk
        from indexmill.pipeline.mill.external_sort import sorted_records
        rng = np.random.default_rng(0)
        def chunks(name, files, m):
            for i in range(files):
                payload = rng.integers(0, 9, (m, 128), dtype=np.uint8)
                records = Records(rng.integers(0, 1000, m).astype(np.uint32), np.arange(m, dtype=np.uint32), payload)
                write_chunk(path / f"{{name}}{{i}}", records, [0, 1000], batch_bytes=1 << 19,
                            compression={compression!r})
            return [path / f"{{name}}{{i}}" for i in range(files)]
        def run(chunks, buffer_bytes):
            return sum(len(piece.keys) for piece in sorted_records(chunks, 0, 1000, buffer_bytes=buffer_bytes))
        run(chunks("warm", 2, 5000), 1 << 26)
        large = chunks("large", 10, 60_000)
    """
    grown = peak_growth(setup, "assert run(large, 20 << 20) == 600_000")
    assert grown <= 20 << 20
    assert grown >= 10 << 19  # the sampling sees the batches


@pytest.mark.memory
def test_collecting_takes_the_records_and_the_buffers() -> None:
    setup = """
        import numpy as np
        from indexmill.formats.chunks.reader import Records
        from indexmill.formats.chunks.writer import write_chunk
        from indexmill.pipeline.mill.external_sort import collect
        rng = np.random.default_rng(0)
        def records(m):
            return Records(rng.integers(0, 1000, m).astype(np.uint32), np.arange(m, dtype=np.uint32),
                           np.ones((m, 128), np.uint8))
        for i in range(4):
            write_chunk(path / str(i), records(100_000), [0, 1000])
        chunks = [path / str(i) for i in range(4)]
        collect(chunks, 0, 10, buffer_bytes=1 << 24)
    """
    grown = peak_growth(setup, "kept = collect(chunks, 0, 1000, buffer_bytes=1 << 24)")
    assert 400_000 * 136 <= grown <= 400_000 * 136 + (16 << 20)


def test_more_chunk_files_are_collected_than_may_be_open_at_first(tmp_path: Path) -> None:
    chunks = write_chunks(tmp_path, some_records(300, 30, 9), range(1, 300), [0, 30])
    code = f"""
import resource
few, most = 120, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
from pathlib import Path
from indexmill.pipeline.mill.external_sort import collect, fill
for read in (lambda given: collect(given, 0, 30, buffer_bytes=1 << 24),
             lambda given: fill(given, 0, 30, found, buffer_bytes=1 << 24)):
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
    found = read(sorted(Path({str(tmp_path)!r}).iterdir())) or found
    assert len(found.keys) == 300
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert len(chunks) == 300
    assert done.returncode == 0, done.stderr
