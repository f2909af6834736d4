"""The wheel has every package, and the files that they read."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from setuptools import find_packages

ROOT = Path(__file__).parent.parent


def setuptools() -> dict[str, Any]:
    """The table of pyproject.toml that says what the wheel has."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    return table


def test_the_wheel_has_the_packages_behind_every_link() -> None:
    found = setuptools()["packages"]["find"]
    packages = set(find_packages(ROOT / found["where"][0], exclude=found["exclude"]))
    for part in ("pipeline", "layout", "builders", "formats", "jobs"):
        folders = [file.parent.relative_to(ROOT) for file in (ROOT / part).rglob("__init__.py")]
        assert len(folders) > 2
        named = {".".join(("indexmill", *folder.parts)) for folder in folders}
        assert named - packages == {name for name in named if name.startswith("indexmill.jobs.bench")}
    assert {"indexmill", "indexmill.reader"} < packages


def test_the_wheel_has_the_words_of_the_demonstration() -> None:
    patterns = setuptools()["package-data"]["indexmill.jobs"]
    assert any(fnmatch("data/words20k/words.parquet", pattern) for pattern in patterns)
    assert (ROOT / "jobs/data/words20k/words.parquet").is_file()


def test_the_wheel_has_the_library_that_draws_charts_and_its_licences() -> None:
    patterns = setuptools()["package-data"]["indexmill.jobs.report"]
    scripts = sorted((ROOT / "jobs/report/vega").glob("*.js"))
    assert len(scripts) == 3
    assert all(any(fnmatch(f"vega/{file.name}", pattern) for pattern in patterns) for file in scripts)
    files = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license-files"]
    assert "jobs/report/vega/LICENSE" in files
    assert all((ROOT / file).is_file() for file in files)


def test_a_source_distribution_leaves_out_what_cargo_compiles() -> None:
    """Setuptools lists every grafted folder, and fails on one that cargo deletes meanwhile."""
    lines = (ROOT / "MANIFEST.in").read_text().splitlines()
    grafted = {line.split()[1] for line in lines if line.startswith("graft")}
    assert grafted
    assert not {"reader", "reader/target"} & grafted
    crates = {f"reader/{file.parent.name}" for file in ROOT.glob("reader/*/Cargo.toml")}
    assert len(crates) > 3
    assert crates <= grafted
