"""Indexes in a store that is slow, hangs, refuses, or sends damaged bytes; and processes that end amid requests."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.support.indexes.at_hand import Directory
from tests.support.indexes.ivf import build_lists, make_vectors

from indexmill.formats.errors import ConfigError, CorruptFile, StorageError
from indexmill.reader import carriers
from indexmill.reader.ivf import IvfIndex
from indexmill.reader.stored import Stored

QUERIES = make_vectors("float32", 40, seed=7)
ROOM = 64 << 20
#: A store whose requests take a while, and a search that the process ends amid.
ENDS = """
import os, signal, sys, threading, time
from pathlib import Path
import numpy as np
from tests.support.indexes.at_hand import Directory
from indexmill.reader.ivf import IvfIndex
from indexmill.reader.stored import Stored
folder, queries, how = Path(sys.argv[1]), np.load(sys.argv[2]), sys.argv[3]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
def slow(data):
    end = time.monotonic() + (0.4 if how == "hangs" else 0.03)
    while time.monotonic() < end:
        time.sleep(0.0005)
    return data
remote = Directory(folder)
remote.spoil = slow
index = IvfIndex(folder, stored=Stored(remote, 0, 0.02 if how == "hangs" else 10.0))
if how == "hangs":
    try:
        index.search(queries, 5, nprobe=8)
    except Exception as error:
        print(type(error).__name__)
    sys.exit(6)
threading.Timer(0.15, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
many = np.repeat(queries, 100, axis=0)
if how == "raises":
    try:
        index.search(many, 5, nprobe=4)
    except KeyboardInterrupt:
        raise ValueError("enough") from None
index.search(many, 5, nprobe=4)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an index of three batches."""
    return build_lists(
        tmp_path_factory.mktemp("stored") / "ix", make_vectors("float32", 1500), lists=16, batch_vectors=600
    )


@pytest.fixture
def remote(folder: Path) -> Directory:
    return Directory(folder)


def opened(remote: Directory, room: int = 0, timeout_s: float = 10.0) -> IvfIndex:
    return IvfIndex(remote.folder, stored=Stored(remote, room, timeout_s))


def expected(folder: Path) -> np.ndarray:
    return IvfIndex(folder).search(QUERIES, 5, nprobe=4).vector_ids


def test_several_batches_are_searched_by_many_threads(folder: Path, remote: Directory) -> None:
    for room in (0, 1 << 14, ROOM):
        index = opened(remote, room)
        for threads, inflight in ((1, 1), (3, 8)):
            found = index.search(QUERIES, 5, nprobe=4, threads=threads, inflight=inflight)
            assert np.array_equal(found.vector_ids, expected(folder))
            assert found.counters["lists"].max() > 4


@pytest.mark.parametrize(("how", "code"), [("interrupted", -signal.SIGINT), ("raises", 1), ("hangs", 6)])
def test_a_process_that_ends_amid_requests_ends_well(
    folder: Path, tmp_path: Path, how: str, code: int
) -> None:
    np.save(tmp_path / "q.npy", QUERIES)
    for _ in range(4):
        command = [sys.executable, "-c", ENDS, str(folder), str(tmp_path / "q.npy"), how]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == code, ended.stderr


def answers_in_a_child(index: IvfIndex, want: np.ndarray) -> bool:
    """Return whether a forked child finds these ids."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            code = int(not np.array_equal(index.search(QUERIES, 5, nprobe=4).vector_ids, want))
        finally:
            os._exit(code)  # whatever happened: no second process runs the other tests
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_child_makes_requests_of_its_own(folder: Path, remote: Directory) -> None:
    index, want = opened(remote), expected(folder)
    assert np.array_equal(index.search(QUERIES, 5, nprobe=4).vector_ids, want)
    assert answers_in_a_child(index, want)
    assert np.array_equal(index.search(QUERIES, 5, nprobe=4).vector_ids, want)


def test_a_forked_child_does_so_beside_indexes_that_were_closed_amid_requests(
    folder: Path, remote: Directory
) -> None:
    released = threading.Event()
    for _ in range(8):
        hanging = Directory(folder)
        hanging.spoil = lambda data: data if released.wait(60) else b""
        with pytest.raises(StorageError, match="no answer"):
            opened(hanging, timeout_s=0.02).search(QUERIES[:1], 5, nprobe=1)
    gc.collect()
    assert answers_in_a_child(opened(remote), expected(folder))
    released.set()


def test_threads_end_with_their_index(remote: Directory) -> None:
    def n_threads() -> int:
        return sum(
            thread.name in ("indexmill-errands", "indexmill-ranges") for thread in threading.enumerate()
        )

    gc.collect()
    index = opened(remote)
    index.search(QUERIES, 5)
    assert n_threads() > 1
    del index
    gc.collect()
    end = time.monotonic() + 20
    while n_threads() and time.monotonic() < end:
        time.sleep(0.01)
    assert n_threads() == 0


@pytest.mark.parametrize("room", [0, ROOM])
def test_bytes_that_were_damaged_on_their_way_are_asked_for_again(
    folder: Path, remote: Directory, room: int
) -> None:
    damaged = [True] * 3
    index = opened(remote, room)
    remote.spoil = lambda data: bytes(len(data)) if damaged and damaged.pop() else data
    assert np.array_equal(index.search(QUERIES, 5, nprobe=4, threads=2).vector_ids, expected(folder))


def test_damage_that_stays_is_named_and_forgotten_once_it_is_mended(folder: Path, remote: Directory) -> None:
    index = opened(remote, ROOM)
    remote.spoil = lambda data: bytes(len(data))
    with pytest.raises(CorruptFile, match=r"store://ix/batch-00000\d.imx: page \d+.*damaged"):
        index.search(QUERIES, 5, nprobe=4)
    remote.spoil = lambda data: data
    assert np.array_equal(index.search(QUERIES, 5, nprobe=4).vector_ids, expected(folder))


def test_blocks_in_memory_take_no_round(remote: Directory) -> None:
    index = opened(remote, ROOM)
    assert (index.search(QUERIES[:1], 5, nprobe=4).counters["rounds"] == 1).all()
    assert (index.search(QUERIES[:1], 5, nprobe=4).counters["rounds"] == 0).all()


def test_requests_that_hang_for_ever_are_made_by_other_threads(
    folder: Path, remote: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carriers, "PARALLEL", 2)
    released, hanging = threading.Event(), [True] * 5

    def spoil(data: bytes) -> bytes:
        if hanging and hanging.pop():
            released.wait(60)
        return data

    index = opened(remote, timeout_s=0.1)
    remote.spoil = spoil
    found = index.search(QUERIES[:4], 5, nprobe=4)
    traffic = index.native.traffic
    released.set()
    assert np.array_equal(found.vector_ids, expected(folder)[:4])
    assert traffic is not None
    assert traffic["timeouts"] >= 2


def test_a_disk_that_hangs_holds_up_no_search(
    folder: Path, remote: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carriers, "PARALLEL", 2)
    monkeypatch.setattr(carriers, "KEEPING_BYTES", 100 << 10)
    released, kept = threading.Event(), list[int]()

    def keep(name: str, offset: int, data: bytes) -> None:
        released.wait(60)
        kept.append(len(data))

    monkeypatch.setattr(remote, "keep", keep)
    index = opened(remote, timeout_s=0.5)
    for _ in range(3):
        assert np.array_equal(index.search(QUERIES, 5, nprobe=4).vector_ids, expected(folder))
    traffic = index.native.traffic
    assert not kept
    released.set()
    carriers.settle(20)
    assert traffic is not None
    assert traffic["timeouts"] == 0
    assert 0 < sum(kept) <= 100 << 10 < traffic["bytes"]


def test_a_store_that_does_not_answer_is_told(remote: Directory) -> None:
    released = threading.Event()
    index = opened(remote, timeout_s=0.02)
    remote.spoil = lambda data: data if released.wait(60) else b""
    with pytest.raises(StorageError, match="no answer within 20ms"):
        index.search(QUERIES[:2], 5, nprobe=4)
    released.set()


def test_refusals_that_pass_are_tried_again_and_others_end_the_search(
    folder: Path, remote: Directory
) -> None:
    refusals: list[Exception] = [OSError("slow down")] * 3

    def spoil(data: bytes) -> bytes:
        if refusals:
            raise refusals.pop()
        return data

    index = opened(remote)
    remote.spoil = spoil
    assert np.array_equal(index.search(QUERIES, 5, nprobe=4).vector_ids, expected(folder))
    for final, told in ((StorageError("no rights"), "no rights"), (FileNotFoundError("gone"), "gone")):
        refusals.append(final)
        with pytest.raises(StorageError, match=told):
            index.search(QUERIES, 5, nprobe=4)
    remote.spoil = lambda data: "text"  # type: ignore[assignment,return-value]
    with pytest.raises(StorageError, match="bytes"):
        index.search(QUERIES, 5, nprobe=4)


@pytest.mark.parametrize("timeout_s", [float("inf"), float("nan"), -1.0, 0.0, 1e300])
def test_a_time_out_that_is_none_is_refused(remote: Directory, timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="timeout_s: expected more than 0 and at most 86400 seconds"):
        opened(remote, timeout_s=timeout_s)


def test_a_failed_search_asks_once_whether_it_was_replaced(remote: Directory) -> None:
    index = opened(remote)
    remote.spoil = lambda data: bytes(len(data))
    with pytest.raises(CorruptFile):
        index.search(QUERIES, 5, nprobe=4, threads=3, inflight=8)
    assert remote.n_asked == 1
    remote.replaced = lambda: True
    with pytest.raises(StorageError, match=r"store://ix/.*: another index has taken its place"):
        index.search(QUERIES, 5, nprobe=4)
    remote.replaced = lambda: 1 // 0 == 0
    with pytest.raises(CorruptFile):
        index.search(QUERIES, 5, nprobe=4)
    assert remote.n_asked == 3


def test_a_store_that_hangs_after_a_failure_is_waited_for_no_longer_than_for_a_request(
    remote: Directory,
) -> None:
    released = threading.Event()
    remote.replaced = lambda: released.wait(60)
    index = opened(remote, timeout_s=0.1)
    remote.spoil = lambda data: bytes(len(data))
    began = time.monotonic()
    with pytest.raises(CorruptFile):
        index.search(QUERIES, 5, nprobe=4)
    assert time.monotonic() - began < 10
    released.set()


def test_ctrl_c_ends_the_wait_for_what_a_failure_means(
    remote: Directory, request: pytest.FixtureRequest
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    released = threading.Event()

    def interrupt() -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return released.wait(60)

    remote.replaced = interrupt
    index = opened(remote, timeout_s=60.0)
    remote.spoil = lambda data: bytes(len(data))
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        index.search(QUERIES, 5, nprobe=4)
    assert time.monotonic() - began < 30
    released.set()


def test_an_awaited_search_that_fails_holds_up_no_other(folder: Path, remote: Directory) -> None:
    released = threading.Event()
    remote.replaced = lambda: released.wait(60)
    index = opened(remote, timeout_s=60.0)

    async def main() -> None:
        remote.spoil = lambda data: bytes(len(data))
        failing = asyncio.create_task(index.search_async(QUERIES, 5, nprobe=4))
        while remote.n_asked == 0 and not failing.done():
            await asyncio.sleep(0.005)
        remote.spoil = lambda data: data
        found = await asyncio.gather(*(index.search_async(QUERIES, 5, nprobe=4) for _ in range(4)))
        assert all(np.array_equal(one.vector_ids, expected(folder)) for one in found)
        assert not failing.done()
        released.set()
        with pytest.raises(StorageError, match="another index has taken its place"):
            await failing

    asyncio.run(main())
