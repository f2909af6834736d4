"""`indexmill plan`: the flags of a build, figures in place of one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cli import SMALL, Data, make_data, run, run_json

from indexmill.jobs.cli.commands import build as cmd_build
from indexmill.jobs.cli.commands import plan as cmd_plan
from indexmill.jobs.options.declare import parameters_of


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return make_data(tmp_path_factory.mktemp("data"))


def test_a_plan_has_figures_for_the_build_and_every_stage(data: Data, tmp_path: Path) -> None:
    plan = run_json("plan", "--input", data.base, "--out", tmp_path / "ix", *SMALL)
    assert set(plan) == {
        "peak_memory_bytes", "peak_scratch_bytes", "seconds", "builder", "format", "codes_on_page", "shards", "stages",
    }  # fmt: skip
    assert plan["builder"] == {"name": "partition", "why": "its memory fits"}
    assert plan["shards"] == {"n": 1, "vectors": 500, "mean_fanout": 1.0}
    assert {"ingest", "build", "encode", "emit", "certify"} <= set(plan["stages"])
    assert set(plan["stages"]["build"]) == {"seconds", "memory_bytes", "scratch_bytes"}
    assert not list(tmp_path.iterdir())


def test_a_plan_in_words_names_its_budget(data: Data, tmp_path: Path) -> None:
    result = run(
        "plan",
        "--input",
        data.base,
        "--out",
        tmp_path / "ix",
        *SMALL,
        "--memory",
        "2GiB",
        "--scratch",
        "1GiB",
    )
    assert result.exit_code == 0, result.stderr
    assert "of 2.0 GiB" in result.stdout
    assert "of 1.0 GiB" in result.stdout
    assert "builder      partition: its memory fits\n" in result.stdout
    assert "format       codes of 6 bytes, nodes as in the input, R=12\n" in result.stdout
    assert "in one piece" in result.stdout


def test_a_plan_in_words_says_that_codes_are_on_the_page(data: Data, tmp_path: Path) -> None:
    result = run("plan", "--input", data.base, "--out", tmp_path / "ix", *SMALL, "--codes-on-page")
    assert "format       codes of 6 bytes on the page, nodes as in the input, R=12\n" in result.stdout


def test_a_plan_reads_job_files(data: Data, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        f'input = "{data.base}"\nout = "ix"\nscratch = "1GiB"\n'
        "[parameters]\nR = 12\nL = 30\npq_bytes = 6\nshard_vectors = 200\noverlap = 0.4\nentries = 16\n"
    )
    shards = run_json("plan", job)["shards"]
    assert shards["n"] > 2
    assert shards["mean_fanout"] == pytest.approx(1.4)


def test_a_budget_that_cannot_work_is_refused_by_name(data: Data, tmp_path: Path) -> None:
    result = run("plan", "--input", data.base, "--out", tmp_path / "ix", *SMALL, "--memory", "20MiB")
    assert result.exit_code == 4
    assert "give at least" in result.stderr


def test_plan_takes_the_options_of_build_and_those_of_a_search() -> None:
    plan, build = ({one.name for one in parameters_of(module.Options)} for module in (cmd_plan, cmd_build))
    searching = {"device", "target", "queries", "k", "nprobe", "policy", "beam_width", "threads", "inflight"}
    assert plan - build == searching
    assert build < plan
    assert {"scratch", "overlap", "ray_address"} <= build
