"""Indexes at URLs, searched by requests for ranges of their files."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from tests.support.indexes.at_url import ROOM, publish
from tests.support.processes.forks import run_forked
from tests.support.s3 import FlakyServer, flaky_server

import indexmill
from indexmill.formats.errors import (
    BudgetError,
    ConfigError,
    CorruptFile,
    FormatError,
    InputError,
    OtherKind,
    StorageError,
)
from indexmill.formats.index.manifest import parse_manifest
from indexmill.formats.pagefile.reader import PageFile
from indexmill.pipeline.urls import ranges as url_ranges
from indexmill.pipeline.urls import retry
from indexmill.pipeline.urls.cache import BYTES_VARIABLE, CACHE_VARIABLE, cache_directory
from indexmill.pipeline.urls.ranges import RemoteIndex
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE, Storage
from indexmill.reader import carriers

VECTORS = np.random.default_rng(5).normal(size=(1500, 16)).astype(np.float32)
QUERIES = VECTORS[:12] + np.float32(0.05)
QUERIES_OF_32 = np.random.default_rng(7).normal(size=(5, 32)).astype(np.float32)
IDS = np.arange(len(VECTORS)) * 3 + 7
KINDS: dict[str, dict[str, Any]] = {
    "graph": {"max_degree": 16},
    "codes on pages": {"max_degree": 16, "codes_on_page": True},
    "ivf": {"kind": "ivf"},
    "ivf with codes": {"kind": "ivf", "codec": "pq", "keep_vectors": True},
}


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("local")
    for name, options in KINDS.items():
        indexmill.build(VECTORS, folder / name, ids=IDS, **options)
    return {name: folder / name for name in KINDS}


@pytest.fixture(scope="module")
def server() -> Iterator[FlakyServer]:
    with flaky_server() as running:
        yield running


@pytest.fixture
def url(server: FlakyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of an empty place on S3; large files are those of more than four pages."""
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)
    monkeypatch.setattr(url_ranges, "WHOLE_BYTES", 4 * 4096)
    monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "mirror"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv(BYTES_VARIABLE, "128MiB")
    yield server.url.replace("/work?", f"/{uuid4().hex}?")
    server.failing = lambda request: False


def openings() -> list[Path]:
    """Return the directories of indexes that are being opened."""
    return list(cache_directory().glob("opening-*"))


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_local_index(url: str, indexes: dict[str, Path], kind: str) -> None:
    publish(indexes[kind], url)
    local, far = indexmill.open(indexes[kind]), indexmill.open(url, engine="ranges")
    assert far.engine == "ranges"
    here, there = local.search(QUERIES, 5), far.search(QUERIES, 5)
    assert np.array_equal(here.ids, there.ids)
    assert np.array_equal(here.scores, there.scores)
    traffic = far.native.traffic
    assert traffic is not None
    assert traffic["requests"] > 0
    assert np.array_equal(local.vector_ids_of(IDS[:3]), far.vector_ids_of(IDS[:3]))
    assert not openings()


@pytest.mark.parametrize(("kind", "rounds"), [("ivf", 1), ("ivf with codes", 2)])
def test_inverted_lists_take_a_round_and_one_more_to_rank_again(
    url: str, indexes: dict[str, Path], kind: str, rounds: int
) -> None:
    publish(indexes[kind], url)
    index = indexmill.open(url, engine="ranges", ids="memory")
    assert set(index.search(QUERIES[:1], 10).counters["rounds"]) == {rounds}
    assert set(indexmill.open(indexes[kind]).search(QUERIES, 10).counters["rounds"]) == {0}


def test_a_wide_beam_takes_a_round_a_hop(url: str, indexes: dict[str, Path]) -> None:
    publish(indexes["codes on pages"], url)
    index = indexmill.open(url, engine="ranges", ids="memory")
    found = index.search(QUERIES[:1], 5, policy="beam", beam_width=32, L=32)
    assert found.counters["rounds"][0] <= found.counters["hops"][0]
    assert found.counters["rounds"][0] <= 6


def test_blocks_are_kept_in_memory(url: str, indexes: dict[str, Path]) -> None:
    publish(indexes["ivf"], url)
    index = indexmill.open(url, engine="ranges")
    index.search(QUERIES, 5)
    before = index.native.traffic
    index.search(QUERIES, 5)
    after = index.native.traffic
    assert before is not None
    assert after is not None
    assert before["requests"] == after["requests"]
    assert after["cached"] > before["cached"]


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
    found, expected = far.search(QUERIES, 5), indexmill.open(indexes[kind]).search(QUERIES, 5)
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
    expected = indexmill.open(indexes["graph"]).search(QUERIES, 5).ids
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
    expected = indexmill.open(indexes[kind]).search(QUERIES, 5)
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
    assert np.array_equal(far.search(QUERIES, 5).ids, indexmill.open(indexes[kind]).search(QUERIES, 5).ids)
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
        assert np.array_equal(far.search(QUERIES, 5).ids, other.search(QUERIES, 5).ids)
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
    expected = indexmill.open(indexes["graph"]).search(VECTORS[::20], 5)
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


def test_filters_and_metadata_fetch_the_files_that_they_need(url: str, tmp_path: Path) -> None:
    import pyarrow as pa

    table = pa.table({"vector": list(VECTORS), "price": np.arange(len(VECTORS))})
    local = indexmill.build(
        table, tmp_path / "index", column="vector", metadata_columns=["price"], max_degree=16
    )
    publish(tmp_path / "index", url)
    far = indexmill.open(url, engine="ranges")
    assert far.metadata([5, 900])["price"].to_pylist() == [5, 900]
    allowed = far.where("price < 500")
    assert np.array_equal(
        local.search(QUERIES, 5, allow=allowed).ids, far.search(QUERIES, 5, allow=allowed).ids
    )


def test_one_request_in_ten_may_fail(url: str, server: FlakyServer, indexes: dict[str, Path]) -> None:
    publish(indexes["graph"], url)
    server.failing = lambda request: request % 10 == 0
    index = indexmill.open(url, engine="ranges")
    expected = indexmill.open(indexes["graph"]).search(QUERIES, 5)
    assert np.array_equal(index.search(QUERIES, 5).ids, expected.ids)


def test_an_index_without_room_in_the_cache_is_searched_where_it_is(
    url: str, indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes["graph"], url)
    monkeypatch.setenv(BYTES_VARIABLE, "10KiB")
    assert indexmill.open(url).engine == "ranges"
    with pytest.raises(BudgetError, match="INDEXMILL_CACHE_BYTES"):
        indexmill.open(url, engine="pread")
    monkeypatch.delenv(BYTES_VARIABLE)
    assert indexmill.open(url).engine != "ranges"
    monkeypatch.setenv(BYTES_VARIABLE, "10KiB")
    assert indexmill.open(url).engine != "ranges"  # the cache has it


def test_an_index_that_is_replaced_is_named(url: str, indexes: dict[str, Path]) -> None:
    publish(indexes["graph"], url)
    index = indexmill.open(url, engine="ranges")
    for other in ("ivf", "ivf with codes"):  # the former index stays until the next publish
        publish(indexes[other], url, force=True)
    with pytest.raises(
        StorageError, match="another index has taken its place since it was opened; open it again"
    ):
        index.search(QUERIES, 5)


def test_damage_is_named_by_its_url(url: str, indexes: dict[str, Path], tmp_path: Path) -> None:
    publish(indexes["graph"], url)
    index = indexmill.open(url, engine="ranges")
    storage = Storage(url, str(tmp_path / "copy"))
    (name,) = (name for name in storage.list() if name.endswith("graph.imx"))
    path = storage.fetch(name)
    path.write_bytes(path.read_bytes()[:4096] + os.urandom(path.stat().st_size - 4096))
    storage.push(name)
    with pytest.raises(CorruptFile, match=r"s3://bucket/.*/graph.imx: page \d+.*damaged"):
        index.search(QUERIES, 5)


def noted(monkeypatch: pytest.MonkeyPatch) -> list[list[url_ranges.Range]]:
    """Return the rounds of requests of indexes that are opened from now on."""
    rounds: list[list[url_ranges.Range]] = []
    fetch = RemoteIndex.fetch

    def noting(self: RemoteIndex, ranges: Any) -> None:
        rounds.append(list(ranges))
        fetch(self, rounds[-1])

    monkeypatch.setattr(RemoteIndex, "fetch", noting)
    return rounds


def test_codes_that_nodes_hold_are_not_fetched(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = np.random.default_rng(6).normal(size=(4000, 32)).astype(np.float32)
    local = indexmill.build(vectors, tmp_path / "index", max_degree=8, codes_on_page=True, pq_rotation="opq")
    publish(tmp_path / "index", url)
    rounds = noted(monkeypatch)
    far = indexmill.open(url, engine="ranges")
    path = tmp_path / "index/codes.imx"
    size = path.stat().st_size
    codes = next(one for one in PageFile(path, "CODE").header.sections if one.name == "codes")
    at, end = 4096 * codes.first_page, 4096 * (codes.first_page + codes.pages)
    fetched = np.zeros(size, bool)
    for part in (part for parts in rounds for part in parts if part.name == "codes.imx"):
        assert not fetched[part.start : part.end].any()
        fetched[part.start : part.end] = True
    assert not rounds[1]
    assert fetched[at:end].sum() <= url_ranges.WHOLE_BYTES  # those that lie in the ends
    assert fetched[:at].all()
    assert np.array_equal(local.search(QUERIES_OF_32, 5).ids, far.search(QUERIES_OF_32, 5).ids)


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_opening_reads_comes_in_one_round_and_once(
    url: str, indexes: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes[kind], url)
    rounds = noted(monkeypatch)
    indexmill.open(url, engine="ranges")
    assert len(rounds) == 2
    assert not rounds[1]  # all came in the first round after the manifest
    fetched: dict[str, list[tuple[int, int]]] = {}
    for part in (part for parts in rounds for part in parts):
        assert all(part.end <= start or end <= part.start for start, end in fetched.get(part.name, []))
        fetched.setdefault(part.name, []).append((part.start, part.end))


def test_checksums_come_with_the_ends_of_files(
    url: str, indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(url_ranges, "WHOLE_BYTES", 2 * 4096)
    vectors = np.random.default_rng(6).normal(size=(3000, 1024)).astype(np.float32)
    folder = cache_directory().parent / "wide"
    indexmill.build(vectors, folder, kind="ivf")
    publish(folder, url)
    rounds = noted(monkeypatch)
    indexmill.open(url, engine="ranges")
    crc = PageFile(folder / "batch-000000.imx", "IVFB").header.sections[-1]
    assert crc.pages > 2
    assert not rounds[1]


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_is_opened_in_few_requests(
    url: str, server: FlakyServer, indexes: dict[str, Path], kind: str
) -> None:
    publish(indexes[kind], url)
    n_files = len(parse_manifest(indexes[kind]).files)
    for engine, environment in (("ranges", {}), ("auto", {BYTES_VARIABLE: "10KiB"})):
        before = server.requests
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            index = indexmill.open(url, engine=engine)
        assert index.engine == "ranges"
        # The manifest and each file: its size and one or two ranges, and sections.
        assert server.requests - before <= 2 + 3 * n_files + 2


def test_metadata_of_an_index_that_is_replaced_is_named(
    url: str, indexes: dict[str, Path], tmp_path: Path
) -> None:
    import pyarrow as pa

    table = pa.table({"vector": list(VECTORS), "price": np.arange(len(VECTORS))})
    indexmill.build(table, tmp_path / "index", kind="ivf", column="vector", metadata_columns=["price"])
    publish(tmp_path / "index", url)
    index = indexmill.open(url, engine="ranges")
    for other in ("ivf", "ivf with codes"):
        publish(indexes[other], url, force=True)
    with pytest.raises(
        StorageError, match=r"metadata.*: gone; another index has taken its place .* open it again"
    ):
        index.metadata([1])


def test_the_folder_of_a_killed_opening_is_removed(
    url: str, indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes["graph"], url)
    opening = RemoteIndex(url, ROOM)  # at work
    code = """
import os, signal, sys
from pathlib import Path
from indexmill.pipeline.urls.held import held_folder
with held_folder(Path(sys.argv[1]), "opening-"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run_forked(code, cache_directory()).returncode == -signal.SIGKILL
    assert len(openings()) == 2
    indexmill.open(url, engine="ranges")
    assert openings() == [opening.folder]
    opening.close_folder()
    assert not openings()


@pytest.mark.parametrize("engine", ["auto", "ranges"])
def test_a_set_at_a_url_is_refused_by_name(url: str, tmp_path: Path, engine: str) -> None:
    indexmill.build(VECTORS, tmp_path / "set", kind="ivf", parts=2)
    storage = Storage(url, str(tmp_path / "copy"))
    shutil.copytree(tmp_path / "set", storage.mirror, dirs_exist_ok=True)
    for path in (tmp_path / "set").iterdir():
        storage.push(path.name)
    place = re.escape(storage.place)
    with pytest.raises(OtherKind, match=rf"^{place}: a set of indexes.*copy it to a local directory"):
        indexmill.open(url, engine=engine)


def test_advice_without_room_is_to_give_room(
    url: str, indexes: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(url, str(tmp_path / "copy"))
    shutil.copytree(indexes["graph"], storage.mirror, dirs_exist_ok=True)
    for path in indexes["graph"].iterdir():
        storage.push(path.name)
    monkeypatch.setenv(BYTES_VARIABLE, "10KiB")
    with pytest.raises(InputError, match=r"give the cache room for it \(INDEXMILL_CACHE_BYTES\)"):
        indexmill.open(url)


def test_what_cannot_be_searched_so_is_refused_by_name(
    url: str, indexes: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="ranges reads an index at a URL"):
        indexmill.open(indexes["graph"], engine="ranges")
    tables = tmp_path / "tables"
    indexmill.build(VECTORS, tables, kind="lsh")
    publish(tables, url)
    with pytest.raises(ConfigError, match="of kind lsh, which engine ranges does not search"):
        indexmill.open(url, engine="ranges")
    assert not openings()


def test_a_copied_directory_is_fetched_whole(url: str, indexes: dict[str, Path], tmp_path: Path) -> None:
    storage = Storage(url, str(tmp_path / "copy"))
    shutil.copytree(indexes["graph"], storage.mirror, dirs_exist_ok=True)
    for path in indexes["graph"].iterdir():
        storage.push(path.name)
    with pytest.raises(InputError, match="copied there file by file"):
        indexmill.open(url, engine="ranges")
    assert len(indexmill.open(url).search(QUERIES, 5).ids) == len(QUERIES)


def test_a_missing_bucket_and_missing_index_are_named(url: str) -> None:
    with pytest.raises(InputError, match=r"no manifest.json there"):
        indexmill.open(url, engine="ranges")
    with pytest.raises((InputError, StorageError), match="bucket"):
        indexmill.open(url.replace("@bucket/", "@nowhere/"), engine="ranges")


def test_a_full_disk_is_told(url: str, indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    publish(indexes["graph"], url)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(BudgetError, match="INDEXMILL_CACHE"):
        indexmill.open(url, engine="ranges")
    assert not list(cache_directory().iterdir())
