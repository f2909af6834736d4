"""`plan` of update jobs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.support.cli import SMALL, Data, N, build, make_data, run, run_json

from indexmill.pipeline.generations.run import GenerationRun, RunOptions
from indexmill.pipeline.mill.status import STATUS_NAME

#: Options of small builds, by kind.
KINDS: dict[str, list[object]] = {
    "graph": [*SMALL, "--builder", "vamana"],
    "ivf": ["--kind", "ivf", "--lists", "8"],
    "lsh": ["--kind", "lsh", "--n-tables", "4", "-m", "4"],
}
#: Stages of an append and a compaction, by kind.
STAGES = {
    "graph": (
        ["ingest", "unpack", "encode", "insert", "entries", "emit", "certify"],
        ["unpack", "repair", "order", "starts", "emit", "certify"],
    ),
    "ivf": (["ingest", "assign", "lists", "emit"], ["lists", "seal", "certify"]),
    "lsh": (["ingest", "tables", "seal", "measure"], ["tables", "seal", "certify"]),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return make_data(tmp_path_factory.mktemp("data"))


def built(data: Data, out: Path, kind: str) -> Path:
    done = run("build", "--input", data.queries, "--out", out, "--workers", 1, *KINDS[kind])
    assert done.exit_code == 0, done.stderr
    return out


def write_job(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(f"workers = 1\n{text}")
    return path


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_plan_has_the_stages_of_the_job_and_a_rebuild_beside_it(
    kind: str, data: Data, tmp_path: Path
) -> None:
    done = run("build", "--input", data.base, "--out", tmp_path / "ix", "--workers", 1, *KINDS[kind])
    assert done.exit_code == 0, done.stderr
    np.save(tmp_path / "gone.npy", np.arange(100))
    np.save(tmp_path / "new.npy", data.query_vectors)
    files = sorted(path.name for path in tmp_path.iterdir())
    path = write_job(tmp_path, 'base = "ix"\nadd = "new.npy"\ndelete = "gone.npy"\ncompact = true\n')
    plan = run_json("plan", path)
    append, compact = STAGES[kind]
    expected = ["delete match", *(f"append {s}" for s in append), *(f"compact {s}" for s in compact)]
    assert list(plan["stages"]) == expected
    assert plan["vectors"] == N + len(data.query_vectors) - 100
    assert plan["deleted"] == 0
    assert plan["peak_memory_bytes"] == max(stage["memory_bytes"] for stage in plan["stages"].values())
    assert plan["seconds"] >= sum(stage["seconds"] for stage in plan["stages"].values())
    assert plan["rebuild"]["seconds"] > 0
    assert plan["rebuild"]["cheaper"] == (plan["rebuild"]["seconds"] < plan["seconds"])
    assert plan["rebuild"]["advice"].startswith("a rebuild would take ")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*files, "job.toml"])
    done = run("build", path)
    assert done.exit_code == 0, done.stderr
    for stage in expected[1:]:
        assert stage in done.stderr


@pytest.mark.parametrize(
    ("kind", "other", "stages"),
    [
        ("ivf", ["--seed", 2], ["assign", "lists", "seal"]),
        ("lsh", ["--seed", 2], ["tables", "seal"]),
    ],
)
def test_a_merge_of_indexes_of_other_lists_or_functions_is_planned(
    kind: str, other: list[object], stages: list[str], data: Data, tmp_path: Path
) -> None:
    names = {"a": data.base, "b": data.queries}
    for name, rows in names.items():
        more = other if name == "b" else []
        done = run("build", "--input", rows, "--out", tmp_path / name, "--workers", 1, *KINDS[kind], *more)
        assert done.exit_code == 0, done.stderr
    path = write_job(
        tmp_path, f'base = ["{tmp_path / "a"}", "{tmp_path / "b"}"]\nout = "{tmp_path / "all"}"\n'
    )
    plan = run_json("plan", path)
    assert list(plan["stages"]) == [f"merge {stage}" for stage in stages]
    done = run("build", path)
    assert done.exit_code == 0, done.stderr
    for stage in plan["stages"]:
        assert stage in done.stderr


def test_the_text_of_a_plan_has_the_advice_and_the_stages(data: Data, tmp_path: Path) -> None:
    build(data, tmp_path / "ix", "--builder", "vamana")
    path = write_job(tmp_path, 'base = "ix"\ncompact = true\n')
    printed = run("plan", path)
    assert printed.exit_code == 0, printed.stderr
    assert "a rebuild would take" in printed.stdout
    assert "compact repair" in printed.stdout


def test_a_plan_refuses_what_the_job_would(data: Data, tmp_path: Path) -> None:
    built(data, tmp_path / "ix", "graph")
    path = write_job(tmp_path, 'base = "ix"\ncompact = true\nmemory = "1MB"\n')
    refused = run("plan", path)
    assert refused.exit_code == 4
    assert "memory: step compact takes" in refused.stderr
    np.save(tmp_path / "new.npy", np.zeros((3, 5), np.float32))
    refused = run("plan", write_job(tmp_path, 'base = "ix"\nadd = "new.npy"\n'))
    assert refused.exit_code == 3
    assert "dimension 5" in refused.stderr
    shutil.copytree(tmp_path / "ix", tmp_path / "copy")
    built(data, tmp_path / "tables", "lsh")
    for other, said in (
        ("copy", "a copy of the same index"),
        ("tables", "an index of kind lsh; expected graph"),
    ):
        path = write_job(tmp_path, f'base = ["ix", "{other}"]\n')
        for command in ("plan", "build"):
            refused = run(command, path)
            assert refused.exit_code == 3
            assert said in refused.stderr
    assert run("plan", write_job(tmp_path, 'base = "ix"\nbas = "ix"\n')).exit_code == 2


def test_status_shows_a_run_on_a_finished_index(data: Data, tmp_path: Path) -> None:
    """What a killed append left is shown as stopped; `test_kill` shows that such runs leave it."""
    index = built(data, tmp_path / "ix", "graph")
    scratch = tmp_path / ".ix.indexmill-scratch"
    scratch.mkdir()
    assert run_json("status", index)["state"] == "published"
    stage = (
        '{"name": "insert", "state": "running", "done": 5, "total": 10, "unit": "vectors", "seconds": 1.0}'
    )
    (scratch / STATUS_NAME).write_text(
        '{"pid": 1, "seconds": 2.0, "memory_bytes": 1, "memory_budget_bytes": 2, "scratch_bytes": 3, '
        f'"scratch_limit_bytes": null, "stages": [{stage}]}}'
    )
    status = run_json("status", index)
    assert status["state"] == "stopped"
    assert status["stages"][0]["name"] == "insert"
    assert "insert" in run("status", index).stdout
    with GenerationRun(index, RunOptions()).working():
        running = run_json("status", index)
    assert running["state"] == "running"
    assert running["memory_budget_bytes"] == RunOptions().memory
    assert run_json("status", index)["state"] == "published"
