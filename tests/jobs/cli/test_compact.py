"""`compact` on the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.support.cli import Data, N, build, make_data, run, run_json


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return make_data(tmp_path_factory.mktemp("data"))


def test_the_command_tells_what_went(data: Data, tmp_path: Path) -> None:
    index = build(data, tmp_path / "ix")
    np.save(tmp_path / "ids.npy", np.arange(10))
    run_json("delete", index, "--ids", tmp_path / "ids.npy", "--vector-ids")
    copy = shutil.copytree(index, tmp_path / "copy")
    report = run_json("compact", index, "--out", tmp_path / "out")
    assert report["removed"] == 10
    assert report["manifest"]["input"]["n_vectors"] == N - 10
    printed = run("compact", copy)
    assert printed.exit_code == 0
    assert "10 deleted vectors were removed" in printed.stdout
    assert "repair" in printed.stderr
    assert run("compact", copy, "--out", tmp_path / "out").exit_code == 5
    assert "nothing was written" in run("compact", copy).stdout
    assert run_json("compact", copy) == {"removed": 0, "manifest": None}
    assert "indexmill compact products.index" in run("compact", "--help").stdout
