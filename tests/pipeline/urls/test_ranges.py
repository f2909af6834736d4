"""Indexes at URLs, searched by requests for ranges of their files."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.at_url import ROOM, publish
from tests.support.indexes.by_ranges import IDS, KINDS, QUERIES, VECTORS
from tests.support.processes.forks import run_forked
from tests.support.s3 import FlakyServer, refusing

import indexmill
from indexmill.formats.errors import (
    BudgetError,
    ConfigError,
    CorruptFile,
    InputError,
    OtherKind,
    StorageError,
)
from indexmill.formats.index.manifest import parse_manifest
from indexmill.formats.pagefile.reader import PageFile
from indexmill.pipeline.urls import ranges as url_ranges
from indexmill.pipeline.urls.cache import BYTES_VARIABLE, cache_directory
from indexmill.pipeline.urls.ranges import RemoteIndex
from indexmill.pipeline.urls.storage import Storage
from indexmill.reader import stored

QUERIES_OF_32 = np.random.default_rng(7).normal(size=(5, 32)).astype(np.float32)


def openings() -> list[Path]:
    """Return the directories of indexes that are being opened."""
    return list(cache_directory().glob("opening-*"))


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_local_index(url: str, indexes: dict[str, Path], kind: str) -> None:
    publish(indexes[kind], url)
    local, far = indexmill.open(indexes[kind]), indexmill.open(url, engine="ranges")
    assert far.engine == "ranges"
    here, there = local.search(QUERIES, 5, **far.search_defaults), far.search(QUERIES, 5)
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
    here = local.search(QUERIES, 5, allow=allowed, **far.search_defaults)
    assert np.array_equal(here.ids, far.search(QUERIES, 5, allow=allowed).ids)


def test_one_request_in_ten_may_fail(url: str, server: FlakyServer, indexes: dict[str, Path]) -> None:
    publish(indexes["graph"], url)
    server.failing = lambda request: request % 10 == 0
    index = indexmill.open(url, engine="ranges")
    expected = indexmill.open(indexes["graph"]).search(QUERIES, 5, **index.search_defaults)
    assert np.array_equal(index.search(QUERIES, 5).ids, expected.ids)


def test_requests_of_a_search_that_hang_are_made_again(
    url: str, server: FlakyServer, indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes["graph"], url)
    monkeypatch.setattr(stored, "Stored", partial(stored.Stored, timeout_s=0.2))
    index = indexmill.open(url, engine="ranges")
    expected = indexmill.open(indexes["graph"]).search(QUERIES, 5, **index.search_defaults)
    server.hanging = lambda request: request % 3 == 0
    try:
        found = index.search(QUERIES, 5)
    finally:
        server.release()
    assert np.array_equal(found.ids, expected.ids)
    assert index.native.traffic is not None
    assert index.native.traffic["timeouts"] > 0


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
    here = local.search(QUERIES_OF_32, 5, **far.search_defaults)
    assert np.array_equal(here.ids, far.search(QUERIES_OF_32, 5).ids)


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


@pytest.mark.parametrize("engine", ["auto", "ranges"])
def test_a_missing_bucket_and_missing_index_are_named(url: str, engine: str) -> None:
    with pytest.raises(InputError, match=r"^s3://bucket/\w+: no manifest.json there"):
        indexmill.open(url, engine=engine)
    with pytest.raises(InputError, match=r"^s3://nowhere/\w+: no bucket called nowhere; correct its name$"):
        indexmill.open(url.replace("@bucket/", "@nowhere/"), engine=engine)


def test_who_may_not_look_for_a_bucket_is_told_of_a_missing_index(
    url: str, server: FlakyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, looked = server._app, []

    def refuse(environ: dict[str, Any], start: Any) -> Any:
        if environ["REQUEST_METHOD"] != "HEAD" or environ["PATH_INFO"].strip("/") != "bucket":
            return answer(environ, start)
        looked.append(environ["PATH_INFO"])
        return refusing("AccessDenied")(environ, start)

    monkeypatch.setattr(server, "_app", refuse)
    with pytest.raises(InputError, match=r"no manifest.json there"):
        indexmill.open(url, engine="ranges")
    assert looked


def test_who_has_no_credentials_is_told_what_to_give(
    url: str, server: FlakyServer, indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BYTES_VARIABLE, "0")  # nothing is kept on the disk
    publish(indexes["graph"], url)
    opened, answer = indexmill.open(url, engine="ranges"), server._app
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    unsigned: list[str] = []

    def refuse(environ: dict[str, Any], start: Any) -> Any:
        if "HTTP_AUTHORIZATION" in environ:
            return answer(environ, start)
        unsigned.append(environ["REQUEST_METHOD"])
        return refusing("AccessDenied")(environ, start)

    monkeypatch.setattr(server, "_app", refuse)
    for engine in ("ranges", "auto"):
        with pytest.raises(
            StorageError, match=r"^reading s3://bucket/.*refused .*; allow .* or give credent"
        ):
            indexmill.open(url.replace("key:secret@", ""), engine=engine)
    assert 2 <= len(unsigned) <= 4, "no wait mends it"
    assert len(opened.search(QUERIES, 5).ids) == len(QUERIES)
    again = indexmill.open(url, engine="ranges")
    monkeypatch.setattr(server, "_app", refusing("AccessDenied"))
    with pytest.raises(StorageError, match=r"s3://bucket/.*graph.imx.*refused .*; allow .* or give credent"):
        again.search(QUERIES, 5)


def test_a_full_disk_is_told(url: str, indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    publish(indexes["graph"], url)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(BudgetError, match="INDEXMILL_CACHE"):
        indexmill.open(url, engine="ranges")
    assert not list(cache_directory().iterdir())
