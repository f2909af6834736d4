"""IVF builds and joins that are killed anywhere and run again end in the bytes of undisturbed ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.indexes.builds import data_files
from tests.support.indexes.ivf import make_vectors
from tests.support.processes.kill import Driver

pytestmark = pytest.mark.kill

STAGES = ["ingest", "sample", "centroids", "assign", "pack", "lists", "emit", "certify"]
LISTS, BATCH = 6, 250


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    path = tmp_path_factory.mktemp("kill") / "v.npy"
    np.save(path, make_vectors("float32", 700))
    return Driver(path)


@pytest.fixture(scope="module")
def undisturbed(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "ix"
    assert driver.run(out, BATCH, lists=LISTS) == (0, "")
    return out


def test_a_build_killed_at_every_stage_ends_in_the_same_bytes(
    driver: Driver, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "ix"
    for stage in STAGES:
        for moment in ("written", "done"):
            driver.die(out, BATCH, f"{stage}-{moment}", lists=LISTS)
            assert not out.exists()
    driver.die(out, BATCH, "publish-copied", lists=LISTS)
    assert driver.run(out, BATCH, lists=LISTS) == (0, "")
    assert data_files(out) == data_files(undisturbed)
    assert [path.name for path in tmp_path.iterdir()] == ["ix"]


def test_a_join_killed_between_batches_searches_only_what_is_left(
    driver: Driver, undisturbed: Path, tmp_path: Path
) -> None:
    whole, out = tmp_path / "whole.parquet", tmp_path / "r.parquet"
    assert driver.run(whole, join=str(undisturbed)) == (0, "")
    for place, parts in (
        ("task-written:1", 0),
        ("task-done:1", 1),
        ("task-written:2", 2),
        ("task-done:1", 3),
    ):
        driver.die(out, 0, place, join=str(undisturbed))
        assert len(list(tmp_path.glob(".r.parquet.indexmill-join/*.part"))) == parts
        assert not out.exists()
    assert driver.run(out, join=str(undisturbed)) == (0, "")
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.parquet", "whole.parquet"]


def test_a_join_that_runs_out_of_space_goes_on(driver: Driver, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    status, message = driver.run(out, join=str(undisturbed), failpoint="task-written:2=ENOSPC")
    assert (status, "partial results are kept" in message) == (4, True)
    assert len(list(tmp_path.glob(".r.parquet.indexmill-join/*.part"))) == 1
    assert driver.run(out, join=str(undisturbed)) == (0, "")
