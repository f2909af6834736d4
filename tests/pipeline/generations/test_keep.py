"""Generations that runs keep which write an index anew: as many as asked for, by the rule of `gc`."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from tests.oracles.files.hostile import patch_manifest
from tests.support.cli import run, run_json
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.indexes.deleted import DIM, KINDS, NAMES, VECTORS, Built, N, found_in
from tests.support.indexes.generations import folders, numbers
from tests.support.processes.forks import run_forked

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, TooNew
from indexmill.formats.index.manifest import read_manifest
from indexmill.jobs.updatefile import given_to
from indexmill.pipeline.execution.failpoint import arm
from indexmill.pipeline.generations.history import history, own_bytes
from indexmill.pipeline.update.run import UpdateResult, run_update
from indexmill.pipeline.update.spec import UpdateSpec

GOLDEN = Path(__file__).parents[2] / "golden"
#: What update jobs of seven nights do; each makes one generation, which after "delete" shares files with that before.
NIGHTS = (
    ("add", "delete", "compact"),
    ("add",),
    ("delete",),
    ("delete", "add"),
    ("compact",),
    ("delete",),
    ("add", "delete", "compact"),
)
#: Appends two vectors, and keeps so many generations.
APPEND = """
import sys
import numpy as np
import indexmill
indexmill.append(
    sys.argv[1], np.full((2, 6), 7, np.uint8), ids=["x", "y"], workers=1, keep_generations=int(sys.argv[2])
)
"""


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm("")


@pytest.fixture
def index(built: Built, tmp_path: Path) -> Path:
    """Lists with a deletion (generation 2), and then an append (3): the first two have a folder."""
    path = built.copy("ivf", tmp_path / "ix")
    indexmill.delete(path, NAMES[:3])
    append(path, 0)
    return path


def rows(seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 60, (5, DIM)).astype(np.uint8)


def names(seed: int) -> list[str]:
    return [f"{seed}-{i}" for i in range(5)]


def append(index: Path, seed: int, **how: Any) -> None:
    indexmill.append(index, rows(seed), ids=names(seed), workers=1, **how)


def tree(index: Path) -> dict[str, bytes]:
    """All files of an index and of its folders, except those that tell of times."""
    paths = [path for path in index.rglob("*") if path.is_file() and path.name != "run.json"]
    return {str(path.relative_to(index)): path.read_bytes() for path in paths}


def disk_bytes(folder: Path, pattern: str = "*") -> int:
    """Bytes of all files in a folder, each counted once whatever names it has."""
    found = [path.stat() for path in folder.rglob(pattern) if path.is_file()]
    return sum({(status.st_dev, status.st_ino): status.st_size for status in found}.values())


def job(folder: Path, night: int, steps: tuple[str, ...], **more: Any) -> UpdateResult:
    """Run the update job of a night on the index ``ix`` in a folder."""
    keys: dict[str, Any] = {"base": str(folder / "ix"), "workers": 1, "compact": "compact" in steps, **more}
    if "add" in steps:
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows(night).ravel()), DIM)
        pq.write_table(pa.table({"id": names(night), "vector": vectors}), folder / f"add-{night}.parquet")
        keys |= {"add": str(folder / f"add-{night}.parquet"), "id_column": "id"}
    if "delete" in steps:
        gone = folder / f"gone-{night}.txt"
        gone.write_text("\n".join(NAMES[3 * night : 3 * night + 3]))
        keys["delete"] = str(gone)
    spec = UpdateSpec.model_validate(keys)
    return run_update(spec, given_to(spec))


def assert_can_go_back(index: Path, wanted: dict[int, NDArray[np.int64]]) -> None:
    """Make each generation the present one, and search in it."""
    for number, found in wanted.items():
        assert indexmill.rollback(index, number)["restored"] == number
        np.testing.assert_array_equal(found_in(index)[1], found)
        assert_sound(index)


@pytest.mark.parametrize("kind", ["graph", "ivf", "lsh"])
def test_each_of_seven_nights_of_jobs_can_be_gone_back_to(built: Built, tmp_path: Path, kind: str) -> None:
    index = built.copy(kind, tmp_path / "ix")
    wanted = {}
    for night, steps in enumerate(NIGHTS):
        job(tmp_path, night, steps, keep_generations=7)
        wanted[numbers(index)[-1]] = found_in(index)[1]
    nights = list(wanted)
    assert nights == numbers(index)
    assert folders(index) == [f"{nights[i]:06}" for i in (0, 2, 3, 5)]
    fewer = shutil.copytree(index, tmp_path / "fewer")
    assert_can_go_back(index, wanted)
    assert indexmill.gc(fewer, 3)["generations"] == nights[-3:]
    assert folders(fewer) == [f"{nights[5]:06}"]
    assert_can_go_back(fewer, {number: wanted[number] for number in nights[-3:]})


@pytest.mark.parametrize("kind", ["graph", "ivf", "lsh"])
def test_each_of_seven_nights_of_three_commands_can_be_gone_back_to(
    built: Built, tmp_path: Path, kind: str
) -> None:
    index = built.copy(kind, tmp_path / "ix")
    wanted = {}
    for night in range(7):
        append(index, night, keep_generations=21)
        indexmill.delete(index, NAMES[3 * night : 3 * night + 3])
        indexmill.compact(index, workers=1, keep_generations=21)
        wanted[numbers(index)[-1]] = found_in(index)[1]
    assert numbers(index) == list(range(2, 23))
    assert_can_go_back(index, wanted)
    found = history(index)[0]
    assert [one.manifest.generation for one in found] == list(range(2, 30))
    sizes, before = own_bytes(found), (disk_bytes(index), disk_bytes(index, "*.imx"))
    assert sum(sizes) == before[1]
    report = indexmill.gc(index, 3)
    after = disk_bytes(index), disk_bytes(index, "*.imx")
    assert report["generations"] == [27, 28, 29]
    assert report["bytes"] == before[0] - after[0]
    assert sum(sizes[:-3]) == before[1] - after[1] > 0
    assert_can_go_back(index, {27: wanted[16], 28: wanted[19], 29: wanted[22]})


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["append", "compact", "merge"]), st.just(0)),
        st.tuples(st.sampled_from(["delete", "rollback", "layout"]), st.integers(0, 100)),
    ),
    min_size=2,
    max_size=7,
)


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of each kind that is merged with others."""
    path = tmp_path_factory.mktemp("merged")
    for kind, parameters in KINDS.items():
        ids = [f"merged-{i}" for i in range(N)]
        indexmill.build(VECTORS[::-1] + 1, path / kind, ids=ids, workers=1, **parameters)
    return path


@settings(max_examples=25, deadline=None)
@given(kind=st.sampled_from(sorted(KINDS)), changes=CHANGES, keep=st.integers(1, 5))
@example(
    kind="graph", changes=[("layout", 0), ("merge", 0), ("delete", 3), ("layout", 1), ("rollback", 1)], keep=3
)
def test_a_run_keeps_what_gc_would_leave(
    built: Built,
    merged: Path,
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    changes: list[tuple[str, int]],
    keep: int,
) -> None:
    folder = tmp_path_factory.mktemp("rule")
    one, other = (built.copy(kind, folder / name) for name in ("one", "other"))
    done = set[str]()
    for seed, (change, choice) in enumerate(changes):
        if (change == "layout" and kind != "graph") or (change == "merge" and change in done):
            continue
        if change == "layout" and read_manifest(one).deleted is not None:
            continue
        done.add(change)
        before = numbers(other)
        for index, kept in ((one, keep), (other, 100)):
            if change == "append":
                append(index, seed, keep_generations=kept)
            elif change == "compact":
                indexmill.compact(index, workers=1, keep_generations=kept)
            elif change == "merge":
                indexmill.merge(index, merged / kind, workers=1, keep_generations=kept)
            elif change == "layout":
                order = ("random", "breadth-first")[choice % 2]
                indexmill.lay_out(index, order=order, workers=1, keep_generations=kept)
            elif change == "delete":
                indexmill.delete(index, NAMES[choice : choice + 9], missing="ignore")
            elif len(before) > 1:
                indexmill.rollback(index, before[choice % (len(before) - 1)])
        if change not in ("delete", "rollback"):
            indexmill.gc(other, keep)
        assert tree(one) == tree(other)
    assert_sound(one)
    shutil.rmtree(folder)


def test_one_generation_is_that_of_the_run(index: Path) -> None:
    append(index, 1, keep_generations=1)
    assert (numbers(index), folders(index)) == ([4], [])
    assert not (index / "generations").exists()


def test_generations_that_share_files_count_one_by_one(index: Path) -> None:
    append(index, 1, keep_generations=3)
    assert (numbers(index), folders(index)) == ([2, 3, 4], ["000002", "000003"])
    assert not (index / "generations" / "000002" / "manifest-000001.json").exists()
    indexmill.delete(index, NAMES[5:7])
    indexmill.delete(index, NAMES[7:9])
    assert numbers(index) == [2, 3, 4, 5, 6]
    append(index, 2, keep_generations=3)
    assert (numbers(index), folders(index)) == ([5, 6, 7], ["000006"])


def test_by_default_a_run_keeps_no_folder_that_was_there(index: Path) -> None:
    append(index, 1, keep_generations=9)
    assert (numbers(index), folders(index)) == ([1, 2, 3, 4], ["000002", "000003"])
    append(index, 2)
    assert (numbers(index), folders(index)) == ([4, 5], ["000004"])


def test_files_of_all_generations_are_second_names(index: Path) -> None:
    before = {path.stat().st_ino for path in index.rglob("*.imx")}
    append(index, 1, keep_generations=9)
    kept = {path.stat().st_ino for path in (index / "generations").rglob("*.imx")}
    assert kept == before


@pytest.mark.kill
@pytest.mark.parametrize(
    ("place", "is_new"),
    [
        ("generation-linked", False),
        ("generation-linked:2", False),
        ("publish-copied", False),
        ("publish-sealed", False),
        ("publish-aside", True),
        ("publish-done", True),
    ],
)
def test_a_run_that_is_killed_loses_no_generation(index: Path, place: str, is_new: bool) -> None:
    before = tree(index)
    assert run_forked(APPEND, index, 9, failpoint=place).returncode == -signal.SIGKILL
    if is_new:
        assert (numbers(index), folders(index)) == ([1, 2, 3, 4], ["000002", "000003"])
    else:
        assert tree(index) == before
    assert_sound(index)
    append(index, 1, keep_generations=9)
    assert numbers(index) == [1, 2, 3, 4, *([5] if is_new else [])]
    assert [path.name for path in index.parent.iterdir()] == ["ix"]
    indexmill.rollback(index, 1)
    assert found_in(index)[0] == set(range(N))
    assert_sound(index)


@pytest.mark.kill
def test_gc_tells_what_it_frees_of_a_killed_run(index: Path) -> None:
    """The directory that the run replaced has files under several names."""
    append(index, 1, keep_generations=9)
    assert run_forked(APPEND, index, 1, failpoint="publish-aside").returncode == -signal.SIGKILL
    before = disk_bytes(index.parent)
    report = indexmill.gc(index)
    assert report["removed"] == [".ix.indexmill-new", ".ix.indexmill-scratch"]
    assert report["bytes"] == before - disk_bytes(index.parent)


def test_a_disk_that_fills_while_links_are_made_leaves_the_index(index: Path) -> None:
    before = tree(index)
    arm("generation-linked:2=ENOSPC")
    with pytest.raises(BudgetError, match="No space left on device; the index is as it was"):
        append(index, 1, keep_generations=9)
    arm("")
    assert tree(index) == before
    assert [path.name for path in index.parent.iterdir()] == ["ix"]


def refuse_links(monkeypatch: pytest.MonkeyPatch, to: str) -> None:
    """Refuse every hard link to a path with `to` in it."""
    link = os.link

    def refuse(source: Any, target: Any, **how: Any) -> None:
        if to in str(target):
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK), source, None, target)
        link(source, target, **how)

    monkeypatch.setattr(os, "link", refuse)


def test_where_links_are_refused_none_is_kept_by_default(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch, "")
    append(index, 1)
    assert (numbers(index), folders(index)) == ([4], [])
    assert not (index / "generations").exists()
    assert_sound(index)


@pytest.mark.parametrize(
    ("refused", "told"),
    [("generations/000002", r".*\.imx"), ("", r".*/ix/manifest\.json")],
    ids=["some", "all, before the work"],
)
def test_where_links_are_refused_none_can_be_asked_for(
    index: Path, refused: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(index)
    refuse_links(monkeypatch, refused)
    with pytest.raises(ConfigError, match=rf"^keep_generations: {told} can have no second name \(Too many"):
        append(index, 1, keep_generations=9)
    assert tree(index) == before
    assert [path.name for path in index.parent.iterdir()] == ["ix"]
    append(index, 1, keep_generations=1)
    assert (numbers(index), folders(index)) == ([4], [])
    assert_sound(index)


def test_a_job_that_only_deletes_needs_no_links(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch, "")
    (tmp_path / "gone.txt").write_text(NAMES[7])
    spec = UpdateSpec.model_validate(
        {"base": str(index), "delete": str(tmp_path / "gone.txt"), "workers": 1, "keep_generations": 7}
    )
    assert [step["step"] for step in run_update(spec, given_to(spec)).steps] == ["delete"]
    assert_sound(index)


def test_gc_removes_the_link_of_a_run_that_was_killed_while_it_tried(index: Path) -> None:
    probe = index.with_name(".ix.indexmill-link")
    os.link(index / "manifest.json", probe)
    indexmill.gc(index, 9)
    assert not probe.exists()
    assert_sound(index)


@pytest.mark.parametrize("kind", ["graph", "ivf", "lsh"])
def test_a_run_that_changes_nothing_keeps_as_many_as_it_is_told(
    built: Built, tmp_path: Path, kind: str
) -> None:
    index = built.copy(kind, tmp_path / "ix")
    append(index, 0, keep_generations=9)
    indexmill.delete(index, NAMES[:3])
    indexmill.compact(index, workers=1, keep_generations=9)
    files = data_files(index)
    indexmill.compact(index, workers=1)
    indexmill.compact(index, workers=1, out=tmp_path / "other")
    assert numbers(index) == [1, 2, 3, 4]
    with pytest.raises(ConfigError, match="expected at least 1"):
        indexmill.compact(index, workers=1, keep_generations=0)
    fewer = shutil.copytree(index, tmp_path / "fewer")
    indexmill.gc(fewer, 3)
    indexmill.compact(index, workers=1, keep_generations=3)
    assert (numbers(index), tree(index)) == ([2, 3, 4], tree(fewer))
    if kind == "graph":
        order = read_manifest(index, ("graph",)).layout["order"]
        run_json("layout", index, "--order", order, "--keep-generations", 2)
    else:
        indexmill.upgrade(index, keep_generations=2)
    assert numbers(index) == [3, 4]
    indexmill.compact(index, workers=1, keep_generations=1)
    assert (numbers(index), folders(index), data_files(index)) == ([4], [], files)
    assert_sound(index)


def test_a_damaged_generation_is_not_counted_and_goes(index: Path) -> None:
    (index / "generations" / "000002" / "manifest.json").write_bytes(b"")
    append(index, 1, keep_generations=3)
    assert (numbers(index), folders(index)) == ([1, 3, 4], ["000002", "000003"])
    indexmill.rollback(index, 1)
    assert found_in(index)[0] == set(range(N))
    assert_sound(index)


def test_a_generation_of_a_newer_program_is_told_before_the_work(index: Path) -> None:
    patch_manifest(index / "generations" / "000002", lambda v: v["format"].update(major=9))
    before = tree(index)
    with pytest.raises(TooNew, match="000002"):
        append(index, 1, keep_generations=3)
    assert tree(index) == before
    assert [path.name for path in index.parent.iterdir()] == ["ix"]
    append(index, 1)
    assert folders(index) == ["000003"]


def test_an_upgrade_keeps_what_it_is_told(tmp_path: Path) -> None:
    for keep, left in ((None, [1, 2, 3]), (2, [2, 3]), (1, [3])):
        index = shutil.copytree(GOLDEN / "v1_1", tmp_path / f"ix-{keep}")
        indexmill.delete(index, [0], by="vector")
        assert indexmill.upgrade(index, keep_generations=keep)["generation"] == 3
        assert numbers(index) == left
    with pytest.raises(ConfigError, match=r"^keep_generations: expected at least 1"):
        indexmill.upgrade(index, keep_generations=0)


def test_no_generation_of_another_index_is_kept(index: Path, built: Built, tmp_path: Path) -> None:
    other = built.copy("ivf", tmp_path / "other")
    before = tree(index)
    more = tmp_path / "more.npy"
    np.save(more, rows(4))
    with pytest.raises(
        ConfigError, match=rf"^keep_generations: {index} is replaced by an index that was not"
    ):
        append(other, 4, out=index, force=True, keep_generations=3)
    done = run("append", other, more, "--out", index, "--force", "--keep-generations", 3)
    assert (done.exit_code, f"--keep-generations: {index} is replaced" in done.stderr) == (2, True)
    assert tree(index) == before
    append(other, 4, out=tmp_path / "new", keep_generations=3)
    assert numbers(tmp_path / "new") == [2]
    append(other, 4, out=other, keep_generations=1)
    assert numbers(other) == [2]


def test_every_command_that_writes_an_index_anew_keeps_as_many_as_it_is_told(
    built: Built, tmp_path: Path
) -> None:
    index, other = (built.copy("graph", tmp_path / name) for name in ("ix", "other"))
    new = pa.FixedSizeListArray.from_arrays(pa.array(rows(1).ravel()), DIM)
    pq.write_table(pa.table({"id": names(1), "vector": new}), tmp_path / "new.parquet")
    (tmp_path / "gone.txt").write_text(NAMES[0])
    indexmill.delete(other, NAMES)
    append(other, 2)  # generation 3
    keep = ("--workers", 1, "--keep-generations")
    more = ("append", index, tmp_path / "new.parquet", "--id-column", "id", *keep)
    commands: list[tuple[tuple[Any, ...], list[int]]] = [
        ((*more, 9), [1, 2]),
        (("merge", index, other, "--force", *keep, 9), [1, 2, 4]),
        (("layout", index, "--order", "random", *keep, 9), [1, 2, 4, 5]),
        (("delete", index, "--ids", tmp_path / "gone.txt"), [1, 2, 4, 5, 6]),
        (("compact", index, *keep, 3), [5, 6, 7]),
    ]
    for command, left in commands:
        done = run(*command)
        assert done.exit_code == 0, (command, done.stderr)
        assert numbers(index) == left, command
    assert run(*more, 0).exit_code == 2
    old = shutil.copytree(GOLDEN / "v1_1", tmp_path / "old")
    assert run_json("upgrade", old, "--keep-generations", 1)["generation"] == 2
    assert numbers(old) == [2]


def test_a_file_of_another_engine_has_no_generations(tmp_path: Path) -> None:
    (tmp_path / "hnsw.faiss").write_bytes(b"?")
    done = run("layout", tmp_path / "hnsw.faiss", "--out", tmp_path / "out", "--keep-generations", 2)
    assert done.exit_code == 2
    assert "--keep-generations: for an index of indexmill" in done.stderr


def test_a_job_is_the_same_whatever_it_keeps(built: Built, tmp_path: Path) -> None:
    built.copy("ivf", tmp_path / "ix")
    assert not job(tmp_path, 0, ("delete",), compact=True, keep_generations=3).done_before
    assert not job(tmp_path, 1, ("add",), keep_generations=3).done_before
    spec = {"base": str(tmp_path / "ix"), "add": str(tmp_path / "add-1.parquet"), "id_column": "id"}
    again = UpdateSpec.model_validate({**spec, "workers": 1, "keep_generations": 5})
    assert run_update(again, given_to(again)).done_before
    assert numbers(tmp_path / "ix") == [1, 3, 4]  # the second was a step of the first job
    fewer = UpdateSpec.model_validate({**spec, "workers": 1, "keep_generations": 2})
    assert run_update(fewer, given_to(fewer)).done_before
    assert numbers(tmp_path / "ix") == [3, 4]
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        UpdateSpec.model_validate({**spec, "keep_generations": 0})


def test_a_job_that_changes_nothing_keeps_as_many_as_it_is_told(index: Path) -> None:
    indexmill.compact(index, workers=1, keep_generations=9)
    spec = UpdateSpec.model_validate(
        {"base": str(index), "compact": True, "workers": 1, "keep_generations": 2}
    )
    assert run_update(spec, given_to(spec)).steps == []
    assert numbers(index) == [3, 4]


def test_a_job_file_says_how_many_are_kept(index: Path, tmp_path: Path) -> None:
    new = pa.FixedSizeListArray.from_arrays(pa.array(rows(1).ravel()), DIM)
    pq.write_table(pa.table({"id": names(1), "vector": new}), tmp_path / "new.parquet")
    path = tmp_path / "night.toml"
    path.write_text('base = "ix"\nadd = "new.parquet"\nid_column = "id"\nworkers = 1\nkeep_generations = 2\n')
    run_json("build", path)
    assert (numbers(index), folders(index)) == ([3, 4], ["000003"])


def test_the_history_tells_the_space_that_is_freed(index: Path) -> None:
    append(index, 1, keep_generations=9)
    told = run_json("inspect", index, "--history")["generations"]
    assert sum(one["bytes"] for one in told) == disk_bytes(index, "*.imx")
    assert told[-1]["bytes"] == sum(path.stat().st_size for path in index.glob("*.imx"))
    assert told[0]["bytes"] == 0  # the second has its files, too
    before = disk_bytes(index, "*.imx")
    indexmill.gc(index, 2)
    assert before - disk_bytes(index, "*.imx") == told[0]["bytes"] + told[1]["bytes"] > 0
    shown = run("inspect", index, "--history").stdout
    assert "space" in shown


def test_a_reader_of_a_generation_that_a_run_drops_goes_on(index: Path) -> None:
    opened: Any = indexmill.open(index)
    wanted = opened.search(rows(9), 5, nprobe=5).vector_ids
    before = data_files(index)
    append(index, 1, keep_generations=1)
    assert data_files(index) != before
    np.testing.assert_array_equal(opened.search(rows(9), 5, nprobe=5).vector_ids, wanted)
