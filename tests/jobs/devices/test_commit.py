"""The commit of a measurement."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from indexmill.jobs.devices.machine import commit


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "code.py").write_text("a = 1\n")
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    return tmp_path


def test_a_checkout_without_changes_is_named_by_its_commit(checkout: Path) -> None:
    assert len(commit(checkout)) == 40


@pytest.mark.parametrize("name", ["code.py", "new.py", "jobs/bench/new.py"])
def test_changes_of_code_are_told(checkout: Path, name: str) -> None:
    (checkout / name).parent.mkdir(parents=True, exist_ok=True)
    (checkout / name).write_text("a = 2\n")
    assert commit(checkout).endswith("+changes")


@pytest.mark.parametrize("name", ["README.md", "docs/benchmarks.md", "jobs/bench/records/2026-01-01-a.json"])
def test_pages_and_records_that_a_benchmark_writes_are_no_changes(checkout: Path, name: str) -> None:
    (checkout / name).parent.mkdir(parents=True, exist_ok=True)
    (checkout / name).write_text("{}\n")
    assert len(commit(checkout)) == 40


def test_a_folder_without_a_checkout_is_a_release(tmp_path: Path) -> None:
    assert commit(tmp_path) == "release"
