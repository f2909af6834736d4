"""Vectors grouped by leader through chunk files and through append files."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from indexmill.builders.leaders.base import ExactLeaders
from indexmill.formats.chunks import tempfiles
from indexmill.formats.chunks.tally import Tally, create, forget
from indexmill.formats.chunks.tempfiles import member_dtype
from indexmill.formats.errors import ConfigError, CorruptFile, InputError
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.grouping import assignment, policies
from indexmill.pipeline.grouping.assignment import Policy, assign
from indexmill.pipeline.grouping.policies import ChunkFiles, TempFiles, cluster_bytes

N, DIM, LEADERS = 3000, 12, 60


def make_vectors(dtype: str, n: int = N) -> NDArray[Any]:
    rng = np.random.default_rng(3)
    return (rng.normal(size=(n, DIM)) * 20 + 60).astype(dtype)


def make_policy(name: str, folder: Path, source: Any, leaders: int, in_buffer: int) -> Policy:
    folder.mkdir()
    if name == "temp":
        return TempFiles(folder, leaders)
    vector_bytes = source.dim * source.dtype.itemsize
    return ChunkFiles(
        folder, leaders, vector_bytes, in_buffer, -(-source.n_vectors // (in_buffer // vector_bytes))
    )


def grouped(
    name: str, folder: Path, vectors: NDArray[Any], leaders: NDArray[Any], in_buffer: int, threads: int = 2
) -> tuple[bytes, NDArray[np.int64], Policy]:
    """Assign and merge; returns the merged file, the sizes of its clusters, and the policy."""
    source = array_source(vectors)
    policy = make_policy(name, folder / name, source, len(leaders), in_buffer)
    assign(source, ExactLeaders(leaders), policy, in_buffer, threads)
    policy.forget()
    with create(folder / f"{name}.out", policy.merging) as out:
        sizes = policy.merge(out)
    return (folder / f"{name}.out").read_bytes(), sizes, policy


def oracle(vectors: NDArray[Any], leaders: NDArray[Any]) -> tuple[bytes, list[int]]:
    """One vector after the other into the list of its nearest leader."""
    lists: list[list[int]] = [[] for _ in leaders]
    for i, vector in enumerate(vectors.astype(np.float64)):
        lists[int(((leaders.astype(np.float64) - vector) ** 2).sum(axis=1).argmin())].append(i)
    rows = [i.to_bytes(4, "little") + vectors[i].tobytes() for members in lists for i in members]
    return b"".join(rows), [len(members) for members in lists]


@pytest.mark.parametrize("dtype", ["uint8", "float32", "int8", "float16"])
def test_both_policies_write_the_clusters_of_the_oracle(tmp_path: Path, dtype: str) -> None:
    vectors = make_vectors(dtype)
    leaders = vectors[::50]
    expected, counts = oracle(vectors, leaders)
    for name in ("chunk", "temp"):
        merged, sizes, _ = grouped(name, tmp_path, vectors, leaders, 700 * DIM * vectors.itemsize)
        assert merged == expected
        assert sizes.tolist() == counts
        assert len(merged) == cluster_bytes(N, DIM * vectors.itemsize)


@pytest.mark.parametrize("name", ["chunk", "temp"])
def test_neither_in_buffer_nor_threads_reach_the_bytes(tmp_path: Path, name: str) -> None:
    vectors = make_vectors("uint8", 600)
    results = []
    for i, (rows, threads) in enumerate([(1, 1), (7, 3), (600, 2), (10_000, 1)]):
        folder = tmp_path / str(i)
        folder.mkdir()
        results.append(grouped(name, folder, vectors, vectors[::20], rows * DIM, threads)[0])
    assert set(results) == {results[0]}


@pytest.mark.parametrize("name", ["chunk", "temp"])
def test_a_leader_without_vectors_has_no_file_and_an_empty_cluster(tmp_path: Path, name: str) -> None:
    vectors = make_vectors("uint8", 200)
    leaders = np.concatenate(
        [vectors[:3], vectors[:2]]
    )  # ties go to the smaller leader: 3 and 4 own no vector
    merged, sizes, _ = grouped(name, tmp_path, vectors, leaders, 50 * DIM)
    assert (merged, sizes.tolist()) == oracle(vectors, leaders)[:2]
    assert sizes[3:].tolist() == [0, 0]
    if name == "temp":
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == [
            "00000000",
            "00000001",
            "00000002",
        ]


def test_one_giant_cluster_and_equal_vectors_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfiles, "READ_BYTES", 100)
    vectors = np.full((500, DIM), 7, np.uint8)
    results = {grouped(name, tmp_path, vectors, vectors[:4], 90 * DIM)[0] for name in ("chunk", "temp")}
    assert len(results) == 1
    rows = np.frombuffer(results.pop(), member_dtype(DIM))
    assert rows["id"].tolist() == list(range(500))


def test_append_files_open_one_file_at_a_time(tmp_path: Path) -> None:
    vectors = make_vectors("uint8")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, limits[1]))
    try:
        _, sizes, policy = grouped("temp", tmp_path, vectors, vectors[::4], 1000 * DIM)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert np.count_nonzero(sizes) > 500
    assert policy.assigning.opens == policy.assigning.closes > 1500


def test_more_chunk_files_than_may_be_open_are_refused_with_the_least_in_buffer(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with pytest.raises(
        ConfigError, match=r"in-buffer: 1,000 bytes make .* chunk files.*give at least"
    ) as caught:
        ChunkFiles(tmp_path, 10, 100, 1000, 2 * limit)
    least = int(str(caught.value).split("at least ")[1].split(" bytes")[0].replace(",", ""))
    ChunkFiles(tmp_path, 10, 100, least, -(-2000 * limit // least))


def test_an_in_buffer_smaller_than_a_vector_is_refused(tmp_path: Path) -> None:
    source = array_source(make_vectors("float32", 10))
    with pytest.raises(ConfigError, match=r"in-buffer: expected at least 48 bytes, one vector, got 47"):
        assign(source, ExactLeaders(make_vectors("float32", 2)), TempFiles(tmp_path, 2), 47, 1)


def test_a_vector_that_is_not_finite_is_named(tmp_path: Path) -> None:
    vectors = make_vectors("float32", 100)
    vectors[57, 2] = np.nan
    with pytest.raises(InputError, match="row 57"):
        grouped("temp", tmp_path, vectors, vectors[:5], 10 * DIM * 4)


@pytest.mark.parametrize("name", ["chunk", "temp"])
def test_a_full_disk_is_an_error_that_names_the_scratch_file(
    tmp_path: Path, arm: Callable[[str], None], name: str
) -> None:
    arm("task-written:2=ENOSPC")
    with pytest.raises(OSError, match="failpoint") as caught:
        grouped(name, tmp_path, make_vectors("uint8"), make_vectors("uint8")[:9], 400 * DIM)
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_errors_of_writes_get_the_name_of_their_file() -> None:
    path = Path("/dev/full")
    with (
        pytest.raises(OSError, match="No space left on device: '/dev/full'") as caught,
        policies.naming(path),
        create(path) as file,
    ):
        file.write(b"data")
    assert caught.value.errno == errno.ENOSPC


def test_a_short_append_file_is_damage(tmp_path: Path) -> None:
    vectors = make_vectors("uint8", 300)
    source = array_source(vectors)
    policy = make_policy("temp", tmp_path / "temp", source, 5, 100 * DIM)
    assign(source, ExactLeaders(vectors[:5]), policy, 100 * DIM, 1)
    os.truncate(tmp_path / "temp" / "00000002", 30)
    with (
        create(tmp_path / "out") as out,
        pytest.raises(CorruptFile, match=r"00000002: offset 30: expected .*, got 30"),
    ):
        policy.merge(out)


def test_short_writes_of_append_files_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., int] = os.write
    vectors = make_vectors("uint8", 300)
    expected = oracle(vectors, vectors[:5])[0]
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[: max(1, len(data) // 2)]))
    assert grouped("temp", tmp_path, vectors, vectors[:5], 100 * DIM)[0] == expected


def system_calls() -> Iterator[tuple[int, int, int, int]]:
    """Yield reads, writes and their bytes of this process since the last time."""
    before = (0, 0, 0, 0)
    while True:
        lines = Path("/proc/self/io").read_text().split()
        found = dict(zip(lines[::2], map(int, lines[1::2]), strict=True))
        now = (found["syscr:"], found["syscw:"], found["rchar:"], found["wchar:"])
        yield tuple(a - b for a, b in zip(now, before, strict=True))  # type: ignore[misc]
        before = now


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="the system counts no calls")
@pytest.mark.parametrize("name", ["chunk", "temp"])
def test_the_tally_is_what_the_system_counts(tmp_path: Path, name: str) -> None:
    vectors = make_vectors("uint8")
    source = array_source(vectors)
    policy = make_policy(name, tmp_path / name, source, LEADERS, 500 * DIM)
    counts = system_calls()
    next(counts), next(counts)
    own = next(counts)  # the cost of reading the counts
    assign(source, ExactLeaders(vectors[:LEADERS]), policy, 500 * DIM, 1)
    _, writes, _, written = next(counts)
    assert (policy.assigning.writes, policy.assigning.bytes_written) == (writes, written)
    with create(tmp_path / "out", policy.merging) as out:
        policy.merge(out)
    reads, writes, read, written = next(counts)
    assert (policy.merging.reads, policy.merging.bytes_read) == (reads - own[0], read - own[2])
    assert (policy.merging.writes, policy.merging.bytes_written) == (writes, written)


def test_chunk_files_take_far_fewer_operations(tmp_path: Path) -> None:
    vectors = make_vectors("uint8")
    tallies = {
        name: grouped(name, tmp_path, vectors, vectors[::5], 500 * DIM)[2] for name in ("chunk", "temp")
    }
    assert 20 * tallies["chunk"].assigning.operations < tallies["temp"].assigning.operations
    assert tallies["temp"].assigning.bytes_written == cluster_bytes(N, DIM)


def test_a_forgotten_file_keeps_its_bytes(tmp_path: Path) -> None:
    tally = Tally()
    with create(tmp_path / "file", tally) as file:
        file.write(b"x" * 5000)
    forget(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"x" * 5000
    assert tally.as_dict() == {
        "opens": 1, "reads": 0, "writes": 1, "syncs": 0, "closes": 1,
        "bytes_read": 0, "bytes_written": 5000, "operations": 3,
    }  # fmt: skip


def test_what_is_written_and_computed_overlaps(tmp_path: Path) -> None:
    """The index waits for the policy's first buffer while it assigns the second: alone, neither would end."""
    import threading

    added = threading.Event()

    class Waiting(ExactLeaders):
        calls = 0

        def nearest(self, vectors: NDArray[Any], fanout: int = 1, threads: int = 1) -> NDArray[np.uint32]:
            Waiting.calls += 1
            assert Waiting.calls < 2 or added.wait(20)
            return super().nearest(vectors, fanout, threads)

    class Signalling(TempFiles):
        def add(self, records: Any) -> None:
            super().add(records)
            added.set()

    vectors = make_vectors("uint8", 100)
    times = assign(array_source(vectors), Waiting(vectors[:3]), Signalling(tmp_path, 3), 50 * DIM, 1)
    assert times.in_buffers == 2
    assert 0 < times.distance_s <= times.assign_s
    assert assignment.in_buffer_rows(array_source(vectors), 50 * DIM) == 50
