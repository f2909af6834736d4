"""Exports of indexes with deletions are those of the compacted indexes; killed ones resume, and nothing is left."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracles.files.small_index import write_small_index
from tests.support.cli import run, run_json
from tests.support.indexes.builds import data_files
from tests.support.indexes.deleted import KINDS, LISTS, VECTORS, N
from tests.support.indexes.export import id_map, record
from tests.support.processes.forks import run_forked
from tests.support.progress import Stages

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, OutputExistsError
from indexmill.formats.exports.graph import ExportedGraph
from indexmill.formats.exports.lists import ExportedLists
from indexmill.formats.exports.lucene_stream import write_stream
from indexmill.formats.exports.rows import Advance
from indexmill.formats.exports.target import Target
from indexmill.formats.exports.targets import TARGETS
from indexmill.pipeline.export import compacted
from indexmill.pipeline.export import run as export_run
from indexmill.pipeline.export.run import ExportOptions, run_export
from indexmill.pipeline.generations.scratch import scratch_directory

IDS = np.arange(N) * 3 + 1000
GONE = np.sort(np.random.default_rng(4).permutation(N)[:35])
LEFT = np.setdiff1d(np.arange(N), GONE)
OF_ROWS = [name for name, one in TARGETS.items() if one.by_row]
COMPACTED = [name for name in TARGETS if name not in OF_ROWS]
#: A target that needs a compaction, for each kind of index.
TARGET_OF = {"graph": "faiss", "ivf": "faiss-ivf", "lsh": "faiss-lsh"}
EXPORT = """
import sys
import indexmill
indexmill.export(*sys.argv[1:4], force=True, workers=1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of each kind with deletions, what `compact` writes of it, and the export of that."""
    path = tmp_path_factory.mktemp("compacted")
    colours = pa.table({"colour": [f"c{i % 5}" for i in range(N)]})
    for kind, parameters in KINDS.items():
        indexmill.build(VECTORS, path / kind, ids=IDS, metadata=colours, workers=1, **parameters)
        indexmill.delete(path / kind, IDS[GONE])
        indexmill.compact(path / kind, out=path / f"{kind}-compacted", workers=1)
        indexmill.export(path / f"{kind}-compacted", TARGET_OF[kind], path / f"{kind}-exported")
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rows_for_lance(index: ExportedLists, folder: Path, advance: Advance) -> None:
    """Write the rows that Lance's library is given, which is not installed here."""
    with open(folder / "rows", "xb") as file:
        for block in index.blocks():
            for column in block:
                file.write(np.ascontiguousarray(column).data)
            told = (index.names_of(block.ids).to_pylist(), index.metadata_of(block.ids).to_pylist())
            file.write(repr(told).encode())


def stream_for_lucene(index: ExportedGraph, folder: Path, advance: Advance) -> None:
    """Write the stream that Lucene's exporter is given, a program that need not be installed here."""
    with open(folder / "stream", "xb") as file:
        write_stream(index, file, True, advance)


#: Stand for what libraries and programs write that are not installed here; tests/engines runs them.
STAND_INS: dict[str, Callable[..., None]] = {
    "lance": rows_for_lance,
    "lucene": stream_for_lucene,
    "lucene-build": stream_for_lucene,
}


def stood_in(target: Target[Any]) -> Target[Any]:
    """Return a target that writes here."""
    if target.name not in STAND_INS:
        return target
    return replace(target, check=lambda index: None, write=STAND_INS[target.name])


@pytest.mark.parametrize("ids", ["user", "slot"])
@pytest.mark.parametrize("name", COMPACTED)
def test_the_bytes_are_those_of_an_export_of_the_compacted_index(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ids: Any
) -> None:
    monkeypatch.setitem(TARGETS, name, stood_in(TARGETS[name]))
    (kind,) = TARGETS[name].kinds
    before = data_files(folder / kind)
    found = indexmill.export(folder / kind, name, tmp_path / "out", ids=ids, workers=1)
    expected = indexmill.export(folder / f"{kind}-compacted", name, tmp_path / "expected", ids=ids)
    assert files(tmp_path / "out") == files(tmp_path / "expected")
    assert (found["n_vectors"], found["removed"]) == (len(LEFT), len(GONE))
    assert expected.keys() == found.keys() - {"removed"}
    assert names(tmp_path) == ["expected", "out"]
    assert data_files(folder / kind) == before


@pytest.mark.parametrize("kind", ["graph", "ivf"])
@pytest.mark.parametrize("name", OF_ROWS)
def test_rows_are_those_of_the_compacted_index_with_the_former_vector_ids(
    folder: Path, tmp_path: Path, name: str, kind: str
) -> None:
    assert indexmill.export(folder / kind, name, tmp_path / "out")["removed"] == len(GONE)
    assert "removed" not in indexmill.export(folder / f"{kind}-compacted", name, tmp_path / "expected")
    mapped, expected = (id_map(tmp_path / out).sort_by("id") for out in ("out", "expected"))
    assert mapped.select(["id", "colour"]) == expected.select(["id", "colour"])
    assert mapped["id"].to_pylist() == IDS[LEFT].tolist()
    assert mapped["vector_id"].to_pylist() == LEFT.tolist()
    assert expected["vector_id"].to_pylist() == list(range(len(LEFT)))
    if name == "parquet":
        rows = [
            pq.read_table(tmp_path / out / "vectors.parquet").sort_by("id") for out in ("out", "expected")
        ]
        assert rows[0]["vector"].to_pylist() == rows[1]["vector"].to_pylist() == VECTORS[LEFT].tolist()


def test_without_user_ids_the_engine_names_vectors_by_their_place_among_those_left(tmp_path: Path) -> None:
    indexmill.build(VECTORS, tmp_path / "ix", workers=1, **KINDS["ivf"])
    indexmill.delete(tmp_path / "ix", [0, 1])
    indexmill.export(tmp_path / "ix", "faiss-ivf", tmp_path / "out")
    assert sorted(id_map(tmp_path / "out")["id"].to_pylist()) == list(range(N - 2))


@pytest.mark.parametrize("name", ["faiss", "faiss-nsg", "faiss-ivf"])
def test_faiss_finds_what_is_left_and_nothing_else(folder: Path, tmp_path: Path, name: str) -> None:
    (kind,) = TARGETS[name].kinds
    indexmill.export(folder / kind, name, tmp_path / "out", workers=1)
    index: Any = faiss.read_index(str(tmp_path / "out" / "index.faiss"))
    if kind == "ivf":
        faiss.extract_index_ivf(index).nprobe = LISTS
    distances, found = index.search(VECTORS.astype(np.float32), 10)
    assert set(found[found >= 0].tolist()) <= set(IDS[LEFT].tolist())
    assert (distances[LEFT, 0] == 0).mean() > 0.95


@pytest.mark.parametrize("kind", KINDS)
def test_progress_shows_the_compaction_as_a_step_that_measures_nothing(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    heard = Stages()
    run_export(folder / kind, ExportOptions(TARGET_OF[kind], tmp_path / "out", workers=1), heard)
    step = {
        "graph": ["unpack", "repair", "order", "starts", "emit"], "ivf": ["lists", "seal"], "lsh": ["tables", "seal"]
    }[kind]  # fmt: skip
    assert heard.made == [*(f"compact {stage}" for stage in [*step, "publish"]), "ids", TARGET_OF[kind]]


def test_the_command_says_what_it_leaves_out(folder: Path, tmp_path: Path) -> None:
    limits = ("--memory", "1GiB", "--workers", "1", "--work", tmp_path / "work")
    done = run("export", folder / "graph", "--to", "svs", "--out", tmp_path / "out", *limits)
    assert done.exit_code == 0, done.stderr
    assert "35 deleted vectors are left out" in done.stdout
    assert "compact repair" in done.stderr
    assert names(tmp_path) == ["out", "work"]
    assert names(tmp_path / "work") == []
    rows = run("export", folder / "ivf", "--to", "parquet", "--out", tmp_path / "rows")
    assert "35 deleted vectors are left out; vector ids stay" in rows.stdout
    found = run_json("export", folder / "ivf", "--to", "faiss-ivf", "--out", tmp_path / "lists")
    assert found["removed"] == 35
    assert "removed" not in record(tmp_path / "lists")


@pytest.mark.kill
def test_an_export_killed_anywhere_resumes_with_what_its_compaction_finished(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for place in ("repair-begun", "publish-copied", "compact-written", "publish-sealed:2"):
        killed = run_forked(EXPORT, folder / "graph", "faiss", out, failpoint=place)
        assert killed.returncode == -signal.SIGKILL, (place, killed.stderr)
        assert not out.exists(), place
    heard = Stages()
    run_export(folder / "graph", ExportOptions("faiss", out), heard)
    assert heard.made == ["ids", "faiss"]
    assert files(out) == files(folder / "graph-exported")
    assert names(tmp_path) == ["out"]


@pytest.mark.kill
def test_finished_stages_of_a_killed_compaction_are_not_made_again(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    killed = run_forked(EXPORT, folder / "graph", "faiss", out, failpoint="order-done")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    heard = Stages()
    run_export(folder / "graph", ExportOptions("faiss", out), heard)
    assert heard.made == ["compact starts", "compact emit", "compact publish", "ids", "faiss"]
    assert files(out) == files(folder / "graph-exported")


@pytest.mark.kill
@pytest.mark.parametrize("kind", ["ivf", "lsh"])
def test_killed_exports_of_lists_and_tables_run_again(folder: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    for place in ("seal-begun", "publish-copied", "compact-written", "publish-sealed:2"):
        killed = run_forked(EXPORT, folder / kind, TARGET_OF[kind], out, failpoint=place)
        assert killed.returncode == -signal.SIGKILL, (place, killed.stderr)
        assert not out.exists(), place
    assert run_forked(EXPORT, folder / kind, TARGET_OF[kind], out).returncode == 0
    assert files(out) == files(folder / f"{kind}-exported")
    assert names(tmp_path) == ["out"]


@pytest.mark.kill
def test_a_compaction_that_a_killed_export_left_is_not_taken_for_a_later_generation(
    folder: Path, tmp_path: Path
) -> None:
    index, out = shutil.copytree(folder / "ivf", tmp_path / "ix"), tmp_path / "out"
    killed = run_forked(EXPORT, index, "faiss-ivf", out, failpoint="publish-sealed:2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    indexmill.delete(index, IDS[LEFT[:20]])
    found = indexmill.export(index, "faiss-ivf", out)
    assert (found["n_vectors"], found["removed"]) == (len(LEFT) - 20, len(GONE) + 20)
    assert set(id_map(out)["id"].to_pylist()) == set(IDS[LEFT[20:]].tolist())
    assert names(tmp_path) == ["ix", "out"]


@pytest.mark.kill
def test_what_a_killed_export_left_goes_with_one_that_needs_no_compaction(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    killed = run_forked(EXPORT, folder / "graph", "faiss", out, failpoint="publish-done:2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert files(out) == files(folder / "graph-exported")
    assert ".out.indexmill-export" in names(tmp_path)
    indexmill.export(folder / "graph-compacted", "faiss", out, force=True)
    assert names(tmp_path) == ["out"]


@pytest.mark.kill
@pytest.mark.parametrize("there", [False, True], ids=["none there", "another there"])
def test_gc_removes_what_a_killed_export_left(folder: Path, tmp_path: Path, there: bool) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    if there:
        shutil.copytree(folder / "graph-exported", out)
    killed = run_forked(EXPORT, folder / "graph", "faiss", out, failpoint="compact-written")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = files(out)
    assert ".out.indexmill-export" in names(tmp_path)
    told = run_json("gc", out)
    assert (told["removed"], told["generations"]) == ([".out.indexmill-export"], [])
    assert told["bytes"] > 0
    assert names(tmp_path) == (["out"] if there else [])
    assert files(out) == before
    work.mkdir()
    (work / scratch_directory(out, work, "export").name).mkdir()
    assert len(indexmill.gc(out, work=work)["removed"]) == 1
    assert names(work) == []
    if there:
        assert (
            "0 files and directories of 0 B removed; generations kept: none, an export has no"
            in run("gc", out).stdout
        )


@pytest.mark.kill
def test_gc_finds_what_a_killed_export_to_a_link_left(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    given = (str(folder / "graph"), "faiss", str(tmp_path / "link" / "out"))
    code = f"import indexmill; indexmill.export(*{given!r}, workers=1, work={str(tmp_path / 'work')!r})"
    killed = run_forked(code, failpoint="compact-written")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(indexmill.gc(tmp_path / "link" / "out", work=tmp_path / "work")["removed"]) == 1
    assert names(tmp_path / "work") == []


@pytest.mark.kill
def test_gc_brings_an_export_back_that_stepped_aside(folder: Path, tmp_path: Path) -> None:
    out = shutil.copytree(folder / "graph-exported", tmp_path / "out")
    before = files(out)
    code = "import indexmill.pipeline.mill.publish as p; p.exchange = lambda *_: False\n"
    killed = run_forked(code + EXPORT, folder / "graph-compacted", "faiss", out, failpoint="publish-aside")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not out.exists()
    indexmill.gc(out)
    assert files(out) == before
    assert names(tmp_path) == ["out"]


def test_an_export_that_fails_after_its_compaction_keeps_it_for_the_next(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(index: ExportedGraph, out: Path, advance: Advance) -> None:
        raise OSError("the engine's disk is full")

    shutil.copytree(folder / "graph-exported", tmp_path / "out")
    with monkeypatch.context() as patched:
        patched.setitem(TARGETS, "faiss", replace(TARGETS["faiss"], write=fail))
        with pytest.raises(OSError, match="is full"):
            indexmill.export(folder / "graph", "faiss", tmp_path / "out", force=True)
    assert names(tmp_path) == [".out.indexmill-export", "out"]
    assert files(tmp_path / "out") == files(folder / "graph-exported")
    heard = Stages()
    run_export(folder / "graph", ExportOptions("usearch", tmp_path / "out", force=True), heard)
    assert heard.made == ["ids", "usearch"]
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("kind", KINDS)
def test_too_little_memory_or_room_is_told_before_any_work(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    shutil.copytree(folder / f"{kind}-exported", tmp_path / "out")
    with pytest.raises(BudgetError, match=r"give at least [\d,]+ bytes with --memory"):
        indexmill.export(folder / kind, TARGET_OF[kind], tmp_path / "out", force=True, memory=1000)
    assert names(tmp_path) == ["out"]
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(
        BudgetError, match=r"the compaction needs [\d,]+ bytes there, 1,000 are free; .*--work"
    ):
        indexmill.export(folder / kind, TARGET_OF[kind], tmp_path / "out", force=True)
    assert names(tmp_path) == ["out"]
    assert files(tmp_path / "out") == files(folder / f"{kind}-exported")


def test_what_the_target_refuses_is_refused_before_the_compaction(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        pytest.fail("the index was compacted")

    monkeypatch.setattr(compacted, "run_compact", never)
    write_small_index(tmp_path / "ix", id_type="string")
    indexmill.delete(tmp_path / "ix", [0], by="vector")
    with pytest.raises(ConfigError, match="string ids, but faiss holds ids from 0"):
        indexmill.export(tmp_path / "ix", "faiss", tmp_path / "out")
    shutil.copytree(folder / "graph-exported", tmp_path / "there")
    with pytest.raises(OutputExistsError, match="add --force"):
        indexmill.export(folder / "graph", "faiss", tmp_path / "there")
    assert names(tmp_path) == ["ix", "there"]


def test_the_id_of_a_deleted_vector_may_be_one_that_the_target_cannot_hold(tmp_path: Path) -> None:
    ids = np.where(np.arange(N) == 7, 2**40, np.arange(N))
    indexmill.build(VECTORS, tmp_path / "ix", ids=ids, workers=1, **KINDS["graph"])
    with pytest.raises(ConfigError, match="diskann holds ids from 0 to"):
        indexmill.export(tmp_path / "ix", "diskann", tmp_path / "out")
    indexmill.delete(tmp_path / "ix", [2**40])
    assert indexmill.export(tmp_path / "ix", "diskann", tmp_path / "out")["n_vectors"] == N - 1


@pytest.mark.parametrize(("kind", "name"), [*TARGET_OF.items(), ("graph", "parquet")])
def test_an_index_of_which_nothing_is_left_is_refused(
    folder: Path, tmp_path: Path, kind: str, name: str
) -> None:
    index = shutil.copytree(folder / kind, tmp_path / "ix")
    indexmill.delete(index, IDS[LEFT])
    with pytest.raises(ConfigError, match=r"all vectors of .* were deleted; there is nothing to export"):
        indexmill.export(index, name, tmp_path / "out")
    assert names(tmp_path) == ["ix"]


def at(stage: str, then: Callable[[], object]) -> Stages:
    """Return a listener that acts once, after the first of the stages called so."""
    waiting = [then]

    def act(made: str) -> None:
        if made == stage and waiting:
            waiting.pop()()

    return Stages(act)


def test_an_export_to_a_link_keeps_others_from_its_target(folder: Path, tmp_path: Path) -> None:
    """Scratch files of both are the same."""
    there = shutil.copytree(folder / "graph-exported", tmp_path / "there")
    (tmp_path / "link").symlink_to(there)
    refused = []

    def disturb() -> None:
        for disturbance in (
            lambda: indexmill.gc(tmp_path / "link"),
            lambda: indexmill.gc(there),
            lambda: indexmill.export(folder / "graph-compacted", "faiss", there, force=True),
        ):
            with pytest.raises(ConfigError, match="another job is writing"):
                disturbance()
            refused.append(disturbance)

    heard = at("compact repair", disturb)
    run_export(folder / "graph", ExportOptions("faiss", tmp_path / "link", force=True), heard)
    assert len(refused) == 3
    assert files(tmp_path / "link") == files(folder / "graph-exported")
    assert names(tmp_path) == ["link", "there"]


@pytest.mark.parametrize("there", [False, True], ids=["none there", "another there"])
def test_a_disk_that_fills_after_the_compaction_is_told_with_the_remedy(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    def fill(index: ExportedGraph, out: Path, advance: Advance) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out / "index.faiss"))

    if there:
        shutil.copytree(folder / "graph-exported", tmp_path / "out")
    state = "the export there is as it was" if there else "nothing was published"
    with monkeypatch.context() as patched:
        patched.setitem(TARGETS, "faiss", replace(TARGETS["faiss"], write=fill))
        with pytest.raises(
            BudgetError, match=f"index.faiss: No space left on device; {state}; free some space"
        ):
            indexmill.export(folder / "graph", "faiss", tmp_path / "out", force=True)
    heard = Stages()
    run_export(folder / "graph", ExportOptions("faiss", tmp_path / "out", force=True), heard)
    assert heard.made == ["ids", "faiss"]
    assert files(tmp_path / "out") == files(folder / "graph-exported")


def test_a_deletion_during_the_compaction_is_not_in_the_export(folder: Path, tmp_path: Path) -> None:
    index = shutil.copytree(folder / "graph", tmp_path / "ix")
    opened = indexmill.open(index)
    answers = opened.search(VECTORS, 5).ids.tolist()
    heard = at("compact unpack", lambda: indexmill.delete(index, IDS[LEFT[:9]]))
    run_export(index, ExportOptions("faiss", tmp_path / "out"), heard)
    assert files(tmp_path / "out") == files(folder / "graph-exported")
    assert opened.search(VECTORS, 5).ids.tolist() == answers  # those who have it open go on


def test_an_index_that_is_replaced_during_the_compaction_is_exported_as_it_is_then(
    folder: Path, tmp_path: Path
) -> None:
    index = shutil.copytree(folder / "graph", tmp_path / "ix")
    heard = at("compact unpack", lambda: indexmill.compact(index, workers=1))
    run_export(index, ExportOptions("faiss", tmp_path / "out"), heard)
    assert heard.made.count("compact unpack") == 1
    indexmill.export(index, "faiss", tmp_path / "expected")
    assert files(tmp_path / "out") == files(tmp_path / "expected")
    assert names(tmp_path) == ["expected", "ix", "out"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_deletion_before_the_compaction_opens_the_index_is_counted_and_undone(
    folder: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept for the next export is not named after the generation before."""
    index = shutil.copytree(folder / kind, tmp_path / "ix")
    target, run_compact = TARGETS[TARGET_OF[kind]], compacted.run_compact
    waiting = [IDS[LEFT[:9]]]

    def compact_later(*how: Any, **options: Any) -> Any:
        if waiting:
            indexmill.delete(index, waiting.pop())
        return run_compact(*how, **options)

    def fail(view: Any, out: Path, advance: Advance) -> None:
        raise OSError("the engine's disk is full")

    monkeypatch.setattr(compacted, "run_compact", compact_later)
    told = indexmill.export(index, target.name, tmp_path / "out", workers=1)
    assert (told["n_vectors"], told["removed"]) == (len(LEFT) - 9, len(GONE) + 9)
    indexmill.rollback(index)
    waiting.append(IDS[LEFT[:9]])
    with monkeypatch.context() as patch:
        patch.setitem(TARGETS, target.name, replace(target, write=fail))
        with pytest.raises(OSError, match="is full"):
            indexmill.export(index, target.name, tmp_path / "later", workers=1)
    indexmill.rollback(index)
    told = indexmill.export(index, target.name, tmp_path / "later", workers=1)
    assert (told["n_vectors"], told["removed"]) == (len(LEFT), len(GONE))
    assert set(id_map(tmp_path / "later")["id"].to_pylist()) == set(IDS[LEFT].tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_a_deletion_after_the_compaction_by_another_run_is_not_in_the_export(
    folder: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index has no deletions when the export would compact it, and new ones when it is opened again."""
    index = shutil.copytree(folder / kind, tmp_path / "ix")
    calls = []

    def read_between(path: Path, read: Callable[[], Any]) -> Any:
        calls.append(path)
        if len(calls) > 1:
            return read()
        indexmill.compact(index, workers=1)
        found = read()
        indexmill.delete(index, IDS[LEFT[:9]])
        return found

    monkeypatch.setattr(compacted, "read_together", read_between)
    told = indexmill.export(index, TARGET_OF[kind], tmp_path / "out", workers=1)
    assert (told["n_vectors"], told["removed"]) == (len(LEFT) - 9, 9)
    assert set(id_map(tmp_path / "out")["id"].to_pylist()) == set(IDS[LEFT[9:]].tolist())
    assert names(tmp_path) == ["ix", "out"]


@pytest.mark.parametrize("again", [False, True])
def test_what_other_runs_removed_before_is_not_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """The index has no deletions when the export would compact it; or new ones then, and none when it looks again."""
    index = shutil.copytree(folder / "ivf", tmp_path / "ix")
    opened: list[str | Path] = []
    opens = export_run.open_exported

    def read_between(path: Path, read: Callable[[], Any]) -> Any:
        indexmill.compact(index, workers=1)
        found = read()
        if again:
            indexmill.delete(index, IDS[LEFT[:9]])
        return found

    def open_between(path: str | Path, *how: Any) -> Any:
        opened.append(path)
        if len(opened) == 3:
            indexmill.compact(index, workers=1)
        return opens(path, *how)

    monkeypatch.setattr(compacted, "read_together", read_between)
    monkeypatch.setattr(export_run, "open_exported", open_between)
    told = indexmill.export(index, "faiss-ivf", tmp_path / "out", workers=1)
    assert told["n_vectors"] == len(LEFT) - 9 * again
    assert "removed" not in told
    assert list(map(Path, opened)) == [index] * (2 + again)


def test_nothing_of_the_exported_index_is_held_during_the_compaction(folder: Path, tmp_path: Path) -> None:
    def count() -> int:
        gc.collect()
        return sum(type(one) is ExportedGraph for one in gc.get_objects())

    held = [count()]
    heard = at("compact unpack", lambda: held.append(count()))
    run_export(folder / "graph", ExportOptions("svs", tmp_path / "out"), heard)
    assert held == [held[0]] * 2
