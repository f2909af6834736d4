"""Blocks that were read by ranges and are kept on a local disk, for later openings and other processes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.at_url import ROOM, publish
from tests.support.indexes.by_ranges import IDS, KINDS, QUERIES, VECTORS, as_at_url
from tests.support.s3 import FlakyServer

import indexmill
from indexmill.formats.errors import (
    CorruptFile,
    FormatError,
)
from indexmill.formats.index.manifest import parse_manifest
from indexmill.pipeline.urls import ranges as url_ranges
from indexmill.pipeline.urls.cache import BYTES_VARIABLE, cache_directory
from indexmill.pipeline.urls.ranges import RemoteIndex
from indexmill.pipeline.urls.storage import Storage
from indexmill.reader import carriers


def n_requests(server: FlakyServer, url: str) -> tuple[int, dict[str, int]]:
    """Return the requests that opening and searches take, and the traffic of the searches."""
    before = server.requests
    index = indexmill.open(url, engine="ranges")
    index.search(QUERIES, 5)
    index.search(QUERIES + np.float32(0.01), 5)
    carriers.settle(20)
    traffic = index.native.traffic
    assert traffic is not None
    return server.requests - before, traffic


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_kept_on_disk(url: str, server: FlakyServer, indexes: dict[str, Path], kind: str) -> None:
    publish(indexes[kind], url)
    cold, first = n_requests(server, url)
    again, second = n_requests(server, url)
    assert first["requests"] > 0
    assert cold > 8
    assert again <= 2  # for the manifest
    assert (second["requests"], second["damaged"]) == (0, 0)
    assert second["disk"] > 0
    far = indexmill.open(url, engine="ranges", ids="memory")
    found, expected = far.search(QUERIES, 5), as_at_url(indexmill.open(indexes[kind]), QUERIES)
    assert np.array_equal(found.ids, expected.ids)
    assert set(found.counters["rounds"]) == {0}


#: A process that searches an index at a URL with a cold memory, and prints what it asked of the store.
SEARCHES = """
import json, os, sys
import numpy as np
url, queries, out = sys.argv[1:4]
import indexmill
from indexmill.pipeline.urls import ranges
ranges.WHOLE_BYTES = 4 * 4096
index = indexmill.open(url, engine="ranges")
np.save(out, index.search(np.load(queries), 5).ids)
print(json.dumps(index.native.traffic))
"""


def test_processes_share_the_blocks_on_disk(
    url: str, server: FlakyServer, indexes: dict[str, Path], tmp_path: Path
) -> None:
    publish(indexes["graph"], url)
    np.save(tmp_path / "q.npy", QUERIES)

    def begin(i: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", SEARCHES, url, str(tmp_path / "q.npy"), str(tmp_path / f"{i}.npy")]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def end(process: subprocess.Popen[str]) -> dict[str, int]:
        told, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        traffic: dict[str, int] = json.loads(told)
        return traffic

    both = [end(process) for process in [begin(0), begin(1)]]  # at once
    assert any(traffic["requests"] for traffic in both)
    assert not any(traffic["damaged"] for traffic in both)
    before = server.requests
    last = end(begin(2))
    assert server.requests - before <= 2  # for the manifest
    assert (last["requests"], last["damaged"]) == (0, 0)
    expected = as_at_url(indexmill.open(indexes["graph"]), QUERIES).ids
    assert all(np.array_equal(np.load(tmp_path / f"{i}.npy"), expected) for i in range(3))


def cached(name: str) -> list[Path]:
    return list(cache_directory().glob(f"blocks-*/{name}.*"))


@pytest.mark.parametrize("how", ["pages", "checksums", "cut", "text"])
@pytest.mark.parametrize("kind", ["graph", "ivf with codes"])
def test_what_is_damaged_on_disk_is_fetched_again(
    url: str, server: FlakyServer, indexes: dict[str, Path], kind: str, how: str
) -> None:
    publish(indexes[kind], url)
    n_requests(server, url)
    for path in cached("*"):
        content = np.frombuffer(path.read_bytes(), dtype=np.uint8).copy()
        head = 16 << 10
        part = content[head:] if how == "pages" else content[:head]
        part[part != 0] ^= 0xA5
        path.write_bytes(
            {"cut": content[: len(content) // 2].tobytes(), "text": b"text"}.get(how, content.tobytes())
        )
    far = indexmill.open(url, engine="ranges")
    expected = as_at_url(indexmill.open(indexes[kind]), QUERIES)
    assert np.array_equal(far.search(QUERIES, 5).ids, expected.ids)
    n_requests(server, url)
    assert n_requests(server, url)[0] <= 2  # what was fetched again was kept


def test_blocks_that_are_damaged_on_disk_are_counted(
    url: str, server: FlakyServer, indexes: dict[str, Path]
) -> None:
    publish(indexes["ivf"], url)
    index = indexmill.open(url, engine="ranges", ids="memory")
    n_requests(server, url)
    (path,) = cached("batch-000000.imx")
    content = np.frombuffer(path.read_bytes(), dtype=np.uint8).copy()
    content[16 << 10 :] ^= 1
    path.write_bytes(content.tobytes())
    assert index.search(QUERIES, 5).counters["rounds"].max() == 1
    traffic = index.native.traffic
    assert traffic is not None
    assert traffic["damaged"] > 0
    assert traffic["requests"] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_bytes_on_disk_are_fetched_again(
    url: str, server: FlakyServer, indexes: dict[str, Path], kind: str
) -> None:
    publish(indexes[kind], url)
    remote, entries = RemoteIndex(url, ROOM), parse_manifest(indexes[kind]).files
    for entry in entries:  # as if they came from storage, with checksums of their own
        remote.blocks.put(entry.name, 0, np.random.default_rng(1).bytes(entry.bytes))
    assert all(cached(entry.name) for entry in entries)
    far = indexmill.open(url, engine="ranges")
    assert np.array_equal(far.search(QUERIES, 5).ids, as_at_url(indexmill.open(indexes[kind]), QUERIES).ids)
    n_requests(server, url)
    assert n_requests(server, url)[0] <= 2  # what was fetched again was kept


def test_wrong_bytes_on_disk_of_a_file_that_is_filled_are_fetched_again(
    url: str, indexes: dict[str, Path]
) -> None:
    publish(indexes["graph"], url)
    expected = indexmill.open(indexes["graph"]).vector_ids_of(IDS[:3])
    far = indexmill.open(url, engine="ranges")
    (entry,) = (entry for entry in parse_manifest(indexes["graph"]).files if entry.name == "ids.imx")
    RemoteIndex(url, ROOM).blocks.put(entry.name, 0, np.random.default_rng(1).bytes(entry.bytes))
    assert np.array_equal(far.vector_ids_of(IDS[:3]), expected)


#: A process that searches with few descriptors left, and prints what it asked of the store.
FEW_FILES = """
import json, os, resource, sys
import numpy as np
url, queries = sys.argv[1:3]
import indexmill
from indexmill.pipeline.urls import ranges
ranges.WHOLE_BYTES = 4 * 4096
index = indexmill.open(url, engine="ranges", ids="memory")
few = max(map(int, os.listdir("/proc/self/fd"))) + 4
resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
index.search(np.load(queries), 5, nprobe=8, threads=1)
print(json.dumps(index.native.traffic))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_blocks_on_disk_hold_few_files_open(url: str, indexes: dict[str, Path], tmp_path: Path) -> None:
    publish(indexes["ivf"], url)
    indexmill.open(url, engine="ranges", ids="memory").search(QUERIES, 5, nprobe=8)
    carriers.settle(20)
    np.save(tmp_path / "q.npy", QUERIES)
    command = [sys.executable, "-c", FEW_FILES, url, str(tmp_path / "q.npy")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    traffic = json.loads(ended.stdout)
    assert traffic["disk"] >= 8
    assert (traffic["requests"], traffic["damaged"]) == (0, 0)


def test_an_opening_removes_what_a_killed_fetch_left_unless_one_is_fetching(
    url: str, indexes: dict[str, Path]
) -> None:
    publish(indexes["ivf"], url)
    left = [cache_directory() / name for name in ("fetching-x", "removing-x")]
    for folder in left:
        folder.mkdir(parents=True)
    with open(cache_directory() / ".lock", "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        RemoteIndex(url, ROOM)
        assert all(folder.exists() for folder in left)
    RemoteIndex(url, ROOM)
    assert not any(folder.exists() for folder in left)


def test_blocks_of_a_replaced_index_are_not_those_of_the_next(
    url: str, server: FlakyServer, indexes: dict[str, Path], tmp_path: Path
) -> None:
    other = indexmill.build(VECTORS[::-1].copy(), tmp_path / "other", max_degree=16)
    publish(indexes["graph"], url)
    n_requests(server, url)
    publish(tmp_path / "other", url, force=True)
    for _ in range(2):
        far = indexmill.open(url, engine="ranges")
        assert np.array_equal(far.search(QUERIES, 5).ids, as_at_url(other, QUERIES).ids)
    publish(indexes["graph"], url, force=True)
    assert n_requests(server, url)[0] <= 2  # the first one's are still there


def test_an_object_that_is_replaced_alone_is_not_searched(
    url: str, server: FlakyServer, indexes: dict[str, Path], tmp_path: Path
) -> None:
    publish(indexes["ivf"], url)
    n_requests(server, url)
    storage = Storage(url, str(tmp_path / "copy"))
    (name,) = (name for name in storage.list() if name.endswith("batch-000000.imx"))
    path = storage.fetch(name)
    good = path.read_bytes()
    path.write_bytes(os.urandom(len(good)))
    storage.push(name)
    expected = indexmill.open(indexes["ivf"]).search(QUERIES, 5)
    index = indexmill.open(url, engine="ranges")
    assert np.array_equal(index.search(QUERIES, 5).ids, expected.ids)  # what the manifest names is on disk
    shutil.rmtree(cache_directory())
    for _ in range(2):
        with pytest.raises(FormatError):
            indexmill.open(url, engine="ranges").search(QUERIES, 5)
    path.write_bytes(good)
    storage.push(name)
    index = indexmill.open(url, engine="ranges")  # and what was not is not kept
    assert np.array_equal(index.search(QUERIES, 5).ids, expected.ids)


def test_bytes_that_were_damaged_on_their_way_to_the_disk_are_read_again(
    url: str, indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes["ivf"], url)
    expected = indexmill.open(indexes["ivf"]).search(QUERIES, 5)
    index = indexmill.open(url, engine="ranges")
    read = RemoteIndex.read
    with monkeypatch.context() as patch:
        patch.setattr(RemoteIndex, "read", lambda *at: bytes(len(read(*at))))
        with pytest.raises(CorruptFile):
            index.search(QUERIES, 5)
        carriers.settle(20)
    again = indexmill.open(url, engine="ranges")
    assert np.array_equal(again.search(QUERIES, 5).ids, expected.ids)
    traffic = again.native.traffic
    assert traffic is not None
    assert min(traffic["disk"], traffic["requests"]) > 0
    assert traffic["damaged"] == 0  # they are what was kept


def test_an_index_larger_than_the_bound_keeps_it(
    url: str, indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes["graph"], url)
    whole = sum(entry.bytes for entry in parse_manifest(indexes["graph"]).files)
    most = whole // 2
    monkeypatch.setenv(BYTES_VARIABLE, str(most))
    expected = as_at_url(indexmill.open(indexes["graph"]), VECTORS[::20])
    for _ in range(2):
        index = indexmill.open(url, engine="ranges")
        assert np.array_equal(index.search(VECTORS[::20], 5).ids, expected.ids)
        carriers.settle(20)
        assert 0 < sum(512 * path.stat().st_blocks for path in cached("*")) <= most


@contextmanager
def told_of_memory() -> Iterator[list[str]]:
    """Note the warnings that blocks are kept in memory alone."""
    told: list[str] = []
    with warnings.catch_warnings(record=True) as all_told:
        warnings.simplefilter("always")
        yield told
        carriers.settle(20)
    told += [str(one.message) for one in all_told if "are kept in memory alone" in str(one.message)]


def test_a_cache_that_refuses_leaves_all_in_memory(
    url: str, indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes["graph"], url)
    expected = indexmill.open(indexes["graph"]).search(QUERIES, 5)
    make = os.mkdir

    def refuse(path: Any, *more: Any, **named: Any) -> None:
        if Path(path).is_relative_to(cache_directory()):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        make(path, *more, **named)

    monkeypatch.setattr(os, "mkdir", refuse)
    with told_of_memory() as told:
        index = indexmill.open(url, engine="ranges")
        assert np.array_equal(index.search(QUERIES, 5).ids, expected.ids)
    (one,) = told
    assert "Read-only file system" in one
    assert not cache_directory().exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        index = indexmill.open(url, engine="ranges")
        assert np.array_equal(index.search(QUERIES, 5).ids, expected.ids)
        carriers.settle(20)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_an_opening_that_failed_in_the_cache_holds_no_file_there(
    url: str, indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes["graph"], url)
    write, failures = url_ranges.write_all, [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]

    def failing(*at: Any) -> None:
        if failures:
            raise failures.pop()
        write(*at)

    monkeypatch.setattr(url_ranges, "write_all", failing)
    with told_of_memory() as told:
        remote = RemoteIndex(url, ROOM)
    assert len(told) == 1
    assert not remote.folder.is_relative_to(cache_directory())
    held = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            held.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    assert not [name for name in held if name.startswith(str(cache_directory()))]


def test_a_disk_that_is_full_during_a_search_leaves_blocks_in_memory(
    url: str, indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes["graph"], url)
    expected = indexmill.open(indexes["graph"]).search(QUERIES, 5)
    index = indexmill.open(url, engine="ranges")

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with told_of_memory() as told:
        assert np.array_equal(index.search(QUERIES, 5).ids, expected.ids)
    (one,) = told
    assert "No space left on device" in one
