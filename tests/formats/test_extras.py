"""The refusal of work for which a package is missing, with the extra that installs it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from tests.support.cli import run

import indexmill
from indexmill.formats.errors import ConfigError
from indexmill.formats.extras import EXTRAS, require
from indexmill.formats.sources.source import open_source

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
#: Names of packages that differ from those they are imported by.
DISTRIBUTIONS = {"prometheus_client": "prometheus-client", "sklearn": "scikit-learn"}


@pytest.fixture(params=EXTRAS)
def missing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(sys.modules, request.param, None)
    return str(request.param)


def test_every_extra_installs_its_package_and_the_package_alone_does_not() -> None:
    for package, name in EXTRAS.items():
        distribution = DISTRIBUTIONS.get(package, package)
        assert any(one.startswith(distribution) for one in PROJECT["optional-dependencies"][name])
        assert not any(one.startswith(distribution) for one in PROJECT["dependencies"])


def test_a_missing_package_is_named_with_its_extra(missing: str) -> None:
    said = (
        f"^here: needs {missing}, which is not installed; run pip install 'indexmill\\[{EXTRAS[missing]}\\]'$"
    )
    with pytest.raises(ConfigError, match=said):
        require(missing, "here")


def test_a_package_that_is_there_is_not_refused_or_imported() -> None:
    before = set(sys.modules)
    for package in EXTRAS:
        require(package, "here")
    assert not {*EXTRAS} & (set(sys.modules) - before)


def test_files_plots_and_estimators_ask_for_their_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in EXTRAS:
        monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "a.hdf5").touch()
    with pytest.raises(ConfigError, match=r"a\.hdf5: needs h5py"):
        open_source(tmp_path / "a.hdf5")
    with pytest.raises(ConfigError, match="NeighborsTransformer: needs sklearn"):
        _ = indexmill.NeighborsTransformer
    np.save(tmp_path / "q.npy", np.ones((2, 4), np.float32))
    plotted = run("compare", "a", "b", "--queries", tmp_path / "q.npy", "--plot", tmp_path / "p.png")
    assert (plotted.exit_code, "--plot: needs matplotlib" in plotted.stderr) == (2, True)
