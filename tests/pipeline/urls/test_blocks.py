"""Blocks that were read at URLs, kept on a disk in one bound with indexes that were fetched whole."""

from __future__ import annotations

import errno
import os
import shutil
import time
import warnings
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.pipeline.urls import blocks
from indexmill.pipeline.urls.blocks import REGION_BYTES, Blocks
from indexmill.pipeline.urls.room import make_room

PAGE = 4096
#: Of two regions, with a last page that is cut.
CONTENT = np.random.default_rng(1).bytes(REGION_BYTES + 5 * PAGE + 100)
#: Where ranges of tests begin and end: near the border of the regions.
FIRST = REGION_BYTES - 4 * PAGE
NAME, MOST = "graph.imx", 64 << 20


def of(folder: Path, manifest: bytes = b"one", most: int = MOST) -> Blocks:
    return Blocks(folder, manifest, {NAME: len(CONTENT)}, most)


def put(kept: Blocks, start: int, end: int) -> None:
    kept.put(NAME, start, CONTENT[start:end])


def taken(folder: Path) -> int:
    """Return the bytes on disk of all files in a folder, which others may remove meanwhile."""
    n = 0
    for path in rooms(folder):
        with suppress(FileNotFoundError):
            n += 512 * path.stat().st_blocks
    return n


def rooms(folder: Path) -> list[Path]:
    return sorted(Path(place) / name for place, _, names in os.walk(folder) for name in names)


@settings(max_examples=60, deadline=None)
@given(
    puts=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10 * PAGE)), max_size=5),
    wanted=st.tuples(st.integers(0, 9), st.integers(1, 10)),
)
def test_ranges_are_found_if_all_their_pages_were_put(
    tmp_path_factory: pytest.TempPathFactory, puts: list[tuple[int, int]], wanted: tuple[int, int]
) -> None:
    kept, there = of(tmp_path_factory.mktemp("blocks")), np.zeros(10, dtype=bool)
    for page, n in puts:
        start = FIRST + PAGE * page
        end = min(start + n, len(CONTENT))
        put(kept, start, end)
        is_end = end == len(CONTENT) and start < end
        there[page : 10 if is_end else page + (end - start) // PAGE] = True
    page, n = wanted
    start, end = FIRST + PAGE * page, min(FIRST + PAGE * (page + n), len(CONTENT))
    found = kept.get(NAME, start, end)
    assert found == (CONTENT[start:end] if there[page : page + n].all() else None)


def test_another_process_and_another_index_have_their_own(tmp_path: Path) -> None:
    put(of(tmp_path), 0, 4 * PAGE)
    assert of(tmp_path).get(NAME, PAGE, 3 * PAGE) == CONTENT[PAGE : 3 * PAGE]
    assert of(tmp_path, b"another manifest").get(NAME, PAGE, 3 * PAGE) is None


@pytest.mark.parametrize("how", ["flipped", "cut", "zeros", "checksum"])
def test_damaged_pages_are_not_found_until_they_are_put_again(tmp_path: Path, how: str) -> None:
    kept = of(tmp_path)
    put(kept, 0, 4 * PAGE)
    (path,) = rooms(tmp_path)
    content = bytearray(path.read_bytes())
    at = len(content) - PAGE  # the last page
    if how == "flipped":
        content[at + 5] ^= 1
    elif how == "cut":
        del content[at + 5 :]
    elif how == "zeros":  # a machine that stopped may have written a checksum and not its page
        content[at:] = bytes(PAGE)
    else:
        content[3 * 4] ^= 1
    path.write_bytes(content)
    assert kept.get(NAME, 0, 3 * PAGE) == CONTENT[: 3 * PAGE]
    assert kept.get(NAME, 0, 4 * PAGE) is None
    put(kept, 3 * PAGE, 4 * PAGE)
    assert kept.get(NAME, 0, 4 * PAGE) == CONTENT[: 4 * PAGE]


def test_the_bound_is_kept_and_what_was_used_longest_ago_goes(tmp_path: Path) -> None:
    most, n = 1 << 20, 40 * PAGE
    indexes = [of(tmp_path, f"{i}".encode(), most) for i in range(8)]
    for i, kept in enumerate(indexes):
        put(kept, 0, n)
        assert taken(tmp_path) <= most
        for file in rooms(kept.folder):
            os.utime(file, (i, i))
        if indexes[0].folder.exists():
            assert indexes[0].get(NAME, 0, n) == CONTENT[:n]  # it is used now
    there = [kept.get(NAME, 0, n) is not None for kept in indexes]
    assert there == [True, *[False] * (7 - sum(there[1:])), *[True] * sum(there[1:])]
    assert 2 <= sum(there) <= 6
    assert len(list(tmp_path.iterdir())) == sum(there)  # folders go with their last file


def test_blocks_and_whole_indexes_share_the_bound(tmp_path: Path) -> None:
    whole, other = tmp_path / ("a" * 32), tmp_path / "datasets"
    for folder in (whole, other):
        folder.mkdir()
        (folder / "graph.imx").write_bytes(bytes(600 << 10))
    kept = of(tmp_path, most=1 << 20)
    os.utime(whole, (1, 1))
    put(kept, 0, 50 * PAGE)
    assert whole.exists()
    put(of(tmp_path, b"another", 1 << 20), 0, 50 * PAGE)
    assert not whole.exists()  # it was opened long before
    assert other.exists()  # not of the cache
    assert make_room(tmp_path, 1 << 20, 1 << 20)
    assert [path.name for path in tmp_path.iterdir()] == ["datasets"]


def test_an_index_that_is_being_fetched_counts(tmp_path: Path) -> None:
    (tmp_path / "fetching-x/data").mkdir(parents=True)
    (tmp_path / "fetching-x/data/graph.imx").write_bytes(bytes(1 << 20))
    assert not make_room(tmp_path, 1 << 20, PAGE)
    assert make_room(tmp_path, 2 << 20, PAGE)
    assert make_room(tmp_path, 1 << 20, PAGE, besides=(tmp_path / "fetching-x",))
    assert (tmp_path / "fetching-x").exists()


@pytest.mark.parametrize("most", [0, 3 * PAGE])
def test_a_bound_without_room_for_a_block_keeps_none(tmp_path: Path, most: int) -> None:
    put(of(tmp_path, most=most), 0, PAGE)
    assert not rooms(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.EFBIG])
def test_a_disk_that_refuses_is_told_once_and_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    kept = of(tmp_path / str(code))  # a directory that no other test names: the process notes what refused
    put(kept, 0, PAGE)
    tries = []

    def refuse(*_: Any) -> int:
        tries.append(code)
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        with pytest.warns(
            UserWarning, match=rf"{os.strerror(code)}; blocks .* memory alone.*INDEXMILL_CACHE"
        ):
            put(kept, PAGE, 2 * PAGE)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            put(kept, PAGE, 2 * PAGE)
            assert len(tries) == 1
            patch.setattr(time, "monotonic", lambda: float("inf"))
            put(kept, PAGE, 2 * PAGE)
            assert len(tries) == 2
    assert kept.get(NAME, 0, PAGE) == CONTENT[:PAGE]
    assert kept.get(NAME, PAGE, 2 * PAGE) is None


def test_a_full_disk_is_left_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(of(tmp_path), 0, 300 * PAGE)  # all that the first look had room for
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.warns(UserWarning, match="No space left on device"):
        put(of(tmp_path), 300 * PAGE, 1300 * PAGE)
    assert len(rooms(tmp_path)) == 1  # its removal would not have been enough


def test_a_warning_that_is_an_error_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        put(of(tmp_path), 0, PAGE)
    assert not rooms(tmp_path)


def test_a_disk_with_little_room_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [3 << 20]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free[0] - taken(tmp_path)))
    kept = of(tmp_path, most=1 << 40)  # of which a 64th is more than there is
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for page in range(0, 300, 10):
            put(kept, PAGE * page, PAGE * (page + 10))
    assert kept.get(NAME, 0, 300 * PAGE) == CONTENT[: 300 * PAGE]


@pytest.mark.parametrize("is_full", [True, False])
def test_no_whole_index_goes_for_what_had_better_stay_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    whole = tmp_path / ("a" * 32)
    whole.mkdir()
    (whole / "graph.imx").write_bytes(bytes(1 << 20))
    most = (1 << 20) + 5 * PAGE + (0 if is_full else 1 << 40)
    if not is_full:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * PAGE))
    kept = of(tmp_path, most=most)
    put(kept, 0, PAGE)
    assert whole.exists()
    assert kept.get(NAME, 0, PAGE) is not None
    assert make_room(tmp_path, most, 17 * PAGE)
    assert not whole.exists()


def test_indexes_that_a_process_has_open_keep_the_bound_together(tmp_path: Path) -> None:
    most, n = 8 << 20, 80
    indexes = [of(tmp_path, f"{i}".encode(), most) for i in range(n)]
    for page in (0, 1):
        for kept in indexes:
            put(kept, page * PAGE, (29 if page else 1) * PAGE)
    assert most // 2 <= taken(tmp_path) <= most


def test_what_cannot_be_removed_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most, n = 1 << 20, 40 * PAGE
    for i in range(3):
        kept = of(tmp_path, f"{i}".encode(), most)
        put(kept, 0, n)
        os.utime(rooms(kept.folder)[0], (i, i))
    fixed = rooms(of(tmp_path, b"0", most).folder)[0]
    remove = os.unlink

    def refuse(path: Any, *more: Any, **named: Any) -> None:
        if Path(path) == fixed:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        remove(path, *more, **named)

    monkeypatch.setattr(os, "unlink", refuse)
    assert make_room(tmp_path, most, 600 << 10)
    assert fixed.exists()
    assert not of(tmp_path, b"1", most).folder.exists()
    assert of(tmp_path, b"2", most).folder.exists()
    assert not make_room(tmp_path, most, most - 1000)


def test_what_is_missing_beyond_all_that_may_go_removes_nothing(tmp_path: Path) -> None:
    put(of(tmp_path), 0, 40 * PAGE)
    (tmp_path / "fetching-x").mkdir()
    (tmp_path / "fetching-x/graph.imx").write_bytes(bytes(1 << 20))
    assert not make_room(tmp_path, 2 << 20, 3 << 19)
    assert len(rooms(tmp_path)) == 2


def test_a_removal_that_was_cut_off_is_finished_first(tmp_path: Path) -> None:
    put(of(tmp_path), 0, 40 * PAGE)
    (tmp_path / "removing-x").mkdir()
    (tmp_path / "removing-x/graph.imx").write_bytes(bytes(1 << 20))
    assert make_room(tmp_path, 2 << 20, 1 << 20)
    assert not (tmp_path / "removing-x").exists()
    assert len(rooms(tmp_path)) == 1


def test_a_full_disk_makes_old_blocks_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(of(tmp_path, b"old"), 0, 600 * PAGE)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(free=(2 * MOST) // blocks.LOOKS - PAGE)
    )
    kept = of(tmp_path)
    put(kept, 0, PAGE)
    assert len(rooms(kept.folder)) == 1
    assert rooms(tmp_path) == rooms(kept.folder)


def test_a_cache_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    kept = of(tmp_path / "cache")
    put(kept, 0, PAGE)
    shutil.rmtree(tmp_path / "cache")
    put(kept, 0, PAGE)
    assert kept.get(NAME, 0, PAGE) == CONTENT[:PAGE]


def test_processes_that_write_and_make_room_at_once_find_whole_blocks_or_none(tmp_path: Path) -> None:
    most, n_processes, spans = 1 << 20, 3, [(PAGE * i, PAGE * (i + 7)) for i in range(0, 200, 5)]
    children = []
    for seed in range(n_processes):
        if (child := os.fork()) == 0:
            code = 1
            try:
                random, kept = np.random.default_rng(seed), of(tmp_path, b"%d" % (seed % 2), most)
                for i in random.permutation(np.repeat(np.arange(len(spans)), 10)):
                    put(kept, *spans[i])
                    assert kept.get(NAME, *spans[i]) in (CONTENT[slice(*spans[i])], None)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    kept, ends = of(tmp_path, b"0", most), list[int]()
    while len(ends) < n_processes:
        found = kept.get(NAME, *spans[len(ends)])
        assert found in (CONTENT[slice(*spans[len(ends)])], None)
        assert taken(tmp_path) < 2 * most  # two may count on the room of one file, until they look again
        child, status = os.waitpid(children[len(ends)], os.WNOHANG)
        ends += [os.waitstatus_to_exitcode(status)] if child else []
    assert ends == [0] * n_processes
