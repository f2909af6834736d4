"""The stage store keeps whole stages only, and one build at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexmill.formats.errors import ConfigError
from indexmill.pipeline.store import StageStore


def test_a_stage_is_made_once(tmp_path: Path) -> None:
    store = StageStore(tmp_path)
    key = store.key("s", 1, {"a": 1}, ["x"])
    calls = []

    def write(directory: Path) -> None:
        calls.append(1)
        (directory / "f").write_text("done")

    assert store.make("s", key, write)[1] is False
    path, reused = store.make("s", key, write)
    assert reused
    assert (path / "f").read_text() == "done"
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
    store = StageStore(tmp_path)

    def fail(directory: Path) -> None:
        (directory / "half").write_text("?")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        store.make("s", "k" * 64, fail)
    path, reused = store.make("s", "k" * 64, lambda d: (d / "whole").write_text("!"))
    assert not reused
    assert [f.name for f in path.iterdir()] == ["whole"]


def test_a_resumable_stage_finds_what_was_left(tmp_path: Path) -> None:
    store = StageStore(tmp_path)

    def fail(directory: Path) -> None:
        (directory / "first").write_text("kept")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        store.make("s", "k" * 64, fail, resume=True)
    path, _ = store.make("s", "k" * 64, lambda d: (d / "second").write_text("new"), resume=True)
    assert sorted(f.name for f in path.iterdir()) == ["first", "second"]


def test_a_second_build_in_one_store_is_refused(tmp_path: Path) -> None:
    store = StageStore(tmp_path)
    with pytest.raises(ConfigError, match="in use by another build"):
        StageStore(tmp_path)
    store.close()
    StageStore(tmp_path).close()
