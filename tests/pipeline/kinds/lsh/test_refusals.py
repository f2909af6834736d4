"""Builds of LSH indexes: refusals, plans, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run, run_json
from tests.support.indexes.built import Built
from tests.support.indexes.lsh import build_lsh, clusters

from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.lsh.shape import most_probes
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.build import run_build
from indexmill.pipeline.kinds.lsh.size import LshSize
from indexmill.pipeline.plan import make_plan
from indexmill.pipeline.spec import BuildSpec, LshParameters

N, DIM = 3000, 12
SMALL: dict[str, Any] = {"n_tables": 5, "n_functions": 6, "workers": 1}


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return clusters(N, DIM)


@pytest.fixture(scope="module")
def index(built: Built, vectors: np.ndarray) -> Path:
    return built(build_lsh, vectors, **SMALL)


def test_a_radius_too_small_for_the_vectors_is_refused(tmp_path: Path, vectors: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="first_radius: 1e-30 is too small for vectors"):
        build_lsh(tmp_path / "index", vectors[:100], first_radius=1e-30, n_radii=1, **SMALL)


def test_more_radii_than_sense_are_refused(tmp_path: Path, vectors: np.ndarray) -> None:
    with pytest.raises(ConfigError, match=r"n_radii: 40 radii from .* give [0-9]+ or fewer"):
        build_lsh(tmp_path / "index", vectors, n_radii=40, **SMALL)


def test_radii_beyond_what_a_number_holds_are_refused_too(tmp_path: Path, vectors: np.ndarray) -> None:
    with pytest.raises(ConfigError, match=r"n_radii: 256 radii from .* give [0-9]+ or fewer"):
        build_lsh(tmp_path / "index", vectors, ratio=16.0, n_radii=256, **SMALL)


def test_probes_that_no_search_can_take_are_refused_with_the_most_that_it_can(
    tmp_path: Path, vectors: np.ndarray
) -> None:
    with pytest.raises(ConfigError, match=r"probes: 5 tables and 60,000 more buckets.*give 52427 or fewer"):
        build_lsh(tmp_path / "index", vectors, probes=60_000, **SMALL)
    assert not list(tmp_path.iterdir())
    assert most_probes(5) == 52_427


def test_too_many_radii_are_blamed_on_ratio_and_first_radius(tmp_path: Path, vectors: np.ndarray) -> None:
    with pytest.raises(ConfigError, match=r"n_radii: 1\.\.256, not [0-9]+; raise --ratio or --first-radius"):
        build_lsh(tmp_path / "index", vectors, ratio=1.01, first_radius=0.01, **SMALL)


def test_more_buckets_than_keys_are_refused(tmp_path: Path, vectors: np.ndarray) -> None:
    with pytest.raises(ConfigError, match=r"hash_bits: 31 bits and [0-9]+ radii make"):
        build_lsh(tmp_path / "index", vectors, hash_bits=31, **SMALL)


def test_a_width_that_takes_too_many_functions_is_refused(tmp_path: Path, vectors: np.ndarray) -> None:
    with pytest.raises(ConfigError, match=r"n_functions: a width of 900 takes .* at most 256"):
        build_lsh(tmp_path / "index", vectors, width=900.0)


def job(out: Path, **changes: Any) -> BuildSpec:
    run = {key: changes.pop(key) for key in ("memory", "scratch", "work") if key in changes}
    return BuildSpec(input=["<array>"], out=str(out), parameters=LshParameters(**changes), workers=1, **run)


def test_an_index_too_large_for_the_scratch_space_names_the_tables_that_fit(
    tmp_path: Path, vectors: np.ndarray
) -> None:
    source = array_source(vectors)
    spec = job(tmp_path / "index", n_tables=40, n_functions=6, scratch=3_000_000)
    with pytest.raises(
        BudgetError, match=r"give --scratch [0-9]+ or more, or --n-tables ([0-9]+), with which"
    ) as error:
        run_build(spec, source)
    fits = int(str(error.value).split("--n-tables ")[1].split(",")[0])
    assert 1 <= fits < 40
    manifest = run_build(
        job(tmp_path / "index", n_tables=fits, n_functions=6, scratch=3_000_000), array_source(vectors)
    )
    assert manifest["parameters"]["n_tables"] == fits
    with pytest.raises(BudgetError, match="not even one table fits"):
        run_build(job(tmp_path / "x", scratch=10_000), array_source(vectors))


def test_an_index_too_large_for_the_scratch_space_may_fit_with_probes(
    tmp_path: Path, vectors: np.ndarray
) -> None:
    needed = make_plan(job(tmp_path / "index"), array_source(vectors)).peak_scratch_bytes
    with pytest.raises(
        BudgetError, match=r"or --probes 16, with which \d+ tables? finds? as many, .*, or --n"
    ):
        run_build(job(tmp_path / "index", scratch=needed // 2), array_source(vectors))
    manifest = run_build(job(tmp_path / "index", scratch=needed // 2, probes=16), array_source(vectors))
    assert manifest["lsh"]["success"] >= 0.8


def test_a_build_stays_within_the_scratch_space_it_is_planned_with(
    index: Path, vectors: np.ndarray, tmp_path: Path
) -> None:
    plan = make_plan(job(tmp_path / "index", n_tables=5, n_functions=6), array_source(vectors))
    used = json.loads((index / "run.json").read_text())["peak_scratch_bytes"]
    assert 0.5 * plan.peak_scratch_bytes < used < 1.3 * plan.peak_scratch_bytes
    assert set(plan.stages) == {"ingest", "sample", "solve", "hash", "chain", "emit", "certify"}
    assert 0 <= plan.seconds < 60  # so small a job may round to 0.0
    assert plan.facts["lsh"]["n_tables"] == 5
    assert "shards" not in plan.facts


def test_too_little_memory_is_refused_with_what_works(tmp_path: Path, vectors: np.ndarray) -> None:
    with pytest.raises(BudgetError, match=r"memory: stage .* give at least ([0-9,]+) bytes") as error:
        run_build(job(tmp_path / "index", memory=200 << 20), array_source(vectors))
    least = int(str(error.value).split("at least ")[1].split(" ")[0].replace(",", ""))
    size = LshSize(job(tmp_path / "index", memory=least), array_source(vectors))
    assert max(size.stage_bytes().values()) < least


def test_the_command_builds_inspects_and_says_what_it_solved(vectors: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "base.npy", vectors[:500])
    options = [
        "--input",
        tmp_path / "base.npy",
        "--kind",
        "lsh",
        "-m",
        "5",
        "--n-tables",
        "4",
        "--workers",
        "1",
    ]
    printed = run_json("build", *options, "--out", tmp_path / "index", "-w", "3.5", "-S", "77")
    p = printed["parameters"]
    assert (p["n_functions"], p["n_tables"], p["width"], p["candidates"]) == (5, 4, 3.5, 77)
    shown = run("inspect", tmp_path / "index").stdout
    assert "c=2 w=3.5 m=5 L=4 S=77" in shown
    assert "bitmap" in shown
    planned = run_json("plan", *options, "--out", tmp_path / "other")
    assert planned["lsh"]["n_functions"] == 5
    assert "L=4" in run("plan", *options, "--out", tmp_path / "other").stdout
    job_file = tmp_path / "job.toml"
    job_file.write_text(
        'input = "base.npy"\nout = "index"\nworkers = 1\n[parameters]\nkind = "lsh"\nm = 5\nL = 4\nw = 3.5\nS = 77\n'
    )
    assert run_json("build", job_file, "--force")["build_id"] == printed["build_id"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--kind", "lsh", "--pq-bytes", "4"],
            "--pq-bytes: belongs to kind graph or ivf, and the kind is lsh; leave it out",
        ),
        (["--probes", "4"], "--probes: belongs to kind lsh, and the kind is graph; leave it out"),
        (["--kind", "tree"], "kind: expected graph or lsh or ivf, got 'tree'"),
        (["--kind", "lsh", "-c", "1"], "--ratio (c): input should be greater than 1, got 1.0"),
        (
            ["--kind", "lsh", "-w", "0.0005"],
            "--width (w): input should be greater than or equal to 0.001, got 0.0005",
        ),
        (
            ["--kind", "lsh", "--block-bytes", "500"],
            "--block-bytes: input should be 128, 256, 512, 1024, 2048 or 4096",
        ),
        (["--kind", "lsh", "--success", "0.9", "--n-tables", "3"], "success: decides the number of tables"),
    ],
)
def test_parameters_that_do_not_go_together_are_refused(
    tmp_path: Path, options: list[str], said: str
) -> None:
    np.save(tmp_path / "base.npy", np.eye(4, dtype=np.float32))
    result = run("build", "--input", tmp_path / "base.npy", "--out", tmp_path / "x", *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_help_says_the_real_defaults() -> None:
    shown = " ".join(run("build", "--help").stdout.replace("│", " ").split())
    for name in ("ratio", "width", "gamma", "probes", "block_bytes"):
        default = LshParameters.model_fields[name].default
        assert f"(default {default})" in shown.split(f"--{name.replace('_', '-')} ")[1][:250], name
    assert "(default 0.8)" in shown.split("--success ")[1][:250]
