"""Space that a build of a hierarchical graph needs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.builds import put_objects, request

from indexmill.formats.errors import BudgetError
from indexmill.jobs.service.request import BuildRequest
from indexmill.pipeline.hnsw.parameters import HnswJob
from indexmill.pipeline.hnsw.run import Place, build_hnsw
from indexmill.pipeline.hnsw.size import check_fits, resolved
from indexmill.pipeline.hnsw.stored import raw_source
from indexmill.pipeline.mill.store import StageStore, stage_of

GB = 1_000_000_000


def job_of(tmp_path: Path, m: int, **changes: object) -> HnswJob:
    structure = {"algorithm_parameters": {"m": m}}
    wanted = request(index_parameters=structure, **changes)
    return BuildRequest.model_validate(wanted).job(f"file://{tmp_path}/{{container}}")


def needed(job: HnswJob, memory: int = 1 << 30) -> tuple[int, dict[str, int]]:
    return resolved(job, job.spec(memory, 2), raw_source(job, None)).needed_scratch()


@pytest.mark.parametrize("m", [2, 16])
def test_the_space_is_that_of_the_files_that_a_build_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, m: int
) -> None:
    job = job_of(tmp_path, m, doc_count=20_000, dimension=8)
    put_objects(tmp_path / "blobs", request(doc_count=20_000, dimension=8))
    left: dict[str, int] = {}
    together: list[int] = []
    finish = StageStore.finish

    def noted(store: StageStore, path: Path) -> None:
        finish(store, path)
        left[stage_of(path)] = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        together.append(store.used_bytes())

    monkeypatch.setattr(StageStore, "finish", noted)
    build_hnsw(job, Place(tmp_path / "work", 1 << 30, 2))
    need, files = needed(job)
    assert "emit" not in left
    for name in ("ingest", "levels", "ids", "file"):
        assert left[name] - 8192 <= files[name] <= 1.2 * left[name], name  # drawn levels: at most
    assert max(together) - 65_536 <= need <= 1.1 * max(together)


def test_the_space_of_a_long_job_is_twice_its_vectors_and_its_graphs(tmp_path: Path) -> None:
    job = job_of(tmp_path, 16, doc_count=10_000_000, dimension=768)
    vectors, graph = 10_000_000 * 768 * 4, 10_000_000 * 4 * 2 * 16
    need, _ = needed(job, 64 << 30)
    assert 2 * (vectors + graph) < need < 2 * (vectors + graph) + 2 * GB


def test_a_disk_too_small_is_told_before_anything_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_000 * GB))
    job = job_of(tmp_path, 256, doc_count=2**31 - 1, dimension=1, data_type="byte")
    monkeypatch.setattr("indexmill.pipeline.hnsw.size.resolved", None)  # it would take seconds
    with pytest.raises(BudgetError, match=r"the build needs .* bytes there, 1,000,000,000,000 are free"):
        check_fits(job, 1 << 30, 2, tmp_path)


def test_a_graph_in_regions_is_planned_without_its_vectors(tmp_path: Path) -> None:
    job = job_of(tmp_path, 16, doc_count=5_000_000, dimension=64)
    whole, cut = (needed(job, memory) for memory in (16 << 30, 2 << 30))
    assert "leaves" in cut[1]
    assert "leaves" not in whole[1]
    assert cut[0] > whole[0]


def test_a_disk_without_room_for_the_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path, 2, doc_count=200_000, dimension=1, data_type="byte", skip_stored_vectors=True)
    need, _ = needed(job)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=need))
    check_fits(job, 1 << 30, 2, tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=need - 1))
    with pytest.raises(BudgetError, match=f"the build needs {need:,} bytes there"):
        check_fits(job, 1 << 30, 2, tmp_path)
    check_fits(job, 1 << 30, 2, tmp_path, held=1)  # of an earlier try
