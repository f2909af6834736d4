"""LSH builds that are killed anywhere and run again end in the bytes of undisturbed ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.indexes.builds import data_files
from tests.support.indexes.lsh import clusters
from tests.support.processes.kill import Driver

pytestmark = pytest.mark.kill

STAGES = ["ingest", "sample", "solve", "hash", "chain", "emit", "certify"]
TABLES = 3


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    path = tmp_path_factory.mktemp("kill") / "v.npy"
    np.save(path, clusters(600, 8))
    return Driver(path)


@pytest.fixture(scope="module")
def undisturbed(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("undisturbed") / "ix"
    assert driver.run(out, tables=TABLES) == (0, "")
    return data_files(out)


def test_a_build_killed_at_every_stage_ends_in_the_same_bytes(
    driver: Driver, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "ix"
    for stage in STAGES:
        for moment in ("begun", "written", "done"):
            driver.die(out, 0, f"{stage}-{moment}", tables=TABLES)
            assert not out.exists()
    driver.die(out, 0, "publish-copied", tables=TABLES)
    assert driver.run(out, tables=TABLES) == (0, "")
    assert data_files(out) == undisturbed
    assert [path.name for path in tmp_path.iterdir()] == ["ix"]


def test_half_written_files_of_a_killed_build_are_not_taken_for_whole_ones(
    driver: Driver, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "ix"
    for stage in ("hash", "chain"):
        driver.die(out, 0, "task-written", tables=TABLES)
        for directory in (tmp_path / "ix.work").glob(f"{stage}-*"):
            for name in ("000000.chunk.99.partial", "000000.part.99.partial"):
                (directory / name).write_bytes(b"half")
    assert driver.run(out, tables=TABLES) == (0, "")
    assert data_files(out) == undisturbed
