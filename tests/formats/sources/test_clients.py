"""Input files at URLs whose storage fails, hangs or refuses: other tries mend what passes, and errors name the rest."""

from __future__ import annotations

import gc
import itertools
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import numpy as np
import pytest
from pyarrow import fs
from tests.support.fsspec_clients import ClientError, FlakyClient
from tests.support.s3 import FlakyServer, flaky_server
from tests.support.sources import (
    check_source,
    make,
    write_bin,
    write_hdf5,
    write_ipc,
    write_parquet,
    write_vecs,
)

from indexmill.formats.errors import InputError, StorageError
from indexmill.formats.sources import remote
from indexmill.formats.sources.remote import RemoteFile
from indexmill.formats.sources.source import open_source
from indexmill.formats.urls import client as client_module
from indexmill.formats.urls import retry
from indexmill.formats.urls.client import ClientFiles, in_time_files

WRITERS: dict[str, Callable[[Path, Any], object]] = {
    "fbin": write_bin, "fvecs": write_vecs, "npy": np.save, "arrow": write_ipc, "h5": write_hdf5,
    "parquet": write_parquet,
}  # fmt: skip
VECTORS = make("float32", 200, 3)
READS = ("cat_file", "info", "ls")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Wait for nothing between tries; let the client answer again at the end."""
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)
    yield
    FlakyClient.failing = staticmethod(lambda call: None)
    FlakyClient.store.clear()


def put(folder: Path, suffix: str, scheme: str = "flaky") -> str:
    """Put a file of `VECTORS` behind a client of fsspec; return its URL."""
    local, url = folder / f"a.{suffix}", f"{scheme}://{uuid4().hex}/a.{suffix}"
    WRITERS[suffix](local, VECTORS)
    with fsspec.open(url, "wb") as file:
        file.write(local.read_bytes())
    return url


def fail_every(every: int, error: Exception) -> None:
    numbers = itertools.count(1)
    FlakyClient.failing = staticmethod(
        lambda call: error if call in READS and next(numbers) % every == 0 else None
    )


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Return a function by which every n-th call that reads hangs to the end of the test."""
    end = threading.Event()

    def hang_every(every: int) -> None:
        numbers = itertools.count(1)

        def wait(call: str) -> None:
            if call in READS and next(numbers) % every == 0:
                end.wait()

        FlakyClient.failing = staticmethod(wait)

    monkeypatch.setattr(client_module, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(client_module, "LEAST_BYTES_PER_SECOND", 1 << 40)
    yield hang_every
    end.set()


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("error", [OSError("connection reset"), ClientError("503 from the server", 503)])
def test_reads_that_fail_now_and_then_are_made_again(tmp_path: Path, suffix: str, error: Exception) -> None:
    url = put(tmp_path, suffix)
    fail_every(3, error)
    check_source(open_source(url), VECTORS, 30, [19, 2, 2, 199])


@pytest.mark.parametrize("suffix", WRITERS)
def test_reads_that_hang_now_and_then_are_made_again(
    tmp_path: Path, suffix: str, hang: Callable[[int], None]
) -> None:
    url = put(tmp_path, suffix)
    hang(3)
    check_source(open_source(url), VECTORS, 100, [19, 199])


@pytest.mark.parametrize("call", READS)
def test_a_folder_is_listed_whole_though_a_call_fails(tmp_path: Path, call: str) -> None:
    url = put(tmp_path, "npy")
    failed: list[str] = []

    def once(called: str) -> Exception | None:
        if called == call and not failed:
            failed.append(called)
            return OSError("connection reset")
        return None

    for place in (url.rpartition("/")[0], url.replace("a.npy", "*.npy")):
        FlakyClient.failing = staticmethod(once)
        failed.clear()
        check_source(open_source(place), VECTORS, 100, [7])
        assert failed == [call]


@pytest.mark.parametrize("suffix", WRITERS)
def test_storage_that_never_answers_is_named_with_what_was_read(
    tmp_path: Path, suffix: str, hang: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "ANSWER_SECONDS", 0.01)
    url = put(tmp_path, suffix)
    source = open_source(url)
    hang(1)
    again = r"check that the storage answers and run again"
    with pytest.raises(
        StorageError, match=rf"^looking for {url}: failed 8 times \(no answer in 0 s\); {again}"
    ):
        open_source(url)
    with pytest.raises(
        StorageError, match=rf"(looking for|of) {url}: failed 8 times \(no answer in 0 s\); {again}"
    ):
        next(source.batches(100))


def test_an_error_of_a_read_says_which_bytes(tmp_path: Path) -> None:
    url = put(tmp_path, "fbin")
    source = open_source(url)
    FlakyClient.failing = staticmethod(lambda call: OSError("gone") if call == "cat_file" else None)
    read = rf"^reading 1,200 bytes at offset 8 of {url}: failed 8 times \(gone\); check that the storage"
    with pytest.raises(StorageError, match=read):
        next(source.batches(100))


def test_a_read_that_is_refused_is_not_made_again(tmp_path: Path) -> None:
    url = put(tmp_path, "npy")
    source = open_source(url)
    FlakyClient.failing = staticmethod(lambda call: ClientError("who are you", 403))
    FlakyClient.calls.clear()
    with pytest.raises(StorageError, match=r"refused \(ClientError: who are you\); check path, rights"):
        next(source.batches(100))
    assert len(FlakyClient.calls) == 1
    with pytest.raises(StorageError, match=rf"^looking for {url}: refused"):
        open_source(url)


def test_a_file_that_goes_away_is_not_found(tmp_path: Path) -> None:
    url = put(tmp_path, "npy")
    source = open_source(url)
    FlakyClient.store.clear()
    with pytest.raises(InputError, match=rf"^{url}: not found; expected a vector file; check the path"):
        next(source.batches(100))
    with pytest.raises(InputError, match=rf"^{url}: not found"):
        open_source(url)


def test_a_file_that_becomes_shorter_is_refused(tmp_path: Path) -> None:
    url = put(tmp_path, "fbin")
    batches = open_source(url).batches(100)
    next(batches)
    with fsspec.open(url, "wb") as file:
        file.write(bytes(1000))
    with pytest.raises(StorageError, match=r"failed 8 times \(0 bytes at offset 1,208, expected 1,200"):
        next(batches)


def test_small_files_of_servers_without_ranges_are_read_and_large_ones_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put(tmp_path, "fbin", "withoutranges")
    check_source(open_source(url), VECTORS, 30, [19, 2])
    monkeypatch.setattr(client_module, "MOST_UNASKED_BYTES", 1000)
    with pytest.raises(
        StorageError, match=r"2,408 bytes came for a range of 8, so the server knows no ranges; copy"
    ):
        open_source(url)


def test_short_reads_are_parts_of_a_window_and_long_ones_a_request_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "WINDOW_BYTES", 100)
    data, asked = np.random.default_rng(0).bytes(1000), []

    class Counted(FlakyClient):
        def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
            asked.append((start, end))
            return data[start:end]

        def info(self, path: str, **options: Any) -> Any:
            return {"name": path, "size": len(data), "type": "file"}

    file = RemoteFile(ClientFiles(Counted()), "/x", "flaky://x")
    assert [file.read(10), file.read(50), file.tell()] == [data[:10], data[10:60], 60]
    assert [file.seek(90), file.read(20), file.seek(30), file.read(5)] == [90, data[90:110], 30, data[30:35]]
    assert [file.read(300), file.seek(-5, 2), file.read(), file.read(3)] == [
        data[35:335],
        995,
        data[995:],
        b"",
    ]
    assert file.read_at(7, 996) == data[996:]
    assert asked == [(0, 100), (90, 190), (30, 130), (35, 335), (995, 1000), (996, 1000)]


@pytest.fixture(scope="module")
def server() -> Iterator[FlakyServer]:
    with flaky_server() as running:
        yield running


def on_s3(server: FlakyServer, folder: Path, suffix: str) -> str:
    """Put a file of `VECTORS` on S3; return its URL."""
    local = folder / f"a.{suffix}"
    WRITERS[suffix](local, VECTORS)
    place, _, options = server.url.replace("/work?", "/inputs?").partition("?")
    name = f"{uuid4().hex}.{suffix}"
    filesystem, below = fs.FileSystem.from_uri(f"{place}?{options}")
    with filesystem.open_output_stream(f"{below}/{name}") as file:
        file.write(local.read_bytes())
    return f"{place}/{name}?{options}"


@pytest.mark.parametrize("suffix", WRITERS)
def test_s3_that_fails_now_and_then_is_read(server: FlakyServer, tmp_path: Path, suffix: str) -> None:
    url = on_s3(server, tmp_path, suffix)
    server.failing = lambda request: request % 3 == 0
    try:
        check_source(open_source(url), VECTORS, 100, [19, 199])
    finally:
        server.failing = lambda request: False


@pytest.mark.parametrize("suffix", ["npy", "parquet"])
def test_s3_that_hangs_now_and_then_is_read(
    server: FlakyServer, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = on_s3(server, tmp_path, suffix)
    monkeypatch.setattr(client_module, "ANSWER_SECONDS", 0.5)
    server.hanging = lambda request: request % 4 == 0
    try:
        check_source(open_source(url), VECTORS, 100, [19, 199])
    finally:
        server.release()


def test_s3_that_never_answers_is_named_without_its_credentials(
    server: FlakyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = on_s3(server, tmp_path, "npy")
    source = open_source(url)
    monkeypatch.setattr(client_module, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(client_module, "LEAST_BYTES_PER_SECOND", 1 << 40)
    server.hanging = lambda request: True
    try:
        with pytest.raises(StorageError) as caught:
            next(source.batches(100))
    finally:
        server.release()
    name = source.paths[0]
    assert str(caught.value).startswith(f"looking for {name}: failed 8 times (no answer in 0 s); check that")
    assert "secret" not in str(caught.value)


def test_calls_of_pyarrows_own_file_systems_that_hang_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    class Hanging:
        type_name = uuid4().hex

        def get_file_info(self, wanted: Any) -> None:
            end.wait()

    monkeypatch.setattr(client_module, "ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(client_module, "MOST_LEFT", 2)
    files = [in_time_files(Hanging()) for _ in range(3)]
    for one in files[:2]:
        with pytest.raises(TimeoutError, match="no answer in 0 s"):
            one.get_file_info("x")
    with pytest.raises(TimeoutError, match="2 calls before have no answer yet"):
        files[2].get_file_info("x")
    end.set()


def test_requests_of_hdf5_collect_no_garbage_which_could_wait_for_its_lock(tmp_path: Path) -> None:
    seen: dict[str, set[bool]] = {}
    urls = {suffix: put(tmp_path, suffix) for suffix in ("h5", "npy")}
    for suffix, url in urls.items():
        found = seen.setdefault(suffix, set())
        FlakyClient.failing = staticmethod(
            lambda call, found=found: found.add(gc.isenabled()) if call in READS else None
        )
        source = open_source(url)
        found.clear()  # of looks before the file is opened
        assert len(list(source.batches(100))) == 2
        assert gc.isenabled()
    assert seen == {"h5": {False}, "npy": {True}}


def test_a_source_at_a_url_can_be_pickled(tmp_path: Path) -> None:
    url = put(tmp_path, "parquet")
    check_source(pickle.loads(pickle.dumps(open_source(url))), VECTORS, 100, [5])
