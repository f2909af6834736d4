"""The benchmark of plans with made-up plans and builds: its sets, errors and table."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, read_bin, write_bin
from indexmill.jobs.bench.plans import __main__ as plans
from indexmill.jobs.bench.plans import updates
from indexmill.jobs.bench.plans.jobs import GRID, Planned, Sets
from indexmill.jobs.bench.programs import plan
from indexmill.jobs.bench.programs.job import Job, build
from indexmill.jobs.jobfile import resolve
from indexmill.pipeline.build import open_input
from indexmill.pipeline.kinds.graph.size import GraphSize

ROWS, QUERIES = 6000, 200


@pytest.fixture
def run(tmp_path: Path) -> Run:
    sets = {}
    for name, dtype, suffix in (("sift1m", np.uint8, "u8bin"), ("embed768", np.float32, "fbin")):
        sets[name] = Dataset(tmp_path / f"set-{name}")
        sets[name].folder.mkdir()
        write_bin(sets[name].folder / f"base.{suffix}", np.ones((ROWS, 4), dtype))
        write_bin(sets[name].folder / f"query.{suffix}", np.ones((QUERIES, 4), dtype))
    return Run("plans", sets, tmp_path, ROWS)


def fake_build(job: Job, folder: Path) -> dict[str, Any]:
    job.index(folder).mkdir()
    return {
        "wall_s": 10.0,
        "peak_bytes": 1000,
        "told_peak_bytes": 990,
        "scratch_bytes": 500,
        "shards": None,
        "stage_s": {"pack": 4.0},
    }


def test_errors_are_those_of_the_plan_beside_the_build(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "peak_memory_bytes": 1100, "peak_scratch_bytes": 490, "seconds": 8, "shards": {"n": 1},
        "stages": {"pack": {"seconds": 3.0}, "emit": {"seconds": 1.0}},
    }  # fmt: skip
    monkeypatch.setattr(plan, "of_job", lambda job: said)
    monkeypatch.setattr(plan, "load_kernels", lambda job, folder: None)
    monkeypatch.setattr(plans, "build", fake_build)
    made = {"wall_s": 10.0, "peak_bytes": 990, "scratch_bytes": 500, "step_s": 9.0}
    monkeypatch.setattr(updates, "prepare", lambda *given, **how: None)
    monkeypatch.setattr(updates, "delete_some", lambda *given: None)
    monkeypatch.setattr(updates, "update", lambda *given: made)
    assert plans.BENCHMARK.run(run) == []
    found = record.load(run.results)
    for part in GRID:
        assert found["parts"][part]["worst"] == pytest.approx(
            {"peak_memory_bytes": 0.1, "peak_scratch_bytes": 0.02, "seconds": 0.2}
        )
        assert found["parts"][part]["rows"][0]["stages"]["pack"] == {"planned": 3, "measured": 4}
        assert found["parts"][part]["rows"][0]["stages"]["emit"]["measured"] is None
    found_updates = found["parts"]["updates"]
    assert found_updates["worst"] == pytest.approx(
        {"peak_memory_bytes": 1 / 9, "peak_scratch_bytes": 0.02, "seconds": 0.2}
    )
    text = plans.BENCHMARK.render(found, "record.json")
    assert text.count("(-20%)") == sum(map(len, GRID.values())) + len(updates.KINDS) * len(updates.STEPS)
    for target in plans.TARGETS:
        assert target.what in text
    assert not list(run.out.glob("*-0")), "indexes are removed"


def test_every_update_is_a_job_of_its_own(run: Run) -> None:
    for kind in updates.KINDS:
        for step in updates.STEPS:
            job = tomllib.loads(updates.write(run.out, kind, step).read_text())
            assert job["out"] == str(run.out / f"{kind}-{step}")
            assert job["out"] not in job["base"]
            assert ("add" in job, isinstance(job["base"], list), "compact" in job) == (
                step == "append", step == "merge", step == "compact"
            )  # fmt: skip


def test_a_job_reads_the_first_vectors_of_its_set(run: Run) -> None:
    sets = Sets(run)
    assert sets.vectors(Planned("sift1m")) == run.sets["sift1m"].base
    assert len(read_bin(sets.vectors(Planned("embed768", 100)))) == 100
    made = read_bin(sets.vectors(Planned("generated")))
    assert made.shape == (ROWS, 128)
    np.testing.assert_array_equal(read_bin(sets.vectors(Planned("generated", 50))), made[:50])


def test_float16_is_written_of_the_first_floats(run: Run) -> None:
    sets = Sets(run)
    halves = sets.vectors(Planned("embed768 as float16", 100))
    assert halves.suffix == ".f16bin"
    assert (read_bin(halves).dtype, read_bin(halves).shape) == (np.float16, (100, 4))
    np.testing.assert_array_equal(read_bin(halves), read_bin(run.sets["embed768"].base)[:100])


@pytest.mark.parametrize("planned", GRID["paths"], ids=str)
def test_a_path_of_the_build_is_a_job_that_can_be_sized(run: Run, planned: Planned) -> None:
    spec = resolve(Sets(run).job(planned, "path").write(run.out), {}, {})
    source = open_input(spec)
    assert (source.n_vectors, source.dim) == (ROWS, 4)
    GraphSize(spec, source)
    has_labels, has_queries = spec.label_column is not None, spec.query_sample is not None
    assert (has_labels, has_queries) == ("labels" in planned.data, "queries" in planned.data)


def test_labels_are_written_beside_the_first_floats(run: Run) -> None:
    rows = np.random.default_rng(1).random((ROWS, 4), np.float32)
    write_bin(run.sets["embed768"].folder / "base.fbin", rows)
    table = pq.read_table(Sets(run).job(Planned("embed768 with labels", 100), "labels").base)
    np.testing.assert_array_equal(
        table["embedding"].combine_chunks().flatten().to_numpy().reshape(100, 4), rows[:100]
    )
    assert len(set(table["label"].to_pylist())) == 10


@pytest.mark.parametrize("planned", GRID["kinds"])
def test_jobs_of_other_kinds_name_no_parameter_of_a_graph(run: Run, planned: Planned) -> None:
    spec = resolve(Sets(run).job(planned, "open").write(run.out), {}, {})
    assert spec.parameters.kind == planned.parameters["kind"]


def test_what_a_job_leaves_open_is_not_in_its_file(run: Run) -> None:
    newcomer = GRID["floats"][-1]
    stated = tomllib.loads(Sets(run).job(newcomer, "open").write(run.out).read_text())["parameters"]
    assert stated == {"metric": "cosine", "seed": stated["seed"]}


def test_an_index_of_hash_tables_is_planned_and_built(run: Run) -> None:
    rows = np.random.default_rng(1).integers(0, 255, (600, 8), np.uint8)
    write_bin(run.sets["sift1m"].folder / "base.u8bin", rows)
    sets, planned = Sets(run), Planned("sift1m", 600, parameters=GRID["kinds"][-1].parameters)
    job = sets.job(planned, "tables")
    said = plan.of_job(job.write(run.out))
    assert plans.planned_shards(said) == build(job, run.out)["shards"] == 1
