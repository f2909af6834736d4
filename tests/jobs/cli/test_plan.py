"""`indexmill plan`: the flags of a build, figures in place of one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.cli import SMALL, Data, make_data, run, run_json

from indexmill.jobs.cli.commands import build as cmd_build
from indexmill.jobs.cli.commands import plan as cmd_plan
from indexmill.jobs.options.declare import parameters_of

if TYPE_CHECKING:
    from tests.support.processes.ray_cluster import Three


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


def test_the_plan_of_a_set_has_stages_of_all_parts(data: Data, tmp_path: Path) -> None:
    given = ["plan", "--input", data.base, "--out", tmp_path / "set", *SMALL, "--parts", 2]
    plan = run_json(*given)
    assert plan["parts"]["n"] == 2
    assert plan["parts"]["vectors"] == plan["shards"]["vectors"] == 250
    assert {"divide", "codes", "build", "emit", "certify"} <= set(plan["stages"])
    assert not list(tmp_path.iterdir())
    words = run(*given).stdout
    assert "parts        2 of about 250 vectors and " in words
    assert "one after the other; seconds of stages are those of all" in words


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


def test_plan_takes_the_options_of_build_those_of_a_search_and_of_a_cluster() -> None:
    plan, build = ({one.name for one in parameters_of(module.Options)} for module in (cmd_plan, cmd_build))
    searching = {"device", "target", "queries", "k", "nprobe", "policy", "beam_width", "threads", "inflight"}
    cluster = {"nodes", "node_memory", "node_cores", "vectors", "storage"}
    assert plan - build == searching | cluster
    assert build < plan
    assert {"scratch", "overlap", "ray_address"} <= build


CLUSTER = ("--nodes", 3, "--node-memory", "2GiB", "--node-cores", 2, "--vectors", "1e6")


def test_the_plan_of_a_cluster_has_hours_and_what_binds(data: Data, tmp_path: Path) -> None:
    plan = run_json("plan", "--input", data.base, "--out", tmp_path / "ix", *SMALL, *CLUSTER)
    assert {"seconds", "node_seconds", "binds", "mirror_bytes", "cuts", "stages", "shards"} <= set(plan)
    assert (plan["nodes"], plan["node_cores"], plan["vectors"]) == (3, 2, 1_000_000)
    assert plan["node_memory_bytes"] == 2 << 30
    assert set(plan["stages"]["pack"]) == {
        "seconds", "tasks", "lanes", "nodes", "read_bytes", "written_bytes", "binds",
    }  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_the_plan_of_a_cluster_in_words(data: Data, tmp_path: Path) -> None:
    result = run("plan", "--input", data.base, "--out", tmp_path / "ix", *SMALL, *CLUSTER)
    assert result.exit_code == 0, result.stderr
    assert "cluster      3 nodes of 2 cores and 2.0 GiB\n" in result.stdout
    assert "node-hours\n" in result.stdout
    assert ": build with --workers 2 --memory " in result.stdout
    assert "publish" in result.stdout


def test_nodes_cores_and_memory_are_those_of_a_running_cluster(
    data: Data, tmp_path: Path, three: Three
) -> None:
    offers = [offer for offer in three.executor.offers().values() if offer.get("CPU")]
    cpus = Counter(int(offer["CPU"]) for offer in offers)

    def plan_of(*options: object) -> dict[str, Any]:
        """Plan in a process of its own: Ray tells this one's standard output of tasks of other tests that failed."""
        cluster = ("--executor", "ray", "--ray-address", three.options["ray_address"])
        job = ("--input", data.base, "--out", tmp_path / "ix", "-R", 12, "-L", 30, "--sample-vectors", 500)
        command = [
            sys.executable,
            "-m",
            "indexmill.jobs.cli.main",
            "plan",
            *job,
            *cluster,
            *options,
            "--json",
        ]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    plan = plan_of()
    assert plan["nodes"] == cpus[plan["node_cores"]]
    assert plan["nodes"] * plan["node_cores"] == max(n * cores for cores, n in cpus.items())
    memory = [offer["memory"] for offer in offers if int(offer["CPU"]) == plan["node_cores"]]
    assert plan["node_memory_bytes"] == min(memory)
    assert "left out" in plan["note"]
    stated = plan_of("--workers", 1, "--memory", "1GiB", "--vectors", "1e6")
    assert (stated["node_cores"], stated["node_memory_bytes"]) == (1, 1 << 30)
    assert stated["vectors"] == 1_000_000


@pytest.mark.parametrize(
    ("given", "address"),
    [([], None), ([], "local"), (["--kind", "lsh"], "head:6379"), (["--scratch", "1GiB"], "head:6379")],
)
def test_a_job_for_ray_that_no_cluster_is_planned_for_is_planned_on_one_machine(
    data: Data, tmp_path: Path, given: list[str], address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    parameters = () if given[:1] == ["--kind"] else SMALL
    plan = run_json(
        "plan", "--input", data.base, "--out", tmp_path / "ix", *parameters, "--executor", "ray", *given
    )
    assert "peak_memory_bytes" in plan
    assert "nodes" not in plan


@pytest.mark.parametrize(
    ("given", "message", "code"),
    [
        (
            ["--executor", "ray", "--vectors", "1e9"],
            "--vectors: for the plan of a cluster; give --nodes, or",
            2,
        ),
        (["--node-cores", 4], "--node-cores: for the plan of a cluster; give --nodes, or --executor ray", 2),
        (["--executor", "ray", "--ray-address", "h:1", "--parts", 2], "--parts: a set is built on one", 2),
        (["--nodes", 2, "--parts", 2], "--parts: a set is built on one machine, part after part; plan it", 2),
        (["--nodes", 2, "--vectors", "1000.5"], "--vectors: expected a whole number such as 1e9", 2),
        (["--nodes", 2, "--storage", "tape"], "--storage: expected a file that `indexmill device` wrote", 2),
        (["--nodes", 2, "--vectors", 10], "--vectors: 10, but the input has 500", 2),
        (["--nodes", 2, "--node-memory", "many"], "--node-memory: 'many' is not a size", 2),
        (
            ["--nodes", 2, "--node-memory", "300MiB", "--vectors", "1e9"],
            "--node-memory: a node cannot hold",
            4,
        ),
        (["--nodes", 2, "-k", 5], "-k: for the plan of an index", 2),
    ],
)
def test_what_a_cluster_cannot_be_is_refused_by_flag(
    data: Data, tmp_path: Path, given: list[object], message: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    result = run("plan", "--input", data.base, "--out", tmp_path / "ix", *SMALL, *given)
    assert result.exit_code == code, result.output
    assert message in result.stderr
