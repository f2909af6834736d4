"""LSH builds that are killed anywhere and run again end in the bytes of undisturbed ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.indexes.lsh import clusters
from tests.support.processes.kill import Driver, leave_half_files, moments_of

pytestmark = pytest.mark.kill

STAGES = ["ingest", "sample", "solve", "hash", "chain", "emit", "certify"]
TABLES = 3


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(tmp_path_factory.mktemp("kill"), clusters(600, 8))


@pytest.fixture(scope="module")
def undisturbed(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return driver.succeed(tmp_path_factory.mktemp("undisturbed") / "ix", tables=TABLES)


def test_a_build_killed_at_every_stage_ends_in_the_same_bytes(
    driver: Driver, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    failpoints = [*moments_of(STAGES), "publish-copied"]
    assert driver.die_at_each(tmp_path / "ix", 0, failpoints, tables=TABLES) == undisturbed


def test_half_written_files_of_a_killed_build_are_not_taken_for_whole_ones(
    driver: Driver, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "ix"
    for stage in ("hash", "chain"):
        driver.die(out, 0, "task-written", tables=TABLES)
        leave_half_files(tmp_path / "ix.work", stage, ("000000.chunk.99.partial", "000000.part.99.partial"))
    assert driver.succeed(out, tables=TABLES) == undisturbed
