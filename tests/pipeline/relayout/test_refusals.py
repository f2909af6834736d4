"""`layout` refuses what it cannot do, names it, and leaves the index whole; so does a kill."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run
from tests.support.indexes.append import build, points
from tests.support.indexes.builds import data_files
from tests.support.indexes.lsh import FIXED
from tests.support.processes.forks import run_forked

import indexmill
from indexmill.formats.errors import (
    BudgetError,
    ConfigError,
    CorruptFile,
    InputError,
    OtherKind,
    OutputExistsError,
)
from indexmill.formats.index.manifest import read_manifest
from indexmill.pipeline.mill.publish import output_lock

N = 700


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("refusals") / "old", points(N, 1), order="identity")


@pytest.fixture
def index(old: Path, tmp_path: Path) -> Path:
    return shutil.copytree(old, tmp_path / "ix")


def unchanged(index: Path, old: Path) -> bool:
    return data_files(index) == data_files(old) and [p.name for p in index.parent.iterdir()] == ["ix"]


def swapped(value: int) -> np.ndarray:
    order = np.arange(N)
    order[5] = value
    return order


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (
            swapped(9),
            r"position 9: expected a permutation of the vector ids 0 to 699, got 9 again, after position 5",
        ),
        (swapped(N), r"position 5: expected .*, got 700"),
        (swapped(-1), r"position 5: expected .*, got -1"),
        (np.arange(N - 1), r"got int64 of shape \(699,\); slot s holds vector order\[s\]"),
        (np.arange(N) * 1.0, r"got float64 of shape \(700,\)"),
        (np.arange(N).reshape(2, -1), r"got int64 of shape \(2, 350\)"),
    ],
)
def test_a_permutation_that_is_none_is_refused_with_its_position(
    index: Path, old: Path, tmp_path_factory: pytest.TempPathFactory, order: np.ndarray, message: str
) -> None:
    path = tmp_path_factory.mktemp("order") / "order.npy"
    np.save(path, order)
    with pytest.raises(InputError, match=message):
        indexmill.lay_out(index, order_file=path)
    assert unchanged(index, old)


def test_an_order_file_that_is_no_array_is_refused(index: Path, old: Path) -> None:
    for path in (index / "graph.imx", index / "missing.npy"):
        with pytest.raises(InputError, match=r"not a \.npy file that can be read"):
            indexmill.lay_out(index, order_file=path)
    assert unchanged(index, old)


def test_words_it_does_not_know_are_refused_with_the_nearest(index: Path, old: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^order: expected one of auto, .*got 'stars'; did you mean 'star'\?"
    ):
        indexmill.lay_out(index, "stars")
    for unlike in ("qqq", "polish"):
        with pytest.raises(ConfigError) as error:
            indexmill.lay_out(index, unlike)
        assert str(error.value).count("kmeans-pages") == (unlike == "qqq")  # each order once
    assert "did you mean 'agglomerative', which took its place?" in str(error.value)
    with pytest.raises(ConfigError, match=r"^effort: expected one of low, normal, high, got 'much'$"):
        indexmill.lay_out(index, effort="much")
    with pytest.raises(ConfigError, match="only the order 'auto' and --prune-edges look at queries"):
        indexmill.lay_out(index, "star", queries=points(5, 2))
    with pytest.raises(ConfigError, match=r"^order_file: order already names an order"):
        indexmill.lay_out(index, "star", order_file="order.npy")
    assert unchanged(index, old)


def test_queries_that_do_not_fit_are_refused(index: Path, old: Path) -> None:
    queries, truth = points(20, 2), np.zeros((20, 10), np.int64)
    with pytest.raises(InputError, match=r"queries: expected shape \(q, 12\)"):
        indexmill.lay_out(index, queries=queries[:, :5])
    with pytest.raises(InputError, match="truth: goes with queries"):
        indexmill.lay_out(index, truth=truth)
    with pytest.raises(InputError, match=r"truth: expected integers of shape \(20, k\)"):
        indexmill.lay_out(index, queries=queries, truth=truth[:7])
    with pytest.raises(InputError, match="truth: 3 neighbours a query; expected at least 10"):
        indexmill.lay_out(index, queries=queries, truth=truth[:, :3])
    truth[4, 2] = N
    with pytest.raises(InputError, match="truth: query 4 names vector 700"):
        indexmill.lay_out(index, queries=queries, truth=truth)
    assert unchanged(index, old)


@pytest.mark.parametrize("how", [{"kind": "ivf", "lists": 8}, FIXED], ids=lambda how: how["kind"])
def test_lists_and_hash_tables_are_refused_by_their_kind(tmp_path: Path, how: dict[str, Any]) -> None:
    index = tmp_path / "ix"
    indexmill.build(points(N, 1), index, **how)
    before = data_files(index)
    message = f"ix: expected an index of kind graph, got one of kind {how['kind']}"
    for request in ({"order": "star"}, {"order": "auto"}, {"prune_edges": True}):
        with pytest.raises(OtherKind, match=message):
            indexmill.lay_out(index, **request)
    said = run("layout", index)
    assert (said.exit_code, message in said.stderr) == (OtherKind.exit_code, True)
    assert data_files(index) == before
    assert [path.name for path in tmp_path.iterdir()] == ["ix"]


@pytest.mark.parametrize("file", ["graph.imx", "codes.imx", "ids.imx", "entries.imx", "navigation.imx"])
def test_a_damaged_index_is_named_and_untouched(index: Path, file: str) -> None:
    raw = bytearray((index / file).read_bytes())
    raw[4096 + 100] ^= 1
    (index / file).write_bytes(raw)
    for order in ("star", "auto"):
        with pytest.raises(CorruptFile, match=rf"{file}: page 1"):
            indexmill.lay_out(index, order)
    assert (index / file).read_bytes() == raw
    assert [p.name for p in index.parent.iterdir()] == ["ix"]


def test_what_does_not_fit_the_memory_is_refused_with_what_does(index: Path, old: Path) -> None:
    with pytest.raises(
        BudgetError, match=r"the order star of 700 vectors takes [\d,]+ bytes .* give at least"
    ):
        indexmill.lay_out(index, "star", memory="1MiB")
    assert unchanged(index, old)


def test_an_output_that_exists_or_is_being_written_is_refused(index: Path, old: Path) -> None:
    other = shutil.copytree(old, index.parent / "other")
    with pytest.raises(OutputExistsError, match="add --force"):
        indexmill.lay_out(index, "star", out=other)
    with output_lock(index), pytest.raises(ConfigError, match="another job is writing"):
        indexmill.lay_out(index, "star")
    with pytest.raises(InputError, match="no such index"):
        indexmill.lay_out(index.parent / "nowhere", "star")
    shutil.rmtree(other)
    assert unchanged(index, old)


# Lays out in a child that kills itself: after the named step, or at a failpoint of the publishing.
KILL = """
import os, signal, sys
import indexmill
import indexmill.pipeline.relayout.run as x

victim, index = sys.argv[1:3]
owner = x.Writing if victim == "write" else x
if hasattr(owner, victim):
    step = getattr(owner, victim)
    def then_die(*arguments, **keywords):
        step(*arguments, **keywords)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(owner, victim, then_die)
indexmill.lay_out(index, "star", workers=1)
"""


def lay_out_and_die(victim: str, index: Path, failpoint: str = "") -> int:
    return run_forked(KILL, victim, index, failpoint=failpoint).returncode


@pytest.mark.kill
def test_killed_anywhere_there_is_always_a_whole_index(index: Path, old: Path) -> None:
    whole = index.parent / "whole"
    indexmill.lay_out(old, "star", out=whole)
    for step in ("unpack", "write"):
        assert lay_out_and_die(step, index) == -signal.SIGKILL, step
        assert data_files(index) == data_files(old), step
        assert (index.parent / ".ix.indexmill-scratch").is_dir()
    assert lay_out_and_die("nothing", index, "publish-sealed") == -signal.SIGKILL
    assert data_files(index) == data_files(old)
    assert lay_out_and_die("nothing", index, "publish-aside") == -signal.SIGKILL
    assert data_files(index) == data_files(whole)
    indexmill.lay_out(index, "identity")  # what killed runs left is cleared away by the next
    assert sorted(p.name for p in index.parent.iterdir()) == ["ix", "whole"]


@pytest.mark.kill
def test_a_full_disk_is_an_error_and_changes_nothing(index: Path, old: Path) -> None:
    code = "import indexmill, sys; indexmill.lay_out(sys.argv[1], 'star')"
    done = run_forked(code, index, failpoint="publish-copied=ENOSPC")
    assert "No space left on device" in done.stderr
    assert data_files(index) == data_files(old)


def test_an_output_without_room_for_copies_is_told_before_any_work(
    index: Path, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage, disk = shutil.disk_usage(tmp_path), tmp_path / "disk"
    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: usage._replace(free=1000) if Path(path) == disk else usage
    )
    size = sum(entry.bytes for entry in read_manifest(index, ("graph",)).files)
    with pytest.raises(
        BudgetError, match=rf"^out: {disk}: the new index takes {size:,} bytes, 1,000 are free; make room"
    ):
        indexmill.lay_out(index, "star", out=disk / "new", work=tmp_path / "work")
    assert list(disk.iterdir()) == list((tmp_path / "work").iterdir()) == []
    assert data_files(index) == data_files(old)


def test_a_copy_that_fills_the_disk_of_the_output_names_it(
    index: Path, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(
            errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target)
        )  # as shutil does

    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(shutil, "copyfile", full)
    said = run("layout", index, "--order", "star", "--work", tmp_path / "work")
    assert said.exit_code == 4
    assert said.stderr.splitlines()[-1].startswith(f"error: {tmp_path}/.ix.indexmill-new/")
    assert re.search(
        r": No space left on device; copying \S+ takes [\d,]+ bytes, [\d,]+ are free; the index is as it was; ",
        said.stderr,
    )
    assert data_files(index) == data_files(old)


def no_link(source: Path, target: Path) -> None:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
