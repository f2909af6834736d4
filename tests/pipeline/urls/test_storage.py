"""A work folder on object storage, against an S3 server on loopback that fails one request in ten."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.support.s3 import FlakyFileSystem, FlakyServer

from indexmill.formats.errors import InputError, StorageError
from indexmill.formats.urls import client as client_module
from indexmill.formats.urls import retry
from indexmill.formats.urls.retry import retried
from indexmill.pipeline.urls import beside, storage
from indexmill.pipeline.urls.lease import Lease
from indexmill.pipeline.urls.localised import run_localised
from indexmill.pipeline.urls.storage import Seen, Storage, Stored


@pytest.fixture
def s3(server: FlakyServer, tmp_path: Path) -> Storage:
    server.failing = lambda request: False
    return Storage(server.url, str(tmp_path / "one"))


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)


def put(at: Storage, name: str, data: bytes) -> None:
    path = at.local(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    at.push(name)


def other(at: Storage, tmp_path: Path) -> Storage:
    """The same storage, seen by another node."""
    return Storage(at.url, str(tmp_path / "two"))


def test_a_file_that_one_node_pushed_is_fetched_by_another(s3: Storage, tmp_path: Path) -> None:
    put(s3, "a-1/x.bin", b"x" * 100)
    put(s3, "a-1/deep/y.bin", b"")
    two = other(s3, tmp_path)
    assert two.list("a-1") == {"a-1/deep/y.bin": 0, "a-1/x.bin": 100}
    assert two.fetch("a-1") == tmp_path / "two/a-1"
    assert (tmp_path / "two/a-1/x.bin").read_bytes() == b"x" * 100
    assert (tmp_path / "two/a-1/deep/y.bin").read_bytes() == b""
    assert two.exists("a-1/x.bin")
    assert not two.exists("a-1/z.bin")


def test_a_file_larger_than_a_piece_arrives_whole(s3: Storage, tmp_path: Path) -> None:
    data = np.random.default_rng(1).bytes(12_345_678)  # several parts of an upload, too
    two = other(s3, tmp_path)
    s3.piece_bytes = two.piece_bytes = 1_000_000
    put(s3, "big-1/b.bin", data)
    assert two.fetch("big-1/b.bin").read_bytes() == data


def test_a_file_is_looked_up_and_opened_once_for_all_its_pieces(
    s3: Storage, server: FlakyServer, tmp_path: Path
) -> None:
    two = other(s3, tmp_path)
    two.piece_bytes = 1000
    put(s3, "many-1/b.bin", bytes(4000))
    asked: set[int] = set()

    def failing(request: int) -> bool:
        asked.add(request)
        return False

    server.failing = failing
    two.fetch("many-1/b.bin")
    assert len(asked) == 6


class Held:
    """Pieces of a file whose reads wait until as many are made at once, or fail."""

    def __init__(self, at_once: int, fails: bool = False) -> None:
        self.all_there = threading.Barrier(at_once, timeout=30)
        self.fails, self.read_at = fails, list[int]()

    def read(self, offset: int, length: int) -> bytes:
        self.read_at.append(offset)
        self.all_there.wait()
        if self.fails:
            raise StorageError(f"no piece at {offset}")
        return bytes([offset]) * length


def held(at: Storage, tmp_path: Path, pieces: Held, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """Another node that fetches four pieces of ten bytes at once, of ``held-1/b.bin`` with 80 bytes."""
    put(at, "held-1/b.bin", bytes(80))
    two = other(at, tmp_path)
    two.piece_bytes, two.fetched_bytes = 10, 40
    monkeypatch.setattr(two, "pieces", lambda name: pieces)
    return two


def test_pieces_of_a_file_are_fetched_at_once(
    s3: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = held(s3, tmp_path, Held(4), monkeypatch)
    assert two.fetch("held-1/b.bin").read_bytes() == b"".join(bytes([at]) * 10 for at in range(0, 80, 10))


def test_pieces_that_a_slow_line_brings_late_are_not_asked_for_again(
    s3: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Held):
        def read(self, offset: int, length: int) -> bytes:
            time.sleep(20 * beside.PATIENCE_S)
            return super().read(offset, length)

    monkeypatch.setattr(beside, "PATIENCE_S", 0.01)
    pieces = Slow(4)
    held(s3, tmp_path, pieces, monkeypatch).fetch("held-1/b.bin")
    assert sorted(pieces.read_at) == list(range(0, 80, 10))


def test_a_piece_that_fails_ends_a_fetch_and_leaves_no_file(
    s3: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = Held(4, fails=True)
    two = held(s3, tmp_path, pieces, monkeypatch)
    with pytest.raises(StorageError, match="no piece at"):
        two.fetch("held-1/b.bin")
    assert not list(two.local("held-1").iterdir())
    assert sorted(pieces.read_at) == [0, 10, 20, 30]  # no others were begun


def test_what_the_mirror_has_is_not_fetched_again_unless_its_size_differs(
    s3: Storage, server: FlakyServer, tmp_path: Path
) -> None:
    put(s3, "b-1/x.bin", b"12345")
    two = other(s3, tmp_path)
    local = two.fetch("b-1/x.bin")
    before = server.requests
    two.fetch("b-1/x.bin")
    assert server.requests == before + 1  # its size
    local.write_bytes(b"123")  # a copy that was cut
    assert two.fetch("b-1/x.bin").read_bytes() == b"12345"


def test_workers_of_a_node_fetch_a_file_once(s3: Storage, tmp_path: Path) -> None:
    put(s3, "c-1/x.bin", b"7" * 1000)
    two = other(s3, tmp_path)
    two.filesystem = counting = FlakyFileSystem(two.filesystem, every=1 << 30)
    threads = [threading.Thread(target=two.fetch, args=("c-1/x.bin",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counting.calls == 4 + 2  # four looks, one open and one read


def test_deleted_files_are_gone_from_storage_and_mirror(s3: Storage) -> None:
    put(s3, "d-1/x.bin", b"1")
    put(s3, "d-1/y.bin", b"2")
    s3.delete("d-1/x.bin")
    assert s3.list("d-1") == {"d-1/y.bin": 1}
    assert not s3.local("d-1/x.bin").exists()
    s3.delete("d-1")
    s3.delete("d-1")
    assert s3.list("d-1") == {}
    assert not s3.local("d-1").exists()


@pytest.mark.usefixtures("no_waiting")
def test_storage_that_fails_one_call_in_ten_loses_nothing(s3: Storage, tmp_path: Path) -> None:
    two = other(s3, tmp_path)
    s3.filesystem = writes = FlakyFileSystem(s3.filesystem)
    two.filesystem = reads = FlakyFileSystem(two.filesystem)
    data = {f"e-1/{i:03d}.bin": os.urandom(1000 + i) for i in range(40)}
    for name, content in data.items():
        put(s3, name, content)
    two.fetch("e-1")
    assert two.list("e-1") == {name: len(content) for name, content in data.items()}
    assert {name: two.local(name).read_bytes() for name in data} == data
    s3.delete("e-1")
    assert not s3.exists("e-1")
    assert min(writes.calls, reads.calls) > 100  # so ten failures each, at least


@pytest.mark.usefixtures("no_waiting")
def test_a_server_that_fails_one_request_in_ten_loses_nothing(
    s3: Storage, server: FlakyServer, tmp_path: Path
) -> None:
    server.failing = lambda request: request % 50 < 5  # several in a row
    before = server.failed
    data = {f"f-1/{i:03d}.bin": os.urandom(1000 + i) for i in range(25)}
    for name, content in data.items():
        put(s3, name, content)
    two = other(s3, tmp_path)
    two.fetch("f-1")
    assert {name: two.local(name).read_bytes() for name in data} == data
    assert server.failed >= before + 5


def test_storage_that_never_answers_is_named_without_its_secret(
    s3: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)
    s3.filesystem = FlakyFileSystem(s3.filesystem, every=1)
    with pytest.raises(
        StorageError, match=r"^looking for s3://bucket/work/x: failed 8 times \(call 8 fails\)"
    ) as e:
        s3.exists("x")
    assert "secret" not in str(e.value)


@pytest.fixture
def hangs(server: FlakyServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlakyServer]:
    """Return the server, which is told what hangs; calls wait half a second at most."""
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)
    monkeypatch.setattr(client_module, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(client_module, "LEAST_BYTES_PER_SECOND", 1 << 40)
    yield server
    server.release()


def test_a_server_that_hangs_now_and_then_is_listed_and_fetched_from(
    s3: Storage, hangs: FlakyServer, tmp_path: Path
) -> None:
    data = {f"h-1/{i}.bin": os.urandom(1000 + i) for i in range(5)}
    for name, content in data.items():
        put(s3, name, content)
    two, hung = other(s3, tmp_path), []

    def hanging(request: int) -> bool:
        hung.append(request % 4 == 0)
        return hung[-1]

    hangs.hanging = hanging
    two.fetch("h-1")
    assert {name: two.local(name).read_bytes() for name in data} == data
    assert s3.read("h-1/0.bin") == data["h-1/0.bin"]
    assert any(hung)


@pytest.mark.parametrize(("call", "answered"), [("push", 0), ("touch", 0), ("delete", 1)])
def test_a_change_without_an_answer_ends_and_is_not_made_again(
    s3: Storage, hangs: FlakyServer, call: str, answered: int
) -> None:
    put(s3, "w-1/x.bin", b"x" * 100)
    put(s3, "w-1/y.bin", b"y" * 100)
    before = hangs.requests
    hangs.hanging = lambda request: request > before + answered
    doing = "deleting" if call == "delete" else "writing"
    with pytest.raises(StorageError, match=rf"^{doing} s3://bucket/work/w-1/x.bin: no answer in . s; it may"):
        getattr(s3, call)("w-1/x.bin")


def test_a_build_whose_lease_hangs_gives_it_up_in_time(s3: Storage, hangs: FlakyServer) -> None:
    held = Lease(s3, renew_seconds=0.01)
    held.take()
    hangs.hanging = lambda request: True
    time.sleep(0.1)
    began = time.monotonic()
    held.release()
    assert time.monotonic() - began < 60


def test_reads_with_a_time_out_of_their_own_take_no_thread(
    s3: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(s3, "p-1/x.bin", b"x" * 100)

    def refuse(*arguments: Any) -> None:
        raise PermissionError("by a thread of its own")

    monkeypatch.setattr(client_module, "in_time", refuse)
    assert s3.pieces("p-1/x.bin", in_time=False).read(0, 100) == b"x" * 100
    with pytest.raises(StorageError, match="by a thread of its own"):
        s3.pieces("p-1/x.bin").read(0, 100)


def test_waits_grow_differ_and_are_bounded() -> None:
    waits: list[float] = []

    def fail() -> None:
        raise OSError("busy")

    for _ in range(50):
        with pytest.raises(StorageError, match="failed 8 times"):
            retried(fail, "x", waits.append)
    rounds = np.array(waits).reshape(50, 7)
    bounds = np.minimum(10, 0.2 * 2.0 ** np.arange(7))
    assert (rounds <= bounds).all()
    assert (rounds.max(0) > bounds / 2).all()
    assert len(np.unique(rounds)) == rounds.size


@pytest.mark.parametrize(
    "error", [PermissionError("no"), OSError("AWS Error ACCESS_DENIED during HeadObject operation")]
)
def test_what_waiting_does_not_mend_is_refused_at_once(error: OSError) -> None:
    calls = []

    def fail() -> None:
        calls.append(1)
        raise error

    with pytest.raises(StorageError, match="credentials"):
        retried(fail, "reading s3://b/x")
    assert len(calls) == 1


def test_missing_files_and_names_outside_are_refused(s3: Storage) -> None:
    with pytest.raises(StorageError, match=r"^s3://bucket/work/g-1/x: not found"):
        s3.fetch("g-1/x")
    with pytest.raises(ValueError, match="no name below"):
        s3.fetch("../x")


def test_an_object_that_replaces_another_is_told_by_its_tag(
    s3: Storage, server: FlakyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(s3, "o-1/x", b"first")
    server.failing = lambda request: request % 3 == 0
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)
    first = s3.seen("o-1/x")
    assert first == Seen(5, f'"{hashlib.md5(b"first").hexdigest()}"')
    server.failing = lambda request: False
    put(s3, "o-1/x", b"other")  # of the same size, in the same second
    assert s3.seen("o-1/x") not in (None, first)
    put(s3, "o-1/x", b"first")
    assert s3.seen("o-1/x") == first
    assert s3.seen("o-1/y") is None
    assert s3.seen("o-1") is None


def test_a_file_of_a_file_system_without_tags_is_told_by_when_it_was_written(tmp_path: Path) -> None:
    storage = Storage(f"file://{tmp_path}/there", str(tmp_path / "mirror"))
    put(storage, "x", b"first")
    written = (tmp_path / "there" / "x").stat().st_mtime_ns
    assert storage.seen("x") == Seen(5, f"{written}")


class Inputs(NamedTuple):
    chunks: list[str]
    rate: float


def join(inputs: Inputs, first: str, out: str, threads: int) -> int:
    """Write the inputs behind each other."""
    data = b"".join(Path(p).read_bytes() for p in [*inputs.chunks, first])
    Path(out).write_bytes(data)
    return threads


def write_two(out: str) -> None:
    assert not list(Path(out).iterdir())
    for name in ("a", "b"):
        (Path(out) / name).write_text(name)


def refuse(out: str) -> None:
    Path(out).write_bytes(b"half")
    raise InputError("part-3.npy: row 7 holds NaN")


def test_a_task_runs_on_any_node_between_fetch_and_push(
    s3: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "xyz":
        put(s3, f"h-1/{name}", name.encode())
    root = s3.mirror
    packed: Any = s3.pack((Inputs([f"{root}/h-1/x", f"{root}/h-1/y"], 0.5), root / "h-1/z"))
    assert packed == (Inputs([Stored("h-1/x"), Stored("h-1/y")], 0.5), Stored("h-1/z"))  # type: ignore[list-item]
    monkeypatch.setenv(storage.MIRROR_VARIABLE, str(tmp_path / "another node"))
    storage.open_storage.cache_clear()
    assert run_localised(s3.url, join, packed, "i-1/000.bin", threads=3) == 3
    assert s3.fetch("i-1/000.bin").read_bytes() == b"xyz"
    run_localised(s3.url, write_two, (), "j-1", directory=True)
    run_localised(s3.url, write_two, (), "j-1", directory=True)  # again, after a death
    assert s3.list("j-1") == {"j-1/a": 1, "j-1/b": 1}


def test_a_task_that_fails_leaves_nothing_behind(
    s3: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(storage.MIRROR_VARIABLE, str(tmp_path / "node"))
    storage.open_storage.cache_clear()
    with pytest.raises(InputError):
        run_localised(s3.url, refuse, (), "k-1/000.bin")
    assert not s3.exists("k-1")
    assert not [p for p in (tmp_path / "node").rglob("*") if p.is_file()]


class Interrupting:
    """A file system whose streams are interrupted at the second write."""

    def __init__(self, inner: Any, deletes: bool = True) -> None:
        self.inner, self.deletes = inner, deletes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def delete_file(self, path: str) -> None:
        if not self.deletes:
            raise OSError("the network is gone")
        self.inner.delete_file(path)

    def open_output_stream(self, path: str) -> Any:
        stream, writes = self.inner.open_output_stream(path), []

        class Stream:
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *error: object) -> None:
                stream.close()

            def write(self, piece: bytes) -> None:
                writes.append(stream.write(piece))
                if len(writes) == 2:
                    raise KeyboardInterrupt

        return Stream()


@pytest.mark.parametrize("on", ["s3", "directory"])
def test_an_interrupted_push_leaves_nothing(s3: Storage, tmp_path: Path, on: str) -> None:
    at = s3 if on == "s3" else Storage(f"file://{tmp_path}/nfs", str(tmp_path / "mirror"))
    at.piece_bytes = 10
    at.filesystem = Interrupting(at.filesystem)
    with pytest.raises(KeyboardInterrupt):
        put(at, "m-1/x", b"1" * 100)
    assert at.list("m-1") == {}


def test_a_file_of_which_storage_has_the_beginning_is_not_taken_for_whole(
    s3: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(storage.MIRROR_VARIABLE, str(tmp_path / "node"))
    storage.open_storage.cache_clear()
    at = storage.open_storage(s3.url)
    at.piece_bytes = 1
    run_localised(s3.url, write_three, (), "n-1/0.bin")
    at.filesystem = Interrupting(at.filesystem, deletes=False)
    with pytest.raises(KeyboardInterrupt):
        run_localised(s3.url, write_three, (), "n-1/1.bin")
    assert s3.list("n-1") == {"n-1/0.bin": 3, "n-1/1.bin": 2}
    assert s3.confirmed("n-1") == {"n-1/0.bin": True}
    for data in (b"12", b"1234"):  # one note sorts before the first, the other behind
        put(s3, "n-1/0.bin", data)
        assert s3.confirmed("n-1") == {"n-1/0.bin": False}
        s3.confirm("n-1/0.bin")
        assert s3.confirmed("n-1") == {"n-1/0.bin": True}
    s3.delete("n-1/0.bin")
    assert s3.confirmed("n-1") == {"n-1/0.bin": False}


def write_three(out: str) -> None:
    Path(out).write_bytes(b"123")


def test_files_appear_whole_also_where_storage_is_a_directory(tmp_path: Path) -> None:
    at = Storage(f"file://{tmp_path}/nfs", str(tmp_path / "mirror"))
    put(at, "l-1/x", b"12")
    assert at.list() == {"l-1/x": 2}
    assert [p.name for p in (tmp_path / "nfs/l-1").iterdir()] == ["x"]
    assert Storage(at.url, str(tmp_path / "other")).fetch("l-1/x").read_bytes() == b"12"
