"""Files that clients of fsspec reach: failures that pass, ranges side by side, and clients that lack something."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import numpy as np
import pytest
from pyarrow import fs
from tests.support.fsspec_clients import (
    ClientError,
    FlakyClient,
    SlowClient,
    TaggingClient,
    WithoutCreation,
    WithoutModes,
)
from tests.support.indexes.at_url import fetch, publish
from tests.support.indexes.builds import build, clustered

import indexmill
from indexmill.formats.errors import StorageError
from indexmill.formats.urls import client as client_module
from indexmill.formats.urls import retry
from indexmill.pipeline.build import run_build
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.pipeline.urls.cache import CACHE_VARIABLE, cache_directory
from indexmill.pipeline.urls.conditional import conditional
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE, Seen, Storage


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("local") / "index", clustered(120, 8))


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)
    monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "mirror"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    yield f"flaky://{uuid4().hex}/x"
    FlakyClient.failing = staticmethod(lambda call: None)
    FlakyClient.store.clear()


@pytest.fixture
def hang(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], threading.Event]]:
    """Return a function that lets every n-th call that reads hang until the event that it returns is set."""
    events: list[threading.Event] = []

    def hang_every(every: int) -> threading.Event:
        numbers, end = itertools.count(1), threading.Event()
        events.append(end)

        def wait(call: str) -> None:
            if call in ("cat_file", "info", "ls") and next(numbers) % every == 0:
                end.wait()

        FlakyClient.failing = staticmethod(wait)
        return end

    monkeypatch.setattr(client_module, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(client_module, "LEAST_BYTES_PER_SECOND", 1 << 40)
    yield hang_every
    for end in events:
        end.set()


def fail_every(every: int, error: Exception) -> None:
    """Let each such call fail, except those that open a file to write: after one as many others follow each time."""
    numbers = itertools.count(1)
    FlakyClient.failing = staticmethod(
        lambda call: error if call != "open" and next(numbers) % every == 0 else None
    )


@pytest.mark.parametrize("error", [OSError("connection reset"), ClientError("503 from the server", 503)])
@pytest.mark.parametrize("every", [5, 7, 10])
def test_failures_that_pass_are_mended_by_another_try(
    url: str, index: Path, error: Exception, every: int
) -> None:
    fail_every(every, error)
    publish(index, url)
    queries = clustered(120, 8)[:5]
    expected = indexmill.open(index).search(queries, 3).ids
    assert np.array_equal(indexmill.open(url, engine="ranges").search(queries, 3).ids, expected)
    assert np.array_equal(indexmill.open(url).search(queries, 3).ids, expected)


def test_a_listing_that_fails_is_not_taken_for_an_empty_folder(url: str, index: Path) -> None:
    publish(index, url)
    whole = Storage(url).list()
    for call in ("info", "ls"):
        failed: list[str] = []

        def once(called: str, call: str = call, failed: list[str] = failed) -> Exception | None:
            if called == call and not failed:
                failed.append(called)
                return FileNotFoundError(called) if call == "ls" else OSError("connection reset")
            return None

        FlakyClient.failing = staticmethod(once)
        assert Storage(url).list() == whole


def test_a_file_that_is_missing_is_missing_at_once(url: str, index: Path) -> None:
    publish(index, url)
    storage = Storage(url)
    FlakyClient.calls.clear()
    assert storage.read("nothing") is None
    assert FlakyClient.calls == ["cat_file", "info"]
    assert not storage.exists("nothing")
    assert storage.list("nothing") == {}


def test_a_client_that_fails_for_good_is_named(url: str, index: Path) -> None:
    publish(index, url)
    FlakyClient.failing = staticmethod(lambda call: ClientError("the server is gone"))
    with pytest.raises(StorageError, match=r"failed 8 times \(ClientError: the server is gone\)"):
        indexmill.open(url)
    FlakyClient.failing = staticmethod(lambda call: ClientError("who are you", 403))
    with pytest.raises(StorageError, match=r"refused \(ClientError: who are you\)"):
        indexmill.open(url)


@pytest.mark.parametrize("trouble", ["fails", "hangs"])
def test_a_build_ingests_vectors_whose_storage_fails_or_hangs_now_and_then(
    url: str, index: Path, tmp_path: Path, hang: Callable[[int], threading.Event], trouble: str
) -> None:
    np.save(tmp_path / "a.npy", clustered(120, 8))
    with fsspec.open(f"{url}/a.npy", "wb") as file:
        file.write((tmp_path / "a.npy").read_bytes())
    if trouble == "hangs":
        hang(3)
    else:
        fail_every(3, OSError("connection reset"))
    parameters = Parameters(R=12, L=30, pq_bytes=8)
    run_build(BuildSpec(input=[f"{url}/a.npy"], out=str(tmp_path / "x"), workers=1, parameters=parameters))
    assert (tmp_path / "x" / "graph.imx").read_bytes()[4096:] == (index / "graph.imx").read_bytes()[4096:]


@pytest.mark.parametrize("engine", ["ranges", "auto"])
def test_a_call_that_hangs_is_made_again(
    url: str, index: Path, hang: Callable[[int], threading.Event], engine: Any
) -> None:
    publish(index, url)
    queries = clustered(120, 8)[:5]
    expected = indexmill.open(index).search(queries, 3).ids
    hang(3)
    assert np.array_equal(indexmill.open(url, engine=engine).search(queries, 3).ids, expected)
    assert "indexmill-client" in [thread.name for thread in threading.enumerate()], "one hangs still"


def test_a_client_that_never_answers_is_not_waited_for(
    url: str, index: Path, hang: Callable[[int], threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(index, url)
    monkeypatch.setattr(client_module, "ANSWER_SECONDS", 0.01)
    hang(1)
    for open_index in (lambda: indexmill.open(url, engine="ranges"), lambda: indexmill.open(url)):
        with pytest.raises(
            StorageError, match=r"failed 8 times \(no answer in 0 s\); check that the storage"
        ):
            open_index()
    with pytest.raises(StorageError, match=r"failed 8 times \(no answer in 0 s\); check that the storage"):
        publish(index, f"{url}-other")


@pytest.mark.parametrize("place", ["first", "third", "last"])
def test_a_publish_whose_write_hangs_ends_and_writes_it_once(
    url: str, index: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FlakyClient.calls.clear()
    publish(index, f"{url}-other")
    number = {"first": 1, "third": 3, "last": FlakyClient.calls.count("open")}[place]
    monkeypatch.setattr(client_module, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(client_module, "LEAST_BYTES_PER_SECOND", 1 << 40)
    end = threading.Event()

    def wait(call: str) -> None:
        if call == "open" and FlakyClient.calls.count("open") == number:
            end.wait()

    FlakyClient.calls.clear()
    FlakyClient.failing = staticmethod(wait)
    with pytest.raises(StorageError, match=r"^writing flaky://.*no answer in 0 s; it may still take effect"):
        publish(index, url)
    assert FlakyClient.calls.count("open") == number
    assert Storage(url).read("manifest.json") is None
    end.set()
    FlakyClient.failing = staticmethod(lambda call: None)
    publish(index, url, force=True)
    assert fetch(url)["graph.imx"] == (index / "graph.imx").read_bytes()


class Hanging:
    """A client of which one call that writes or deletes hangs; it is also the file that it opens."""

    protocol = "hanging"

    def __init__(self, hanging: str) -> None:
        self.end, self.calls, self._hanging = threading.Event(), list[str](), hanging

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self._hanging:
            self.end.wait()

    def open(self, path: str, mode: str) -> Hanging:
        self._call("open")
        return self

    def write(self, data: bytes) -> None:
        self._call("write")

    def close(self) -> None:
        self._call("close")

    def rm(self, path: str, recursive: bool = False) -> None:
        self._call("rm")


@pytest.mark.parametrize("name", ["open", "write", "close", "rm"])
def test_calls_that_write_or_delete_are_waited_for_so_long(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "ANSWER_SECONDS", 0.05)
    client = Hanging(name)
    files = client_module.ClientFiles(client)

    def write() -> None:
        with files.open_output_stream("x") as out:
            out.write(b"data")

    with pytest.raises(retry.Unanswered, match="no answer in 0 s"):
        files.delete_file("x") if name == "rm" else write()
    assert client.calls[-1] == name, "a file on which a call hangs is left as it is"
    client.end.set()


def test_so_many_calls_that_hang_are_left_behind_and_no_more(
    url: str, hang: Callable[[int], threading.Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(client_module, "MOST_LEFT", 3)
    end = hang(1)
    for one in (Storage(url, str(tmp_path / "one")), Storage(url, str(tmp_path / "other"))):
        with pytest.raises(StorageError, match=r"failed 8 times \(3 calls before have no answer yet\)"):
            one.list()
        assert [thread.name for thread in threading.enumerate()].count("indexmill-client") == 3
    end.set()
    assert one.list() == {}


def test_a_call_has_time_for_the_bytes_that_it_moves(slow: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)
    monkeypatch.setattr(client_module, "ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(client_module, "LEAST_BYTES_PER_SECOND", 1 << 20)
    SlowClient.seconds = 0.3
    file = slow.pieces("graph.imx")
    assert len(file.read(0, 4 << 20)) == 4 << 20
    with pytest.raises(StorageError, match="no answer"):
        file.read(0, 4096)


def test_a_folder_is_deleted_whole(url: str, index: Path) -> None:
    publish(index, url)
    storage = Storage(url)
    (folder,) = {name.partition("/")[0] for name in storage.list() if "/" in name}
    fail_every(5, OSError("connection reset"))
    storage.delete(folder)
    assert set(storage.list()) == {"manifest.json"}


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Storage]:
    SlowClient.ranges.clear()
    SlowClient.at_once[:] = [0, 0]
    yield Storage("slow://host/x", str(tmp_path))
    SlowClient.seconds = 0.05


def test_ranges_are_read_side_by_side_and_no_more_of_them(slow: Storage) -> None:
    file = slow.pieces("graph.imx")
    threads = [threading.Thread(target=file.read, args=(at * (8 << 20), 4096)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert SlowClient.at_once[1] > 1
    assert sorted(SlowClient.ranges) == [(at * (8 << 20), at * (8 << 20) + 4096) for at in range(8)]


def test_a_range_does_not_wait_for_another_that_hangs(slow: Storage) -> None:
    SlowClient.seconds = 2
    file = slow.pieces("graph.imx")
    hanging = threading.Thread(target=file.read, args=(0, 4096))
    hanging.start()
    while not SlowClient.ranges:
        time.sleep(0.01)
    SlowClient.seconds = 0
    assert len(file.read(8 << 20, 4096)) == 4096
    assert hanging.is_alive()
    hanging.join()


@pytest.mark.parametrize("client", [WithoutModes, WithoutCreation])
def test_a_client_that_cannot_create_compares_and_puts(client: type) -> None:
    files = fs.PyFileSystem(fs.FSSpecHandler(client()))
    manifest = conditional("other://b", files, f"/{client.__name__}/manifest.json")
    manifest.put_if_same(None, b"x")
    assert manifest.read() == b"x"


def test_an_index_is_published_and_fetched_by_a_client(url: str, index: Path) -> None:
    publish(index, url)
    there = fetch(url)
    assert there["graph.imx"] == (index / "graph.imx").read_bytes()
    assert not list(cache_directory().glob("opening-*"))


def put(storage: Storage, data: bytes) -> None:
    path = storage.mirror / "local"
    path.write_bytes(data)
    storage.put(path, "file")


def test_a_file_in_memory_that_replaces_another_is_told(tmp_path: Path) -> None:
    storage = Storage(f"memory://{tmp_path.name}/x", str(tmp_path))
    assert storage.seen("file") is None
    put(storage, b"first")
    first = storage.seen("file")
    assert first == storage.seen("file")
    put(storage, b"other")
    other = storage.seen("file")
    assert None not in (first, other)
    assert first != other


@pytest.mark.parametrize("name", ["ETag", "etag", "generation", "Last-Modified"])
def test_a_file_is_told_by_the_tag_that_its_client_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    storage = Storage(f"tagging://{tmp_path.name}/x", str(tmp_path))
    monkeypatch.setattr(TaggingClient, "told", {name: "one", "time": "of the last read"})
    put(storage, b"first")
    put(storage, b"other")
    assert storage.seen("file") == Seen(5, "one")


#: Runs the command line with short time-outs.
_IMPATIENT = """
import sys
from indexmill.formats.urls import client, retry
from indexmill.jobs.cli.main import main
client.ANSWER_SECONDS, client.LEAST_BYTES_PER_SECOND, retry.FIRST_SECONDS = 0.1, 1 << 40, 1e-3
main()
"""


def test_a_command_ends_though_calls_to_s3_hang(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes connections, and answers none
        at = f"s3://a:b@bucket/a.npy?scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{server.getsockname()[1]}"
        ended = subprocess.run(
            [sys.executable, "-c", _IMPATIENT, "build", "--input", at, "--out", str(tmp_path / "x")],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert ended.returncode == 1
    assert "failed 8 times (no answer in 0 s)" in ended.stderr
