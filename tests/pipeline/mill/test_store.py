"""The stage store keeps finished stages only, one build at a time, within its budget; stages are made when wanted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.pagefile.mapped import scratch_array
from indexmill.pipeline.execution.local import LocalExecutor
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.mill.store import StageStore, held


def mill(root: Path, keep: bool = True, scratch: int | None = None) -> Mill:
    return Mill(StageStore(root, scratch), LocalExecutor(1), Silent(), keep)


def stage(
    made: Mill,
    name: str,
    inputs: Sequence[Stage] = (),
    write: Callable[[Path], None] | None = None,
    **options: bool,
) -> Stage:
    key = made.store.key(name, 1, {}, [one.key for one in inputs])
    run = write or (lambda directory: (directory / "f").write_text(name))  # type: ignore[assignment,return-value]
    return Stage(name, key, made.store.path(name, key), inputs, run, **options)


def names(root: Path) -> list[str]:
    return sorted(p.name.split("-")[0] for p in root.iterdir() if p.is_dir())


@pytest.mark.parametrize("keep", [True, False])
def test_a_store_stays_if_it_is_kept_or_its_block_fails(tmp_path: Path, keep: bool) -> None:
    with pytest.raises(ZeroDivisionError), held(StageStore(tmp_path / "store"), keep):
        raise ZeroDivisionError
    assert (tmp_path / "store").is_dir()
    with held(StageStore(tmp_path / "store"), keep):  # which no other holds
        pass
    assert (tmp_path / "store").is_dir() == keep
    with held(StageStore(tmp_path / "store"), keep):
        pass


def test_a_stage_is_made_once(tmp_path: Path) -> None:
    m, calls = mill(tmp_path), []
    one = stage(m, "one", write=lambda directory: calls.append(directory))
    assert m.make(one) == m.make(one) == calls[0]
    assert len(calls) == 1


@pytest.mark.parametrize(
    "other",
    [
        ("t", 1, {"a": 1}, ["x"]),
        ("s", 2, {"a": 1}, ["x"]),
        ("s", 1, {"a": 2}, ["x"]),
        ("s", 1, {"a": 1}, ["y"]),
    ],
)
def test_anything_that_goes_in_changes_the_key(tmp_path: Path, other: tuple) -> None:
    store = StageStore(tmp_path)
    assert store.key("s", 1, {"a": 1}, ["x"]) != store.key(*other)


def test_a_failed_stage_leaves_nothing_that_counts(tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").write_text("?")
        raise RuntimeError("power cut")

    m = mill(tmp_path)
    with pytest.raises(RuntimeError, match="power cut"):
        m.make(stage(m, "s", write=fail))
    path = m.make(stage(m, "s"))
    assert sorted(f.name for f in path.iterdir()) == ["f", "stage.json"]


def test_a_resumable_stage_finds_what_was_left(tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "first").write_text("kept")
        (directory / "second.1.partial").write_text("half")
        raise RuntimeError("power cut")

    m = mill(tmp_path)
    with pytest.raises(RuntimeError, match="power cut"):
        m.make(stage(m, "s", write=fail, resumable=True))
    path = m.make(stage(m, "s", resumable=True))
    assert sorted(f.name for f in path.iterdir()) == ["f", "first", "stage.json"]


def test_a_finished_stage_with_a_file_of_another_size_is_made_again(tmp_path: Path) -> None:
    m = mill(tmp_path)
    path = m.make(stage(m, "s"))
    (path / "f").write_text("cut")
    m.make(stage(m, "s"))
    (path / "f").write_text("")
    assert (m.make(stage(m, "s")) / "f").read_text() == "s"


def test_inputs_are_made_only_for_what_is_missing(tmp_path: Path) -> None:
    m, made = mill(tmp_path), list[Path]()
    m.make(stage(m, "last", [stage(m, "first")]))
    first = stage(m, "first", write=made.append)
    m.store.drop(first.path)
    m.make(stage(m, "last", [first], made.append))
    assert made == []
    assert names(tmp_path) == ["last"]


def test_a_stage_goes_when_its_last_consumer_is_finished(tmp_path: Path) -> None:
    m = mill(tmp_path, keep=False)
    first = stage(m, "first")
    second, third = stage(m, "second", [first]), stage(m, "third", [first])
    m.make(second)
    assert names(tmp_path) == ["first", "second"]
    m.make(third)
    assert names(tmp_path) == ["second", "third"]


def test_kept_stages_stay_but_temporary_ones_go(tmp_path: Path) -> None:
    m = mill(tmp_path, keep=True)
    chunks = stage(m, "chunks", [stage(m, "first")], temporary=True)
    m.make(stage(m, "last", [chunks]))
    assert names(tmp_path) == ["first", "last"]


def test_a_pinned_stage_stays(tmp_path: Path) -> None:
    m = mill(tmp_path, keep=False)
    m.make(stage(m, "last", [stage(m, "emit", pinned=True)]))
    assert names(tmp_path) == ["emit", "last"]


def test_a_store_that_outgrows_its_budget_stops_the_build(tmp_path: Path) -> None:
    m = mill(tmp_path, scratch=100)
    with pytest.raises(BudgetError, match=r"101 bytes, more than the 100 allowed; raise --scratch"):
        m.make(stage(m, "s", write=lambda directory: (directory / "f").write_text("x" * 101)))  # type: ignore[arg-type,return-value]
    assert m.store.peak_bytes == 101


def test_a_second_build_in_one_store_is_refused(tmp_path: Path) -> None:
    store = StageStore(tmp_path)
    with pytest.raises(ConfigError, match="in use by another build"):
        StageStore(tmp_path)
    store.close()
    StageStore(tmp_path).close()


def test_stages_of_other_parameters_go(tmp_path: Path) -> None:
    m = mill(tmp_path, keep=False)
    for name in ("old", "ours"):
        m.make(stage(m, name))
    m.store.drop_others({stage(m, "ours").path})
    assert names(tmp_path) == ["ours"]


def test_a_stage_whose_reader_was_dropped_in_turn_goes_too(tmp_path: Path) -> None:
    m = mill(tmp_path, keep=False)
    first = stage(m, "first")
    parts = stage(m, "parts", [first], temporary=True)
    whole = stage(m, "whole", [parts, first])
    m.make(stage(m, "last", [whole]))
    assert names(tmp_path) == ["last"]
    again = mill_on(m)
    first = stage(again, "first")
    parts = stage(again, "parts", [first], temporary=True)
    again.make(first)  # left by a killed run, after `parts` had gone
    last = stage(again, "last", [stage(again, "whole", [parts, first])])
    again.make(last)
    again.make(stage(again, "later", [last, first]))
    assert names(tmp_path) == ["later"]


def mill_on(m: Mill) -> Mill:
    return Mill(m.store, m.executor, m.progress, m.keep)


def test_a_task_that_runs_out_of_memory_is_run_again_alone() -> None:
    running, beside, failed = set(), [], []

    def task(i: int) -> int:
        running.add(i)
        if i == 1 and not failed:
            failed.append(i)
            running.remove(i)
            raise MemoryError
        if i == 1:
            beside.append(len(running) - 1)
        time.sleep(0.02)
        running.remove(i)
        return i

    assert list(LocalExecutor(3).map(task, [(i,) for i in range(6)])) == list(range(6))
    assert beside == [0]

    def never(i: int) -> int:
        raise MemoryError(f"{i} bytes")

    with pytest.raises(BudgetError, match=r"never: the machine has no memory left .* lower --memory"):
        list(LocalExecutor(2).map(never, [(1,), (2,)]))


@pytest.mark.parametrize("at_once", [1, 2])
def test_no_more_tasks_run_beside_each_other_than_fit(at_once: int) -> None:
    running: set[int] = set()
    beside = []

    def task(i: int) -> int:
        running.add(i)
        beside.append(len(running))
        time.sleep(0.01)
        running.remove(i)
        return i

    assert list(LocalExecutor(4).map(task, [(i,) for i in range(8)], at_once=at_once)) == list(range(8))
    assert max(beside) == at_once


def test_what_a_killed_task_had_for_itself_goes_when_its_stage_is_resumed(tmp_path: Path) -> None:
    store = StageStore(tmp_path)
    path = store.path("s", "0" * 64)
    store.begin(path, resume=True)
    with scratch_array(path, np.uint32, (10,)):
        (scratch,) = path.iterdir()
        (tmp_path / "kept").write_bytes(scratch.read_bytes())
    (tmp_path / "kept").rename(scratch)  # as the end of a process leaves it
    (path / "000001.npy.77.partial").touch()
    (path / f".000001.imx.77.partial.{'0' * 16}.tmp").touch()
    (path / "000000.npy").touch()
    store.begin(path, resume=True)
    assert store.files(path) == {"000000.npy"}
