"""A manifest whose digest fits, but with values that no build writes, is refused by an error that names the key."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.oracles.files.hostile import patch_manifest
from tests.support.cli import run
from tests.support.indexes.builds import build, clustered
from tests.support.indexes.built import Built
from tests.support.indexes.ivf import build_lists, make_vectors
from tests.support.indexes.lsh import build_lsh, clusters


@pytest.fixture
def indexes(built: Built) -> dict[str, Path]:
    return {
        "graph": built(build, clustered(600, 8, "uint8")),
        "ivf": built(build_lists, make_vectors("uint8")),
        "lsh": built(build_lsh, clusters(600, 8), n_tables=2),
    }


@pytest.mark.parametrize(
    ("kind", "section", "key", "value", "message"),
    [
        ("ivf", "ivf", "batches", [], "expected a non-empty list of int, got []"),
        ("ivf", "ivf", "batches", ["many"], "expected a non-empty list of int, got ['many']"),
        ("ivf", "ivf", "codec", 3, "expected str, got 3"),
        ("ivf", "parameters", "copies", "two", "expected int or null, got 'two'"),
        ("ivf", "certificate", "nprobe", [], "expected a non-empty list of int, got []"),
        ("ivf", "certificate", "recall", [0.5], "expected as many values as 'nprobe', 5, got 1"),
        ("lsh", "lsh", "radii", [], "expected a non-empty list of int or float, got []"),
        ("lsh", "lsh", "longest_chain", [], "expected a non-empty list of int, got []"),
        ("lsh", "lsh", "longest_chain", [1], "expected as many values as 'radii', 6, got 1"),
        ("lsh", "certificate", "reads_mean", None, "expected int or float, got None"),
        ("graph", "graph", "shards", [], "expected a non-empty list of int or null, got []"),
        ("graph", "graph", "mean_fanout", "few", "expected int or float or null, got 'few'"),
    ],
)
def test_values_that_cannot_be_shown_are_refused_by_key(
    kind: str, section: str, key: str, value: Any, message: str, indexes: dict[str, Path], tmp_path: Path
) -> None:
    index = shutil.copytree(indexes[kind], tmp_path / "ix")
    patch_manifest(index, lambda manifest: manifest[section].update({key: value}))
    found = run("inspect", index)
    assert isinstance(found.exception, SystemExit), found.exception
    assert found.exit_code == 6
    where = f"{index / 'manifest.json'}: key '{section}.{key}'"
    advice = "restore the file from a copy or build the index again"
    assert found.stderr == f"error: {where}: {message}; {advice}\n"


def test_a_graph_whose_shards_are_not_told_is_shown(indexes: dict[str, Path], tmp_path: Path) -> None:
    index = shutil.copytree(indexes["graph"], tmp_path / "ix")
    patch_manifest(index, lambda manifest: manifest["graph"].update(shards=None))
    found = run("inspect", index)
    assert found.exit_code == 0
    assert "shards       unknown" in found.stdout
