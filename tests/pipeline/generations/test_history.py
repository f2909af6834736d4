"""Generations that share files: what is kept, going back, cleaning up, and runs that are killed."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.oracles.files.hostile import patch_manifest
from tests.support.cli import run
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.indexes.deleted import NAMES, Built, N, found_in
from tests.support.processes.forks import run_forked

import indexmill
from indexmill.formats.errors import ConfigError, CorruptFile, TooNew
from indexmill.formats.ivf.index import IvfFiles
from indexmill.pipeline.generations import removal
from indexmill.pipeline.generations.history import history
from indexmill.pipeline.mill.publish import output_lock

DELETE = """
import sys
import indexmill
indexmill.delete(sys.argv[1], sys.argv[2:])
"""


@pytest.fixture
def index(built: Built, tmp_path: Path) -> Path:
    """An index of two deletions, so of three generations."""
    path = built.copy("ivf", tmp_path / "ix")
    indexmill.delete(path, NAMES[:3])
    indexmill.delete(path, NAMES[3:10])
    return path


def told(index: Path) -> list[tuple[int, int, int | None, bool]]:
    found = history(index)[0]
    facts = [one.facts(found) for one in found]
    return [(one["generation"], one["deleted"], one["previous"], one["present"]) for one in facts]


def test_the_history_has_every_generation_in_order(index: Path) -> None:
    assert told(index) == [(1, 0, None, False), (2, 3, 1, False), (3, 10, 2, True)]
    written = [one.written for one in history(index)[0]]
    assert written == sorted(written)
    assert written[0].timestamp() == int((index / "manifest-000001.json").stat().st_mtime)


def test_going_back_is_a_generation_that_can_be_undone(index: Path) -> None:
    gone = set(range(10))
    assert indexmill.rollback(index)["restored"] == 2
    assert told(index)[-1] == (4, 3, 1, True)
    assert indexmill.rollback(index)["restored"] == 1
    assert found_in(index)[0] == set(range(N))
    assert b'"major": 1' in (index / "manifest.json").read_bytes()
    with pytest.raises(ConfigError, match="generation 5 has no earlier one"):
        indexmill.rollback(index)
    assert indexmill.rollback(index, 3)["generation"] == 6
    assert found_in(index)[0] == set(range(N)) - gone
    assert indexmill.delete(index, NAMES[10:12])["generation"] == 7
    assert told(index)[-1] == (7, 12, 6, True)
    assert_sound(index)


def test_what_is_not_kept_is_no_way_back(index: Path) -> None:
    for to in (3, 9):
        with pytest.raises(ConfigError, match=f"generation {to} of .* is not kept; .*present one: 1, 2"):
            indexmill.rollback(index, to)
    indexmill.gc(index)
    with pytest.raises(ConfigError, match=r"generation 2 of .* is not kept; .*: none"):
        indexmill.rollback(index, 2)
    with pytest.raises(ConfigError, match=r"no generation to go back to: 3 is the only one; `gc` removes"):
        indexmill.rollback(index)


def test_a_generation_with_a_missing_file_is_not_gone_back_to(index: Path) -> None:
    before = (index / "manifest.json").read_bytes()
    (index / "deleted-000002.imx").unlink()
    with pytest.raises(CorruptFile, match=r"deleted-000002\.imx: file: .*no such file"):
        indexmill.rollback(index)
    damaged = bytearray((index / "manifest-000001.json").read_bytes())
    damaged[100] ^= 1
    (index / "manifest-000001.json").write_bytes(damaged)
    with pytest.raises(CorruptFile, match=r"manifest-000001\.json: digest"):
        indexmill.rollback(index, 1)
    assert (index / "manifest.json").read_bytes() == before


def test_a_generation_with_damaged_deletions_is_not_gone_back_to(index: Path) -> None:
    before = (index / "manifest.json").read_bytes()
    damaged = bytearray((index / "deleted-000002.imx").read_bytes())
    damaged[-100] ^= 1
    (index / "deleted-000002.imx").write_bytes(damaged)
    with pytest.raises(CorruptFile, match=r"deleted-000002\.imx: SHA-256"):
        indexmill.rollback(index)
    assert (index / "manifest.json").read_bytes() == before
    assert found_in(index)[0] == set(range(10, N))


def test_gc_keeps_the_newest_generations_and_their_files(index: Path) -> None:
    opened = indexmill.open(index)
    indexmill.rollback(index, 1)
    everything = set(os.listdir(index))
    assert indexmill.gc(index, 4)["removed"] == []
    assert set(os.listdir(index)) == everything
    report = indexmill.gc(index, 2)
    assert report["generations"] == [3, 4]
    assert set(report["removed"]) == {"manifest-000001.json", "manifest-000002.json", "deleted-000002.imx"}
    assert indexmill.gc(index, 1)["removed"] == ["manifest-000003.json", "deleted-000003.imx"]
    assert told(index) == [(4, 0, None, True)]
    assert opened.search([[0] * 6], 3, nprobe=5).vector_ids.min() >= 10
    with pytest.raises(ConfigError, match="expected at least 1"):
        indexmill.gc(index, 0)


def test_gc_removes_what_killed_runs_left_and_nothing_else(index: Path) -> None:
    left = [
        ".deleted-000004.imx.0123456789abcdef.tmp",
        ".manifest.json.0123456789abcdef.tmp",
        "deleted-000009.imx",
    ]
    others = [
        "notes.txt",
        ".notes.txt.0123456789abcdef.tmp",
        "deleted-1.imx",
        "manifest-1.json",
        "manifest.json.bak",
    ]
    for name in (*left, *others):
        (index / name).write_bytes(b"?")
    assert sorted(indexmill.gc(index, 9)["removed"]) == sorted(left)
    assert set(others) <= set(os.listdir(index))
    assert_sound(index)


def test_gc_removes_what_killed_runs_left_beside_the_index(index: Path) -> None:
    beside = {part: index.with_name(f".ix.indexmill-{part}") for part in ("new", "old", "scratch", "import")}
    shutil.copytree(index, beside["new"])
    beside["old"].mkdir()
    for part in ("scratch", "import"):
        beside[part].mkdir()
        (beside[part] / "rows").write_bytes(bytes(1000))
    size = sum(path.stat().st_size for path in beside["new"].iterdir()) + 1000
    report = indexmill.gc(index, 9)
    assert set(report["removed"]) == {beside[part].name for part in ("new", "old", "scratch")}
    assert report["bytes"] == size
    assert [part for part, path in beside.items() if path.exists()] == ["import"]
    beside["new"].mkdir()
    (beside["new"] / "mine").touch()
    assert indexmill.gc(index, 9)["removed"] == []
    assert_sound(index)


@pytest.mark.kill
@pytest.mark.parametrize("turn", range(1, 5))
def test_a_gc_that_is_killed_leaves_an_index_that_the_next_one_cleans(index: Path, turn: int) -> None:
    """It removes two manifests, a file of deletions, and what a killed run left."""
    (index / "deleted-000009.imx").write_bytes(b"?")
    code = "import sys, indexmill\nindexmill.gc(sys.argv[1])"
    assert run_forked(code, index, failpoint=f"gc-removing:{turn}").returncode == -signal.SIGKILL
    generations, damaged = history(index)
    assert damaged == []
    assert [one.manifest.generation for one in generations] == [1, 2, 3][min(turn - 1, 2) :]
    assert found_in(index)[0] == set(range(10, N))
    assert_sound(index)
    assert len(indexmill.gc(index)["removed"]) == 5 - turn
    assert told(index) == [(3, 10, 2, True)]
    assert_sound(index)


#: Replaces an index by one of other vectors, where names cannot be exchanged.
REPLACE = """
import sys
import numpy as np
import indexmill
import indexmill.pipeline.mill.publish

indexmill.pipeline.mill.publish.exchange = lambda first, second: False
vectors = np.random.default_rng(1).integers(0, 60, (70, 6)).astype(np.uint8)
indexmill.build(vectors, sys.argv[1], kind="ivf", lists=2, force=True, workers=1)
"""


@pytest.mark.kill
def test_the_next_command_brings_back_an_index_that_stepped_aside(index: Path, tmp_path: Path) -> None:
    before = data_files(index)
    assert run_forked(REPLACE, index, failpoint="publish-aside").returncode == -signal.SIGKILL
    assert not index.exists()
    aside = index.with_name(".ix.indexmill-old")
    commands: list[tuple[str | Path, ...]] = [
        ("inspect", index),
        ("inspect", index, "--history"),
        ("verify", index),
        ("gc", index, "--keep-generations", "9"),
        ("export", index, "--to", "parquet", "--out", tmp_path / "rows"),
        ("rollback", index),
    ]
    for command in commands:
        done = run(*command)
        assert done.exit_code == 0, (command, done.stderr)
        if command[0] != "rollback":
            assert data_files(index) == before, command
            index.rename(aside)
    assert indexmill.delete(index, NAMES[20:22])["generation"] == 5
    index.rename(aside)
    assert found_in(index)[0] == set(range(3, N)) - {20, 21}
    index.rename(aside)
    with output_lock(index), pytest.raises(ConfigError, match=r"another job is writing .*; wait for it"):
        indexmill.open(index)
    assert not index.exists()


@pytest.mark.parametrize("damage", [b"", b"{}", None])
def test_a_damaged_present_manifest_is_named_and_rolled_back(index: Path, damage: bytes | None) -> None:
    present = index / "manifest.json"
    present.write_bytes(present.read_bytes()[:-90] if damage is None else damage)
    done = run("rollback", index)
    assert done.exit_code == 0, done.stderr
    assert str(present) in done.stderr
    assert found_in(index)[0] == set(range(3, N))
    generations, damaged = history(index)
    assert [one.manifest.generation for one in generations] == [1, 2, 4]
    assert ["manifest-000003.json" in message for message in damaged] == [True]
    assert indexmill.gc(index)["generations"] == [4]
    assert_sound(index)


def test_a_rollback_from_a_damaged_manifest_passes_over_damaged_generations(index: Path) -> None:
    (index / "manifest.json").write_bytes(b"")
    (index / "deleted-000002.imx").unlink()
    with pytest.raises(CorruptFile, match=r"deleted-000002"):
        indexmill.rollback(index, 2)
    report = indexmill.rollback(index)
    assert (report["restored"], report["generation"]) == (1, 4)
    assert "manifest.json" in report["damaged"]
    assert "deleted-000002.imx" in report["damaged"]
    assert found_in(index)[0] == set(range(N))


def test_a_damaged_manifest_without_any_earlier_one_is_told(index: Path) -> None:
    indexmill.gc(index)
    (index / "manifest.json").write_bytes(b"{}")
    with pytest.raises(
        CorruptFile, match=r"manifest.json.*; and no earlier generation is sound: none is kept"
    ):
        indexmill.rollback(index)
    assert (index / "manifest.json").read_bytes() == b"{}"


@pytest.mark.kill
@pytest.mark.parametrize(("place", "left"), [("publish-copied", N - 10), ("publish-done", N - 3)])
def test_a_rollback_that_is_killed_leaves_an_index_that_can_be_changed(
    index: Path, place: str, left: int
) -> None:
    code = "import sys, indexmill\nindexmill.rollback(sys.argv[1])"
    assert run_forked(code, index, failpoint=place).returncode == -signal.SIGKILL
    generations, damaged = history(index)
    assert (len(generations), damaged) == (3 + (place == "publish-done"), [])
    assert len(found_in(index)[0]) == left
    assert_sound(index)
    indexmill.delete(index, NAMES[:20])
    indexmill.gc(index)
    assert len(found_in(index)[0]) == N - 20
    assert_sound(index)


@pytest.mark.kill
@pytest.mark.parametrize("place", ["publish-copied", "publish-done"])
def test_killed_between_the_writes_there_is_the_old_generation_or_the_new_one(
    built: Built, tmp_path: Path, place: str
) -> None:
    index = built.copy("ivf", tmp_path / "ix")
    before = (index / "manifest.json").read_bytes()
    assert run_forked(DELETE, index, *NAMES[:4], failpoint=place).returncode == -signal.SIGKILL
    is_new = place == "publish-done"
    assert ((index / "manifest.json").read_bytes() != before) == is_new
    assert found_in(index)[0] == set(range(4 if is_new else 0, N))
    assert told(index)[-1][:2] == ((2, 4) if is_new else (1, 0))
    assert_sound(index)
    # Another run begins where it stands, with other vectors.
    assert indexmill.delete(index, NAMES[2:6])["generation"] == 2 + is_new
    assert found_in(index)[0] == set(range(N)) - set(range(0 if is_new else 2, 6))
    indexmill.gc(index)
    assert_sound(index)
    assert len([name for name in os.listdir(index) if name.startswith("deleted-")]) == 1


def test_another_writer_is_waited_for(index: Path) -> None:
    before = data_files(index)
    with output_lock(index):
        for change in (
            lambda: indexmill.delete(index, NAMES[20:22]),
            lambda: indexmill.rollback(index),
            lambda: indexmill.gc(index),
        ):
            with pytest.raises(
                ConfigError, match=rf"^another job is writing {index}; wait for it and run again$"
            ):
                change()
    assert data_files(index) == before


def test_a_damaged_manifest_that_is_kept_is_named_goes_and_keeps_no_other(index: Path) -> None:
    indexmill.delete(index, NAMES[10:12])
    damaged = index / "manifest-000002.json"
    damaged.write_bytes(damaged.read_bytes()[:-90])
    generations, messages = history(index)
    assert [one.manifest.generation for one in generations] == [1, 3, 4]
    assert ["manifest-000002.json" in message for message in messages] == [True]
    report = indexmill.gc(index, 2)
    assert report["generations"] == [3, 4]
    (index / "manifest-000003.json").write_bytes(b"")
    report = indexmill.gc(index, 9)
    assert (report["generations"], report["removed"]) == ([4], ["manifest-000003.json", "deleted-000003.imx"])
    assert_sound(index)


def test_a_manifest_of_a_newer_program_is_not_removed_as_damaged(index: Path) -> None:
    present = (index / "manifest.json").read_bytes()
    (index / "manifest.json").write_bytes((index / "manifest-000001.json").read_bytes())
    patch_manifest(index, lambda v: v["format"].update(major=9))
    (index / "manifest-000001.json").write_bytes((index / "manifest.json").read_bytes())
    (index / "manifest.json").write_bytes(present)
    with pytest.raises(TooNew, match="manifest-000001"):
        indexmill.gc(index, 9)


def test_manifests_are_gone_for_good_before_their_files(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(removal, "fsync_dir", lambda folder: seen.append(sorted(os.listdir(folder))))
    indexmill.gc(index)
    assert [[name for name in names if name[:3] in ("man", "del")] for names in seen] == [
        ["deleted-000002.imx", "deleted-000003.imx", "manifest.json"],
        ["deleted-000003.imx", "manifest.json"],
    ]


def test_no_generation_that_is_kept_is_overwritten(index: Path) -> None:
    # An earlier manifest was put back by hand: the number after it was given already.
    (index / "manifest-000003.json").write_bytes((index / "manifest.json").read_bytes())
    (index / "manifest.json").write_bytes((index / "manifest-000002.json").read_bytes())
    kept = {name: content for name, content in data_files(index).items() if name != "manifest.json"}
    assert indexmill.delete(index, NAMES[50:51])["generation"] == 4
    assert {name: data_files(index)[name] for name in kept} == kept
    assert indexmill.rollback(index, 3)["generation"] == 5
    assert found_in(index)[0] == set(range(10, N))


def test_there_may_be_a_million_generations(index: Path) -> None:
    patch_manifest(index, lambda v: v.update(generation=999_999))
    assert indexmill.delete(index, NAMES[50:51])["generation"] == 1_000_000
    assert indexmill.delete(index, NAMES[51:52])["generation"] == 1_000_001
    assert (index / "deleted-1000001.imx").is_file()
    assert [facts[0] for facts in told(index)] == [1, 2, 999_999, 1_000_000, 1_000_001]
    assert found_in(index)[0] == set(range(10, N)) - {50, 51}
    assert indexmill.rollback(index)["restored"] == 1_000_000
    assert indexmill.gc(index)["generations"] == [1_000_002]
    assert_sound(index)


def seen_during_deletes(index: Path, read: Callable[[Path], int]) -> list[int]:
    """Return what `read` gives, again and again, while another thread deletes 40 vectors and collects generations."""
    done = threading.Event()

    def change() -> None:
        try:
            for i in range(40):
                indexmill.delete(index, [NAMES[i]])
                indexmill.gc(index)
        finally:
            done.set()

    writer = threading.Thread(target=change)
    writer.start()
    seen = []
    while not done.is_set():
        seen.append(read(index))
    writer.join()
    return seen


@pytest.mark.parametrize(
    "read",
    [
        lambda index: IvfFiles(index).manifest.n_deleted,
        lambda index: history(index)[0][-1].manifest.n_deleted,
        lambda index: N - indexmill.export(index, "parquet", index.parent / "out", force=True)["n_vectors"],
    ],
    ids=["files", "history", "export"],
)
def test_python_reads_while_generations_come_and_go(
    built: Built, tmp_path: Path, read: Callable[[Path], int]
) -> None:
    index = built.copy("ivf", tmp_path / "ix")
    seen = seen_during_deletes(index, read)
    assert seen == sorted(seen)


def test_an_index_opens_while_generations_come_and_go(built: Built, tmp_path: Path) -> None:
    index = built.copy("graph", tmp_path / "ix")
    seen = seen_during_deletes(index, lambda path: indexmill.open(path).n_deleted)
    assert seen == sorted(seen)
    assert indexmill.open(index).n_deleted == 40


def test_a_manifest_that_names_deletions_wrongly_is_refused(index: Path) -> None:
    for change, message in (
        (
            lambda v: v["deleted"].update(file="deleted-3.imx"),
            "'deleted': file: expected 'deleted-' and at least six digits",
        ),
        (
            lambda v: v["deleted"].update(file="deleted-000007.imx"),
            "files: expected one named deleted-000007",
        ),
        (lambda v: v["deleted"].update(vectors=0), "'deleted': vectors: expected 1"),
        (lambda v: v["deleted"].update(previous=3), r"'deleted': previous: expected 1\.\.2, got 3"),
        (lambda v: v["deleted"].pop("previous"), "key 'previous'"),
        (lambda v: v.update(deleted=[]), "key 'deleted'"),
        (lambda v: v["deleted"].update(vectors=N + 1), rf"'deleted': vectors: expected 1\.\.{N}"),
        (lambda v: v["input"].pop("n_vectors"), "key 'n_vectors'"),
    ):
        raw = (index / "manifest.json").read_bytes()
        patch_manifest(index, change)
        with pytest.raises(CorruptFile, match=message):
            history(index)
        (index / "manifest.json").write_bytes(raw)
