"""IVF builds and joins that are killed anywhere and run again end in the bytes of undisturbed ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.indexes.builds import data_files
from tests.support.indexes.ivf import make_vectors
from tests.support.processes.kill import Driver, moments_of

pytestmark = pytest.mark.kill

STAGES = ["ingest", "sample", "centroids", "assign", "pack", "lists", "emit", "certify"]
LISTS, BATCH = 6, 250


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(tmp_path_factory.mktemp("kill"), make_vectors("float32", 700))


@pytest.fixture(scope="module")
def undisturbed(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "ix"
    assert driver.run(out, BATCH, lists=LISTS) == (0, "")
    return out


def test_a_build_killed_at_every_stage_ends_in_the_same_bytes(
    driver: Driver, undisturbed: Path, tmp_path: Path
) -> None:
    failpoints = [*moments_of(STAGES, ("written", "done")), "publish-copied"]
    assert driver.die_at_each(tmp_path / "ix", BATCH, failpoints, lists=LISTS) == data_files(undisturbed)


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
