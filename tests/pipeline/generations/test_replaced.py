"""Runs that write elsewhere while another run replaces an index that they read publish one generation or nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.indexes.deleted import DIM, KINDS, VECTORS, N
from tests.support.progress import Stages

import indexmill
from indexmill.formats.errors import CorruptFile, IndexReplaced
from indexmill.jobs.updatefile import given_to
from indexmill.pipeline.append import run as append_run
from indexmill.pipeline.append.lists import run as lists_run
from indexmill.pipeline.append.tables import run as tables_run
from indexmill.pipeline.compact import lists as compact_lists
from indexmill.pipeline.compact import run as compact_run
from indexmill.pipeline.compact import tables as compact_tables
from indexmill.pipeline.compact.run import run_compact
from indexmill.pipeline.generations.brought import brought_into
from indexmill.pipeline.generations.run import GenerationRun, RunOptions
from indexmill.pipeline.merge import lists as merge_lists
from indexmill.pipeline.merge import run as merge_run
from indexmill.pipeline.merge import tables as merge_tables
from indexmill.pipeline.merge.run import run_merge
from indexmill.pipeline.relayout import run as relayout_run
from indexmill.pipeline.relayout.query_log import QueryLog
from indexmill.pipeline.relayout.run import LayoutRequest, run_layout
from indexmill.pipeline.update import run as update_run
from indexmill.pipeline.update.run import run_update
from indexmill.pipeline.update.spec import UpdateSpec

COLOURS = pa.table({"colour": [f"c{i % 5}" for i in range(N)]})
LARGE = 1000
NEW = np.random.default_rng(3).integers(0, 60, (5, DIM)).astype(np.uint8)
REPLACED = "was replaced meanwhile; run again"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of each kind with metadata, others of the same kind with other vectors, and a graph of many pages."""
    path = tmp_path_factory.mktemp("replaced")
    for kind, parameters in KINDS.items():
        for name, vectors, first in ((kind, VECTORS, 0), (f"{kind}-other", VECTORS[::-1] + 1, 1000)):
            ids = np.arange(first, first + N)
            indexmill.build(vectors, path / name, ids=ids, metadata=COLOURS, workers=1, **parameters)
    large = {"ids": np.arange(LARGE), "metadata": pa.table({"colour": ["c0"] * LARGE})}
    vectors = np.random.default_rng(5).integers(0, 60, (LARGE, DIM)).astype(np.uint8)
    indexmill.build(vectors, path / "graph-large", workers=1, **large, **KINDS["graph"])
    return path


def first_calls(
    owner: Any, name: str, then: Callable[[], object], patch: pytest.MonkeyPatch, skipped: int = 0
) -> None:
    """Let the first call of a function or method, after those that are skipped, do something else before."""
    whole, waiting = getattr(owner, name), [then, *[lambda: None] * skipped]

    def between(*arguments: Any, **keywords: Any) -> Any:
        if waiting:
            waiting.pop()()
        return whole(*arguments, **keywords)

    patch.setattr(owner, name, between)


def after(stage: str, then: Callable[[], object]) -> Stages:
    """Return a listener that acts once, after a stage of this name."""
    waiting = [then]

    def act(made: str) -> None:
        if made == stage and waiting:
            waiting.pop()()

    return Stages(act)


def with_deletions(index: Path) -> Path:
    indexmill.delete(index, range(0, 60, 3), by="vector")
    return index


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", ["ivf", "lsh"])
def test_an_append_elsewhere_takes_no_files_of_a_later_generation(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    index, out = with_deletions(shutil.copytree(folder / kind, tmp_path / "ix")), tmp_path / "out"

    def append() -> None:
        more = COLOURS[: len(NEW)]
        indexmill.append(index, NEW, ids=np.arange(2000, 2005), metadata=more, out=out, workers=1)

    module = lists_run if kind == "ivf" else tables_run
    first_calls(module, "take_over", lambda: indexmill.compact(index, workers=1), monkeypatch)
    with pytest.raises(IndexReplaced, match=f"{index} {REPLACED}"):
        append()
    assert names(tmp_path) == ["ix"]
    append()
    assert_sound(out)


def test_an_append_to_tables_measures_the_generation_that_it_extends(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = with_deletions(shutil.copytree(folder / "lsh", tmp_path / "ix"))
    first_calls(tables_run, "mean_reads", lambda: indexmill.compact(index, workers=1), monkeypatch)
    with pytest.raises(IndexReplaced, match=f"{index} {REPLACED}"):
        indexmill.append(
            index,
            NEW,
            ids=np.arange(2000, 2005),
            metadata=COLOURS[: len(NEW)],
            out=tmp_path / "out",
            workers=1,
        )
    assert names(tmp_path) == ["ix"]


def appended(index: Path) -> None:
    """Append to an index in place, many enough vectors that all files are others."""
    metadata = COLOURS[:60]
    indexmill.append(index, VECTORS[:60], ids=np.arange(2000, 2060), metadata=metadata, workers=1)


@pytest.mark.parametrize("kind", ["ivf", "lsh"])
def test_a_copy_has_the_files_of_one_generation(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    index, out = shutil.copytree(folder / kind, tmp_path / "ix"), tmp_path / "out"
    first_calls(GenerationRun, "publish", lambda: appended(index), monkeypatch)
    with pytest.raises(IndexReplaced, match=f"{index} {REPLACED}"):
        indexmill.compact(index, out=out, workers=1)
    assert names(tmp_path) == ["ix"]
    indexmill.compact(index, out=out, workers=1)
    assert_sound(out)


def test_a_job_without_work_copies_one_generation(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, out = shutil.copytree(folder / "ivf", tmp_path / "ix"), tmp_path / "out"
    spec = UpdateSpec.model_validate({"base": str(index), "out": str(out), "compact": True, "workers": 1})
    first_calls(GenerationRun, "publish", lambda: appended(index), monkeypatch)
    with pytest.raises(IndexReplaced, match=f"{index} {REPLACED}"):
        run_update(spec, given_to(spec))
    assert not out.exists()
    run_update(spec, given_to(spec))
    assert_sound(out)


def laid_out(index: Path) -> None:
    indexmill.lay_out(index, "random", workers=1)


@pytest.mark.parametrize("replace", [laid_out, appended, with_deletions])
def test_a_layout_goes_on_with_what_it_opened(
    folder: Path, tmp_path: Path, replace: Callable[[Path], object]
) -> None:
    index = shutil.copytree(folder / "graph", tmp_path / "ix")
    request = LayoutRequest("star", certify=True)
    run_layout(index, request, RunOptions(tmp_path / "undisturbed", workers=1))
    heard = after("measure", lambda: replace(index))
    run_layout(index, request, RunOptions(tmp_path / "out", workers=1), heard)
    assert heard.made.count("measure") == 1
    assert data_files(tmp_path / "out") == data_files(tmp_path / "undisturbed")


#: Layouts that search the index by its path, each with the index and the stage before.
SEARCHING = {
    "auto": ("graph", "unpack", LayoutRequest()),
    "recorded": ("graph", "order", LayoutRequest("star", query_log=QueryLog(VECTORS[:60]))),
    "weighed": (
        "graph-large",
        "bundle",
        LayoutRequest(
            "star", query_log=QueryLog(np.concatenate([np.tile(VECTORS[:2], (24, 1)), VECTORS[:12]]))
        ),
    ),
    "pruned": ("graph", "prune", LayoutRequest("star", prune_edges=True)),
}


@pytest.mark.parametrize("replace", [laid_out, appended, with_deletions])
@pytest.mark.parametrize("searching", SEARCHING)
def test_a_layout_is_judged_by_searches_of_the_generation_that_it_lays_out(
    folder: Path, tmp_path: Path, searching: str, replace: Callable[[Path], object]
) -> None:
    name, stage, request = SEARCHING[searching]
    index, out = shutil.copytree(folder / name, tmp_path / "ix"), tmp_path / "out"
    indexmill.lay_out(index, "star", workers=1)
    heard = after(stage, lambda: replace(index))
    with pytest.raises(IndexReplaced, match=f"{index} {REPLACED}"):
        run_layout(index, request, RunOptions(out, workers=1), heard)
    assert heard.made.count(stage) == 1
    assert names(tmp_path) == ["ix"]


def two_under_a_link(folder: Path, tmp_path: Path, kind: str) -> tuple[Path, Callable[[], None]]:
    """Return a link to an index, and what makes it one to an equal index of another generation."""
    link, first, second = tmp_path / "ix", tmp_path / "first", tmp_path / "second"
    for place in (first, second):
        shutil.copytree(folder / kind, place)
    if kind.startswith("graph"):
        indexmill.lay_out(first, "star", workers=1)
        laid_out(second)
    else:
        appended(second)
    link.symlink_to(first)

    def move() -> None:
        (tmp_path / "moved").symlink_to(second)
        (tmp_path / "moved").replace(link)

    return link, move


@pytest.mark.parametrize("searching", SEARCHING)
def test_a_layout_through_a_link_is_judged_by_the_index_that_the_link_named(
    folder: Path, tmp_path: Path, searching: str
) -> None:
    name, stage, request = SEARCHING[searching]
    link, move = two_under_a_link(folder, tmp_path, name)
    heard = after(stage, move)
    with pytest.raises(IndexReplaced, match=f"{link} {REPLACED}"):
        run_layout(link, request, RunOptions(tmp_path / "out", workers=1), heard)
    assert heard.made.count(stage) == 1
    assert names(tmp_path) == ["first", "ix", "second"]


@pytest.mark.parametrize("kind", ["ivf", "lsh"])
def test_a_copy_through_a_link_has_the_files_of_one_index(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    link, move = two_under_a_link(folder, tmp_path, kind)
    first_calls(GenerationRun, "publish", move, monkeypatch)
    with pytest.raises(IndexReplaced, match=f"{link} {REPLACED}"):
        indexmill.compact(link, out=tmp_path / "out", workers=1)
    assert names(tmp_path) == ["first", "ix", "second"]


def more(index: Path, out: Path) -> None:
    indexmill.append(index, NEW, ids=np.arange(2000, 2005), metadata=COLOURS[: len(NEW)], out=out, workers=1)


def merged(index: Path, out: Path) -> None:
    indexmill.merge(index, index.parent / "other", out=out, workers=1)


def compacted(index: Path, out: Path) -> None:
    indexmill.compact(index, out=out, workers=1)


def copied_layout(index: Path, out: Path) -> None:
    indexmill.lay_out(index, "random", out=out, workers=1)


def updated(index: Path, out: Path) -> None:
    spec = UpdateSpec.model_validate({"base": str(index), "out": str(out), "compact": True, "workers": 1})
    run_update(spec, given_to(spec))


#: What makes an index of another, each with its kind and the name by which its module opens that.
MAKING = {
    "append to a graph": ("graph", more, append_run, "OpenedIndex"),
    "append to lists": ("ivf", more, lists_run, "OpenedLists"),
    "append to tables": ("lsh", more, tables_run, "OpenedTables"),
    "merge of graphs": ("graph", merged, merge_run, "OpenedIndex"),
    "merge of lists": ("ivf", merged, merge_lists, "OpenedLists"),
    "merge of tables": ("lsh", merged, merge_tables, "OpenedTables"),
    "compaction of a graph": ("graph", compacted, compact_run, "OpenedIndex"),
    "compaction of lists": ("ivf", compacted, compact_lists, "OpenedLists"),
    "compaction of tables": ("lsh", compacted, compact_tables, "OpenedTables"),
    "layout": ("graph", copied_layout, relayout_run, "OpenedIndex"),
    "update": ("ivf", updated, update_run, "read_bases"),
}


@pytest.mark.parametrize("making", MAKING)
def test_what_a_job_brings_before_an_index_is_opened_is_named_in_what_is_made_of_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, making: str
) -> None:
    """A job would bring it once more into an index that has it and does not name it."""
    kind, make, module, opens = MAKING[making]
    index = shutil.copytree(folder / kind, tmp_path / "ix")
    shutil.copytree(folder / f"{kind}-other", tmp_path / "other")
    if make is compacted:
        with_deletions(index)
    pq.write_table(
        COLOURS[:5]
        .append_column("id", pa.array(range(3000, 3005)))
        .append_column("vector", pa.FixedSizeListArray.from_arrays(pa.array(NEW.ravel()), DIM)),
        tmp_path / "new.parquet",
    )
    keys = {"base": str(index), "add": str(tmp_path / "new.parquet"), "id_column": "id", "workers": 1}
    spec = UpdateSpec.model_validate(keys)
    with monkeypatch.context() as patch:
        before_lock = int(module is update_run)  # it reads its bases once before it locks its output
        first_calls(module, opens, lambda: run_update(spec, given_to(spec)), patch, before_lock)
        with pytest.raises(IndexReplaced, match=f"{index} {REPLACED}"):
            make(index, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    make(index, tmp_path / "out")
    assert len(brought_into(index)) == 1
    assert set(brought_into(index)) <= set(brought_into(tmp_path / "out"))


def test_a_layout_does_not_claim_what_a_job_brings_into_a_later_generation(tmp_path: Path) -> None:
    index, added = tmp_path / "ix", tmp_path / "new.npy"
    indexmill.build(VECTORS, index, workers=1, **KINDS["graph"])
    np.save(added, NEW)
    spec = UpdateSpec.model_validate({"base": str(index), "add": str(added), "workers": 1})
    heard = after("measure", lambda: run_update(spec, given_to(spec)))
    run_layout(index, LayoutRequest("random"), RunOptions(tmp_path / "out", workers=1), heard)
    assert len(brought_into(index)) == 1
    assert brought_into(tmp_path / "out") == []


def test_a_layout_finds_an_index_that_a_killed_run_left_aside(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "graph", tmp_path / ".ix.indexmill-old")
    run_layout(tmp_path / "ix", LayoutRequest(), RunOptions(tmp_path / "out", workers=1))
    assert names(tmp_path) == ["ix", "out"]


@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize(("kind", "stage"), [("graph", "compact unpack"), ("lsh", "tables")])
def test_a_merge_goes_on_while_what_it_opened_is_compacted(
    folder: Path, tmp_path: Path, kind: str, stage: str, which: int
) -> None:
    given = [shutil.copytree(folder / name, tmp_path / name) for name in (kind, f"{kind}-other")]
    replaced = with_deletions(given[which])
    run_merge(given, RunOptions(tmp_path / "undisturbed", workers=1))
    heard = after(stage, lambda: indexmill.compact(replaced, workers=1))
    run_merge(given, RunOptions(tmp_path / "out", workers=1), heard)
    assert heard.made.count(stage) == 1
    assert data_files(tmp_path / "out") == data_files(tmp_path / "undisturbed")


def test_a_compaction_of_a_graph_elsewhere_goes_on(folder: Path, tmp_path: Path) -> None:
    index = with_deletions(shutil.copytree(folder / "graph", tmp_path / "ix"))
    heard = after("unpack", lambda: indexmill.compact(index, workers=1))
    run_compact(index, RunOptions(tmp_path / "out", workers=1), heard)
    assert data_files(tmp_path / "out") == data_files(index)


def test_a_merge_of_lists_says_that_one_was_replaced(folder: Path, tmp_path: Path) -> None:
    given = [with_deletions(shutil.copytree(folder / name, tmp_path / name)) for name in ("ivf", "ivf-other")]
    heard = after("assign", lambda: indexmill.compact(given[0], workers=1))
    with pytest.raises(IndexReplaced, match=f"{given[0]} {REPLACED}"):
        run_merge(given, RunOptions(tmp_path / "out", workers=1), heard)
    assert not (tmp_path / "out").exists()
    run_merge(given, RunOptions(tmp_path / "out", workers=1))
    assert_sound(tmp_path / "out")


def test_damage_is_told_as_before(folder: Path, tmp_path: Path) -> None:
    index = shutil.copytree(folder / "ivf", tmp_path / "ix")
    path = next(index.glob("*000001*.imx"))
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    indexmill.delete(index, [100], by="vector")
    with pytest.raises(CorruptFile, match=path.name):
        indexmill.compact(index, out=tmp_path / "out", workers=1)
