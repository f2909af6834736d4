"""Indexes at URLs, fetched into a cache on a local disk."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import threading
import time
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from tests.support.indexes.at_url import ROOM, fetch, publish
from tests.support.indexes.builds import build, clustered, flip
from tests.support.s3 import FlakyServer

import indexmill
from indexmill.formats.errors import BudgetError, CorruptFile, InputError, StorageError
from indexmill.formats.index.manifest import parse_manifest
from indexmill.formats.location import shown_url
from indexmill.formats.urls import retry
from indexmill.pipeline.urls import cache as url_cache
from indexmill.pipeline.urls.cache import CACHE_VARIABLE, cache_directory, fetched
from indexmill.pipeline.urls.output import data_folder
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE, Storage


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("local")
    return [build(folder / str(n), clustered(n, 8)) for n in (120, 130, 140)]


@pytest.fixture(params=["s3", "memory"])
def url(
    request: pytest.FixtureRequest, server: FlakyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Return the URL of an empty place."""
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)
    monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "mirror"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    if request.param == "memory":
        return f"memory://{uuid4().hex}/x"
    return server.url.replace("/work?", f"/{uuid4().hex}?")


def size(index: Path) -> int:
    return sum(entry.bytes for entry in parse_manifest(index).files)


def kept() -> set[Path]:
    return {path for path in cache_directory().iterdir() if path.is_dir()}


def at(index: Path, name: str) -> str:
    return f"{data_folder(parse_manifest(index).build_id)}/{name}"


def test_an_index_is_fetched_once(url: str, indexes: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    publish(indexes[0], url)
    first = fetched(url, ROOM)
    monkeypatch.setattr(Storage, "fetch", lambda *_: pytest.fail("fetched again"))
    assert fetched(url, ROOM) == first
    assert kept() == {first}


def test_an_index_at_a_url_is_opened(url: str, indexes: list[Path]) -> None:
    publish(indexes[0], url)
    queries = clustered(120, 8)[:9]
    local, far = indexmill.open(indexes[0]), indexmill.open(url)
    assert np.array_equal(local.search(queries, 5).ids, far.search(queries, 5).ids)


def test_a_replaced_index_is_fetched_anew(url: str, indexes: list[Path]) -> None:
    publish(indexes[0], url)
    opened = indexmill.open(url)
    publish(indexes[1], url, force=True)
    assert len(opened) == 120
    assert len(indexmill.open(url)) == 130


def test_a_directory_that_was_copied_to_a_url_is_an_index(url: str, indexes: list[Path]) -> None:
    storage = Storage(url)
    for path in indexes[0].iterdir():
        storage.put(path, path.name)
    assert fetch(url) == {path.name: path.read_bytes() for path in indexes[0].iterdir()}


def test_the_cache_takes_no_more_than_it_may(url: str, indexes: list[Path]) -> None:
    paths = []
    for index in indexes:
        publish(index, url, force=True)
        paths.append(fetched(url, size(indexes[1]) + size(indexes[2]) + (16 << 10)))  # with manifests
    assert kept() == set(paths[1:])  # the one that was opened longest ago is gone


def test_an_index_larger_than_the_cache_is_refused(
    url: str, indexes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes[0], url)
    with pytest.raises(
        BudgetError, match=rf"takes {size(indexes[0]):,} bytes.* may take .*; set INDEXMILL_CACHE_BYTES"
    ):
        fetched(url, size(indexes[0]) - 1)
    assert kept() == set()
    assert fetched(url, size(indexes[0]))
    monkeypatch.setenv(url_cache.BYTES_VARIABLE, "1KiB")
    publish(indexes[1], url, force=True)
    with pytest.raises(BudgetError, match=r"may take 1,024 in"):
        indexmill.open(url, engine="pread")
    assert indexmill.open(url).engine == "ranges"  # it is searched where it is


@pytest.mark.parametrize("how", ["flipped", "short", "gone"])
def test_a_damaged_object_is_named_and_not_kept(
    url: str, indexes: list[Path], how: str, tmp_path: Path
) -> None:
    publish(indexes[0], url)
    name, damaged, storage = at(indexes[0], "graph.imx"), tmp_path / "damaged", Storage(url)
    shutil.copyfile(indexes[0] / "graph.imx", damaged)
    if how == "flipped":
        flip(damaged)
    elif how == "short":
        damaged.write_bytes(damaged.read_bytes()[:-1])
    storage.delete(name)
    if how != "gone":
        storage.put(damaged, name)
    with pytest.raises(CorruptFile, match=rf"{name}: (SHA-256: )?expected .*, got .*rebuild it") as caught:
        fetched(url, ROOM)
    assert "secret" not in str(caught.value)
    assert kept() == set()


def test_a_damaged_manifest_names_the_url(url: str, indexes: list[Path], tmp_path: Path) -> None:
    publish(indexes[0], url)
    damaged, storage = tmp_path / "damaged", Storage(url)
    damaged.write_bytes(b"x" + (indexes[0] / "manifest.json").read_bytes())
    storage.put(damaged, "manifest.json")
    with pytest.raises(CorruptFile) as caught:
        fetched(url, ROOM)
    assert str(caught.value).startswith(f"{storage.place}/manifest.json: ".replace("//manifest", "/manifest"))


@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_index_replaced_while_it_is_read_is_read_again(
    url: str, indexes: list[Path], is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes[0], url)
    fetch_one, others = Storage.fetch, [indexes[1], indexes[2]]

    def fetch_and_replace(self: Storage, name: str) -> Path:
        if others and name.endswith("graph.imx"):
            for other in [others.pop(0), others.pop(0)] if is_deleted else [others.pop(0), others.clear()]:
                if other is not None:
                    publish(other, url, force=True)
        return fetch_one(self, name)

    monkeypatch.setattr(Storage, "fetch", fetch_and_replace)
    found = len(indexmill.open(url))
    assert found == (140 if is_deleted else 120)  # its files were still there, or those of the one after


def test_an_index_that_is_replaced_again_and_again_is_given_up(
    url: str, indexes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes[0], url)
    fetch_one, numbers = Storage.fetch, itertools.count(1)

    def replace_twice(self: Storage, name: str) -> Path:
        for _ in range(2):  # the first one's files stay for readers until the second one is there
            publish(indexes[next(numbers) % 3], url, force=True)
        return fetch_one(self, name)

    monkeypatch.setattr(Storage, "fetch", replace_twice)
    with pytest.raises(
        StorageError, match=r"another index took its place 3 times while it was read; run again"
    ):
        fetched(url, ROOM)


def test_a_full_disk_is_named_and_nothing_is_kept(
    url: str, indexes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes[0], url)

    def fail(self: Storage, name: str) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device", str(self.mirror / name))

    monkeypatch.setattr(Storage, "fetch", fail)
    with pytest.raises(
        BudgetError, match=r"No space left on device; free some space, or name .* INDEXMILL_CACHE"
    ):
        fetched(url, ROOM)
    assert kept() == set()


def test_what_a_killed_run_left_goes_with_the_next(url: str, indexes: list[Path]) -> None:
    publish(indexes[0], url)
    (cache_directory() / "fetching-abc" / "data").mkdir(parents=True)
    path = fetched(url, ROOM)
    assert kept() == {path}


def test_what_is_not_the_caches_is_left_alone(url: str, indexes: list[Path]) -> None:
    others = [cache_directory() / "datasets", cache_directory() / "x.tmp"]
    for other in others:
        other.mkdir(parents=True)
        (other / "large").write_bytes(bytes(size(indexes[0])))
    publish(indexes[0], url)
    path = fetched(url, size(indexes[0]) + (8 << 10))
    publish(indexes[1], url, force=True)
    assert kept() == {path, *others}
    assert fetched(url, size(indexes[1]) + (8 << 10)) in kept()
    assert kept() > set(others)
    assert path not in kept()


def test_two_programs_fetch_an_index_once(
    url: str, indexes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes[0], url)
    fetch_one, names = Storage.fetch, []

    def noting(self: Storage, name: str) -> Path:
        names.append(name)
        return fetch_one(self, name)

    monkeypatch.setattr(Storage, "fetch", noting)
    threads = [threading.Thread(target=fetched, args=(url, ROOM)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names) == len(set(names)) == len(parse_manifest(indexes[0]).files)


def test_there_is_no_index(url: str) -> None:
    with pytest.raises(InputError, match=r"no manifest.json there, so it is not an index; build one with"):
        fetched(url, ROOM)


def test_an_index_that_another_program_removes_just_now_is_fetched_again(
    url: str, indexes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes[0], url)
    first = fetched(url, ROOM)
    note, removed = os.utime, []

    def remove_and_note(path: Path, *times: object) -> None:
        if not removed:
            removed.append(path)
            shutil.rmtree(path)
        note(path)

    monkeypatch.setattr(os, "utime", remove_and_note)
    assert fetched(url, ROOM) == first
    assert (first / "manifest.json").is_file()


def test_who_waits_for_another_program_says_so(
    url: str, indexes: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(indexes[0], url)
    monkeypatch.setattr(url_cache, "QUIET_SECONDS", 0.1)
    fetch_files, entered, told = Storage.fetch, threading.Event(), threading.Event()

    def slow(self: Storage, name: str) -> Path:
        entered.set()
        assert told.wait(20)
        return fetch_files(self, name)

    monkeypatch.setattr(Storage, "fetch", slow)
    first = threading.Thread(target=fetch, args=(url,))
    first.start()
    assert entered.wait(20)
    second = threading.Thread(target=fetch, args=(url,))
    second.start()
    said, end = "", time.monotonic() + 20
    while not said and time.monotonic() < end:
        said = capsys.readouterr().err
        time.sleep(0.01)
    told.set()
    first.join()
    second.join()
    shown = shown_url(url)
    assert (
        said
        == f"waiting for process {os.getpid()}, which fetches {shown}; it has the lock of {cache_directory()}\n"
    )
