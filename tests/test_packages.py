"""The wheel has every package, and the files that they read."""

from __future__ import annotations

import re
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


#: Words of each licence that parts of the wheel stand under, and the files that have to have them.
VEGA, CRATES = "jobs/report/vega/LICENSE", "reader/LICENSES"
LICENCES = {
    "Apache-2.0": ("Apache License", ["LICENSE"]),
    "BSD-2-Clause": ("Redistributions in binary form must reproduce", [CRATES, VEGA]),
    "BSD-3-Clause": ("used to endorse or promote products", [VEGA]),
    "ISC": ("ISC License", [VEGA]),
    "MIT": ("Permission is hereby granted, free of charge", [CRATES, VEGA]),
    "PDDL-1.0": ("Public Domain Dedication and License 1.0", ["jobs/data/words20k/README.md"]),
    "Unlicense": ("This is free and unencumbered software", [VEGA]),
}


def test_every_licence_of_the_wheel_is_told_in_the_files_of_its_parts() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"].split(" AND ") == list(LICENCES)
    files = ("LICENSE", "jobs/data/words20k/README.md", "jobs/report/vega/LICENSE", "reader/LICENSES")
    assert project["license-files"] == list(files)
    for words, places in LICENCES.values():
        assert [file for file in places if words not in (ROOT / file).read_text()] == []
    readme = (ROOT / "README.md").read_text()
    assert all(f"]({file})" in readme for file in files[1:])


def test_the_licences_of_crates_are_those_of_the_versions_in_the_lock() -> None:
    crates = tomllib.loads((ROOT / "reader/Cargo.lock").read_text())["package"]
    locked = {f"{crate['name']} {crate['version']}" for crate in crates}
    named = re.findall(r"^={80}\n(.+)\n\n", (ROOT / "reader/LICENSES").read_text(), re.MULTILINE)
    assert [name.split()[0] for name in named] == ["generic-array", "memchr", "numpy", "zmij"]
    assert set(named) <= locked


def test_the_licences_of_the_library_name_the_code_that_its_packages_took_over() -> None:
    text = (ROOT / "jobs/report/vega/LICENSE").read_text()
    for holder in (
        "Copyright (C) 2013 Ariya Hidayat", "Copyright (c) 2013, Jason Davies", "Evgeny Poberezkin", "Harry Stevens",
        "Tom Alexander", "Copyright (c) 2011, Jason Davies", "Copyright 2012-2017 Mike Bostock", "Paul Rosenzweig",
        "Copyright (c) 2013-2016, Michael Bostock", "The Apache Software Foundation", "svgtopdf",
    ):  # fmt: skip
        assert holder in text


def test_the_wheel_has_the_library_that_draws_charts_and_its_licences() -> None:
    patterns = setuptools()["package-data"]["indexmill.jobs.report"]
    scripts = sorted((ROOT / "jobs/report/vega").glob("*.js"))
    assert len(scripts) == 3
    names = [*(file.name for file in scripts), "LICENSE"]  # each report has the licences, too
    assert all(any(fnmatch(f"vega/{name}", pattern) for pattern in patterns) for name in names)
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
