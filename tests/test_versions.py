"""The package, its module and the crates of the reader have one version, which a release's tag names."""

from __future__ import annotations

import tomllib
from pathlib import Path

import indexmill

ROOT = Path(__file__).parent.parent


def test_the_package_and_the_reader_have_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    workspace = tomllib.loads((ROOT / "reader/Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert {project, workspace, indexmill.__version__} == {project}


def test_crates_take_their_version_from_the_workspace() -> None:
    crates = {
        path.parent.name: tomllib.loads(path.read_text())["package"]["version"]
        for path in ROOT.glob("reader/*/Cargo.toml")
    }
    assert crates
    assert [name for name, version in crates.items() if version != {"workspace": True}] == []
