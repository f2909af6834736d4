"""A merge killed with SIGKILL before it publishes leaves all indexes as they were, and the next one completes."""

from __future__ import annotations

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
from indexmill.pipeline.compact.recipe import STAGES
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
# Kills its own process before the n-th page file gets its build id, where a compaction in the scratch directory or the
# merge itself seals its files.
SEAL = """
import os, signal, sys
from indexmill.formats.index import manifest
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.merge.run import run_merge
left, *indexes = sys.argv[1:]
left, stamp = int(left), manifest.stamp_build_id
def counted(*arguments):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    stamp(*arguments)
manifest.stamp_build_id = counted
run_merge(indexes, RunOptions(workers=1))
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


@dataclass(frozen=True)
class Given:
    """Indexes with deletions, the first of them apart, and the undisturbed result of their merge.

    Attributes
    ----------
    indexes : list of Path
    whole : Path
    passed : list of str
        Places that the merge passes.
    before : list of dict
        Files of each index.
    """

    indexes: list[Path]
    whole: Path
    passed: list[str]
    before: list[dict[str, bytes]]

    @staticmethod
    def made(folder: Path, merge: Merge) -> Given:
        indexes = [folder / "at" / "ix"] + [
            folder / f"given-{number}" for number in range(1, len(merge.sizes))
        ]
        for number, (index, n) in enumerate(zip(indexes, merge.sizes, strict=True)):
            indexmill.build(points(n, number), index, **{"workers": 1, "seed": number, **merge.how})
            indexmill.delete(index, np.arange(0, n, 4), by="vector")
        places = Places()
        run_merge(indexes, RunOptions(folder / "whole", workers=1), places)
        return Given(indexes, folder / "whole", places.passed, [data_files(index) for index in indexes])

    def assert_as_before(self, place: object) -> None:
        assert [data_files(index) for index in self.indexes] == self.before, place

    def assert_merged(self) -> None:
        """The first index is the result, the others are as before, and nothing is left beside it."""
        index, *others = self.indexes
        assert data_files(index) == data_files(self.whole)
        assert [data_files(other) for other in others] == self.before[1:]
        assert [path.name for path in index.parent.iterdir()] == ["ix"]
        assert_sound(index)


@pytest.mark.parametrize("name", MERGES)
def test_killed_within_any_stage_and_run_again(tmp_path: Path, name: str) -> None:
    given = Given.made(tmp_path, MERGES[name])
    assert {place.partition(" ")[2] for place in given.passed} >= MERGES[name].stages
    deadly = [place for place in given.passed if place.startswith("advance ") and place != "advance publish"]
    for place in [*deadly, "start publish"]:
        killed = run_forked(MERGE, place, *given.indexes)
        assert killed.returncode == -signal.SIGKILL, (place, killed.stderr)
        given.assert_as_before(place)
    assert run_forked(MERGE, "nowhere", *given.indexes).returncode == 0
    given.assert_merged()


@pytest.mark.parametrize("name", MERGES)
def test_killed_while_files_are_sealed_and_run_again(tmp_path: Path, name: str) -> None:
    """Before any page file gets its build id: some have it then, and others do not."""
    given, kills = Given.made(tmp_path, MERGES[name]), 0
    while (run := run_forked(SEAL, kills + 1, *given.indexes)).returncode == -signal.SIGKILL:
        given.assert_as_before(kills)
        kills += 1
    assert run.returncode == 0, run.stderr
    page_files = [path for path in given.whole.iterdir() if path.suffix == ".imx"]
    assert kills >= len(page_files)
    given.assert_merged()


def test_killed_at_every_point_of_the_compactions_in_scratch_and_run_again(tmp_path: Path) -> None:
    given = Given.made(tmp_path, MERGES["inserted"])
    places = [f"{stage}-{place}" for stage in STAGES[:-1] for place in ("begun", "written", "done")]
    for place in [*places, *(f"{place}:2" for place in places)]:  # of the first index, and of the second
        killed = run_forked(MERGE, "nowhere", *given.indexes, failpoint=place)
        assert killed.returncode == -signal.SIGKILL, (place, killed.stderr)
        given.assert_as_before(place)
    assert run_forked(MERGE, "nowhere", *given.indexes).returncode == 0
    given.assert_merged()
