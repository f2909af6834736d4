"""A merge killed with SIGKILL within any of its stages leaves all indexes as they were, and the next one completes."""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.append import SMALL, points
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.processes.forks import run_forked
from tests.support.progress import Places

import indexmill
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.merge.run import run_merge

pytestmark = pytest.mark.kill

MERGE = """
import sys
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.merge.run import run_merge
from tests.support.progress import Places
place, *indexes = sys.argv[1:]
run_merge(indexes, RunOptions(workers=1), Places(place))
"""
LISTS: dict[str, Any] = {"kind": "ivf", "lists": 5, "batch_vectors": 200}
TABLES: dict[str, Any] = {
    "kind": "lsh", "n_functions": 5, "n_tables": 4, "n_radii": 3, "first_radius": 1.5, "hash_bits": 3
}  # fmt: skip


@dataclass(frozen=True)
class Merge:
    """Indexes of so many vectors, their parameters, and stages that only such a merge has."""

    sizes: tuple[int, ...]
    how: dict[str, Any]
    stages: set[str]


MERGES = {
    "inserted": Merge((300, 200), SMALL, {"compact unpack", "compact repair", "insert", "emit", "certify"}),
    "built": Merge((220, 200, 180), SMALL, {"compact emit", "unpack", "encode", "build", "entries"}),
    "assigned": Merge((300, 200), LISTS, {"assign", "lists", "seal"}),
    "hashed": Merge((300, 200), TABLES, {"tables", "seal"}),
}


@pytest.mark.parametrize("name", MERGES)
def test_killed_within_any_stage_and_run_again(tmp_path: Path, name: str) -> None:
    merge, indexes = MERGES[name], list[Path]()
    for number, n in enumerate(merge.sizes):
        indexes.append(tmp_path / f"given-{number}")
        indexmill.build(points(n, number), indexes[-1], **{"workers": 1, "seed": number, **merge.how})
        indexmill.delete(indexes[-1], np.arange(0, n, 4), by="vector")
    places = Places()
    run_merge(indexes, RunOptions(tmp_path / "whole", workers=1), places)
    assert {place.partition(" ")[2] for place in places.passed} >= merge.stages
    before = [data_files(index) for index in indexes]
    index = shutil.copytree(indexes[0], tmp_path / "at" / "ix")
    given = [index, *indexes[1:]]
    deadly = [place for place in places.passed if place.startswith("advance ") and place != "advance publish"]
    for place in [*deadly, "start publish"]:
        killed = run_forked(MERGE, place, *given)
        assert killed.returncode == -signal.SIGKILL, (place, killed.stderr)
        assert [data_files(one) for one in given] == before, place
    assert run_forked(MERGE, "nowhere", *given).returncode == 0
    assert data_files(index) == data_files(tmp_path / "whole")
    assert [data_files(one) for one in given[1:]] == before[1:]
    assert [path.name for path in index.parent.iterdir()] == ["ix"]
    assert_sound(index)
