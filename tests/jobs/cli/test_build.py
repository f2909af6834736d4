"""`indexmill build`, the exit codes, and the cost of starting the command."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.cli import DIM, SMALL, Data, N, build, make_data, run, run_json

import indexmill
from indexmill.formats.errors import ConfigError, InputError

SMALL_JOB = """
input = "base.parquet"
out = "job.index"
id_column = "name"
workers = 1
[parameters]
R = 12
L = 30
pq_bytes = 6
entries = 16
sample_vectors = 500
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def index(data: Data) -> Path:
    return build(data, data.folder / "index")


def test_build_json_is_the_manifest(data: Data, tmp_path: Path) -> None:
    out = tmp_path / "index"
    printed = run_json("build", "--input", data.base, "--id-column", "name", "--out", out, *SMALL)
    assert printed == json.loads((out / "manifest.json").read_text())
    assert printed["input"]["n_vectors"] == N
    assert printed["parameters"]["max_degree"] == 12
    assert printed["certificate"]["recall"] > 0.9


def test_a_job_file_and_flags_build_the_same_bytes(data: Data, index: Path, tmp_path: Path) -> None:
    job = data.folder / "job.toml"
    job.write_text(SMALL_JOB)
    printed = run_json("build", job, "--force")
    assert printed["build_id"] == json.loads((index / "manifest.json").read_text())["build_id"]
    assert (data.folder / "job.index" / "manifest.json").exists()


def test_the_summary_names_sizes_certificate_and_stages(data: Data, tmp_path: Path) -> None:
    result = run("build", "--input", data.base, "--out", tmp_path / "index", *SMALL)
    assert result.exit_code == 0
    for text in (f"{N} x {DIM} float32", "recall@10", "overlap ratio", "graph.imx", "certify"):
        assert text in result.stdout
    assert "publish" in result.stderr
    assert "publish" not in result.stdout.replace("publish 0", "")


def test_inputs_may_repeat(data: Data, tmp_path: Path) -> None:
    halves = []
    table = pq.read_table(data.base)
    for i in range(2):
        halves += ["--input", tmp_path / f"{i}.parquet"]
        pq.write_table(table.slice(i * N // 2, N // 2), halves[-1])
    printed = run_json("build", *halves, "--id-column", "name", "--out", tmp_path / "index", *SMALL)
    assert printed["input"]["n_vectors"] == N


def test_an_existing_output_needs_force(data: Data, tmp_path: Path) -> None:
    out = build(data, tmp_path / "index")
    again = run("build", "--input", data.base, "--out", out, *SMALL)
    assert again.exit_code == 5
    assert "--force" in again.stderr
    build(data, out, "--force")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--order", "stars"], 2, "--order: input should be 'star', 'identity', 'random', 'breadth-first', "),
        (["-R", "1"], 2, "--max-degree (R): input should be greater than or equal to 2, got 1"),
        (["--memory", "lots"], 2, "--memory: 'lots' is not a size"),
        (["--executor", "slurm"], 2, "--executor"),
        (["--id-column", "nobody"], 3, "nobody"),
        (["--input", "missing.parquet"], 3, "missing.parquet"),
    ],
)
def test_bad_flags_and_inputs_have_their_exit_codes(
    data: Data, tmp_path: Path, options: list[str], code: int, said: str
) -> None:
    result = run("build", "--input", data.base, "--out", tmp_path / "index", *SMALL, *options)
    assert result.exit_code == code
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert said in result.stderr
    assert not (tmp_path / "index").exists()


def test_a_bad_job_file_exits_with_2_and_names_file_and_key(data: Data) -> None:
    job = data.folder / "bad.toml"
    job.write_text(SMALL_JOB.replace("pq_bytes", "pq_byte"))
    result = run("build", job)
    assert result.exit_code == 2
    assert result.stderr == f"error: {job}: unknown key 'parameters.pq_byte'; did you mean 'pq_bytes'?\n"


def test_a_build_without_input_says_what_is_missing() -> None:
    result = run("build", "--out", "x")
    assert result.exit_code == 2
    assert "input: missing" in result.stderr


def test_an_interrupt_exits_with_130(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("indexmill.pipeline.build.run_build", interrupt)
    assert run("build", "--input", data.base, "--out", tmp_path / "index").exit_code == 130


def test_an_unwritable_place_is_an_error_without_traceback(data: Data) -> None:
    result = run("build", "--input", data.base, "--out", "/proc/nowhere/index", *SMALL)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --out: /proc/nowhere cannot be written")


def test_python_build_and_open_agree_with_the_command(data: Data, index: Path, tmp_path: Path) -> None:
    options = {"R": 12, "L": 30, "pq_bytes": 6, "entries": 16, "sample_vectors": 500, "workers": 1}
    built = indexmill.build(data.vectors, tmp_path / "index", ids=data.names, **options)
    found = built.search(data.query_vectors, 3)
    same = indexmill.open(index).search(data.query_vectors, 3)
    np.testing.assert_array_equal(found.ids, same.ids)
    table = pq.read_table(data.base)
    from_table = indexmill.build(
        table, tmp_path / "table", id_column="name", metadata_columns=["score"], **options
    )
    np.testing.assert_array_equal(from_table.search(data.query_vectors, 3).ids, same.ids)
    from_path = indexmill.build(data.base, tmp_path / "path", id_column="name", **options)
    np.testing.assert_array_equal(from_path.search(data.query_vectors, 3).ids, same.ids)


def test_python_build_refuses_what_does_not_go_together(data: Data, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'alpha'"):
        indexmill.build(data.vectors, tmp_path / "x", alhpa=1.3)
    with pytest.raises(ConfigError, match="go with an array"):
        indexmill.build(data.base, tmp_path / "x", ids=data.names)
    with pytest.raises(InputError, match="metadata"):
        indexmill.build(data.vectors, tmp_path / "x", metadata=pa.table({"a": [1]}))
    with pytest.raises(InputError, match="no such index"):
        indexmill.open(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="expected one of auto, io_uring"):
        indexmill.open(tmp_path / "nothing", engine="aio")


def test_defaults_in_the_help_are_the_real_ones() -> None:
    from indexmill.pipeline.spec import BuildSpec, Parameters

    shown = " ".join(run("build", "--help").stdout.replace("│", " ").split())
    fields = Parameters.model_fields
    for flag, name in (
        ("--alpha", "alpha"),
        ("--passes", "passes"),
        ("--entries", "entries"),
        ("--navigation", "navigation"),
    ):
        assert f"(default {fields[name].default})" in shown.split(flag)[1][:200]
    assert fields["saturate"].default is True
    assert "(default yes)" in shown.split("--saturate")[1][:300]
    for name in (
        "build_list_size",
        "order",
        "metric",
        "sample_vectors",
        "seed",
        "kind",
        "builder",
        "build_codes",
    ):
        assert f"(default {fields[name].default})" in shown.split(f"--{name.replace('_', '-')} ")[1][:300]
    assert BuildSpec.model_fields["memory"].default == 8 << 30
    assert "(default 8GiB)" in shown
    assert f"(default {BuildSpec.model_fields['workers'].default})" in shown.split("--workers")[1][:60]


@pytest.mark.parametrize(
    "command", ["build", "search", "score", "compare", "verify", "inspect", "export", "device"]
)
def test_every_command_has_help_with_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert result.stdout.split("Examples:")[1].count(f"indexmill {command} ") >= 2
    assert "--json" in result.stdout


def test_help_lists_the_exit_codes_and_version_prints_it() -> None:
    assert "Exit codes: 0 done" in run("--help").stdout
    assert run("--version").stdout == f"indexmill {indexmill.__version__}\n"


def test_starting_is_quick_and_loads_nothing_heavy() -> None:
    heavy = ["numba", "ray", "sklearn", "pyarrow", "matplotlib", "h5py", "numpy", "pydantic"]
    code = f"import sys, indexmill, indexmill.jobs.cli.main\nprint([name for name in {heavy} if name in sys.modules])"
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert time.perf_counter() - began < 2.0  # about 0.15 s; generous, for a busy machine


def test_a_build_of_one_index_loads_no_other_operation_and_leaves_nothing_to_collect(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text('input = "missing.npy"\nout = "index"\n')
    others = [f"indexmill.pipeline.{name}" for name in ("update", "sets", "generations", "append", "merge")]
    code = f"""if True:
        import gc, sys
        from indexmill.jobs.cli.main import main
        sys.argv = ["indexmill", "build", {str(job)!r}]
        try:
            main()
        except SystemExit as end:
            print([name for name in {others} if name in sys.modules], end.code, gc.get_freeze_count() > 0)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "missing.npy" in done.stderr
    assert done.stdout == "[] 3 True\n"


def test_an_error_about_a_file_that_is_called_like_a_flag_names_the_file(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    result = run("search", "out", "--queries", data.queries, "--out", "found.parquet")
    assert result.exit_code != 0
    assert result.stderr.startswith("error: out: no manifest.json")
