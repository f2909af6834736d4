"""The benchmarks of installations and of ann-benchmarks: environments, logs, what a README shows, and tables."""

from __future__ import annotations

import sys
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from indexmill.jobs.bench.ann_benchmarks import __main__ as ann_benchmarks
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.process import output_of, told
from indexmill.jobs.bench.install import __main__ as install
from indexmill.jobs.bench.install import wheel
from indexmill.jobs.bench.install.environment import Environment, seconds_until
from indexmill.jobs.devices.machine import REPOSITORY

ABOUT = {"started": "2026-01-02T03:04:05", "commit": "abc", "load_before": 0.1}
MACHINE = {"cpu": "a", "cores": 2, "memory_bytes": 1 << 30, "kernel": "b"}


def record(name: str, parts: dict[str, Any]) -> dict[str, Any]:
    found = {part: ABOUT | values for part, values in parts.items()}
    return {
        "benchmark": name, "data": [], "machine": MACHINE, "versions": {"python": "3", "peer": []}, "parts": found,
    }  # fmt: skip


def place(first_result: float, heavy: list[str]) -> dict[str, Any]:
    loads = {"import": {"seconds": 0.01, "packages": []}, "search": {"seconds": 0.1, "packages": ["numpy"]}}
    return {
        "system": "Some Linux", "libc": "glibc 2.41", "python": "3.13.5", "compilers": [], "rounds": [{}],
        "install_s": 20.0, "install_cpu_s": 9.0, "first_s": 30.0, "demo_s": 50.0, "demo_cpu_s": 40.0,
        "first_result": {"value": first_result, "low": 40.0, "high": 70.0},
        "installed_bytes": 600e6, "packages": {"pyarrow": 170e6, "rich": 1e6}, "kernels_bytes": 9e6,
        "report_bytes": 2e6, "loads": loads, "heavy": heavy,
        "commands": [{"command": "indexmill --help", "seconds": 0.5}],
    }  # fmt: skip


WHEEL = {"name": "a.whl", "bytes": 6e6, "unpacked_bytes": 9e6, "largest": {"words.parquet": 3e6}}


@pytest.mark.parametrize("names", [("venv",), ("root",), ("venv", "root")])
def test_the_tables_of_an_installation_show_the_places_that_were_measured(names: tuple[str, ...]) -> None:
    found = record("install", {"wheel": WHEEL, **{name: place(50.0, []) for name in names}})
    lines = install.BENCHMARK.render(found, "r.json").splitlines()
    measured = [
        line
        for line in lines
        if line.startswith("| Some Linux, glibc 2.41 | 3.13.5 | none | 1 | 20.0 (9.0) | 30.0 |")
    ]
    assert len(measured) == len(names)
    assert "| pyarrow |" + " 170.0 |" * len(names) in lines
    assert not any("rich" in line for line in lines), "small packages are left out"
    assert "| `indexmill --help` |" + " 0.5 |" * len(names) in lines


def test_targets_of_an_installation_are_missed_by_slow_starts_and_heavy_imports() -> None:
    found = record("install", {"wheel": WHEEL, "root": place(61.0, ["numba"])})
    text = install.BENCHMARK.render(found, "r.json")
    missed = [line for line in text.splitlines() if line.endswith("| **no** |")]
    assert len(missed) == 2
    assert (
        "| the same in the root, without compilers | 61.000 (40.000 to 70.000) | <= 60 | s | **no** |"
        in missed
    )


def test_the_readme_shows_an_example_and_commands() -> None:
    code, commands = install.shown(REPOSITORY / "README.md")
    compile(code, "README.md", "exec")
    assert "indexmill.build(" in code
    assert [line.split()[1] for line in commands] == ["build", "search", "append", "inspect"]


def test_commands_keep_how_pip_reaches_its_registry_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_INDEX_URL", "https_proxy", "PYTHONPATH", "CC"):
        monkeypatch.setenv(name, f"kept {name}")
    (tmp_path / "home").mkdir()
    said = output_of(Environment(tmp_path).command("/usr/bin/env")).splitlines()
    assert {"PIP_INDEX_URL=kept PIP_INDEX_URL", "https_proxy=kept https_proxy"} <= set(said)
    assert not any(line.startswith(("PYTHONPATH", "CC=")) for line in said)
    assert f"PATH={tmp_path}/venv/bin" in said


def test_paths_of_a_root_are_seen_below_it(tmp_path: Path) -> None:
    environment = Environment(Path("/srv/fresh"), tmp_path)
    assert environment.seen(environment.home) == tmp_path / "srv/fresh/home"
    entered = environment.command("pip")
    assert entered[:2] == ["unshare", "--mount"]
    assert (str(tmp_path), entered[-1]) == (entered[entered.index("/usr/bin/env") - 1], "pip")


@pytest.mark.bench
def test_an_environment_of_this_system_is_fresh_and_finds_no_compiler(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "fresh")
    for _ in range(2):  # made anew: what was there is gone
        environment.make()
        assert list(environment.seen(environment.home).iterdir()) == []
        (environment.seen(environment.home) / "left").touch()
    facts = told(environment.command("python", "-c", install.FACTS, *install.COMPILERS))
    assert (facts["python"], facts["compilers"]) == (sys.version.split()[0], [])
    assert environment.bytes_of_packages() == {}
    (environment.packages / "some-1.0.dist-info").mkdir()
    for name in ("some.libs", "some"):
        (environment.packages / name).mkdir()
        (environment.packages / name / "file").write_bytes(bytes(100_000))
    assert environment.bytes_of_packages()["some"] >= 200_000


def test_seconds_until_a_line_end_before_those_of_the_command(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first, whole = seconds_until(["sh", "-c", "echo begun; echo found it; sleep 0.3"], log, "found")
    assert first < 0.3 <= whole
    assert log.read_text() == "begun\nfound it\n"


@pytest.mark.parametrize("script", ["echo other", "echo found; exit 3"])
def test_a_command_that_fails_or_finds_nothing_is_an_error_with_what_it_said(
    script: str, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match=script.split()[1].rstrip(";")):
        seconds_until(["sh", "-c", script], tmp_path / "log", "found")


def test_a_wheel_that_is_given_is_kept_with_its_sizes(tmp_path: Path) -> None:
    given = tmp_path / "some-1.0-py3-none-any.whl"
    with zipfile.ZipFile(given, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(50_000))
        archive.writestr("small", b"1")
    run = Run("install", {}, tmp_path / "out", None, Namespace(wheel=given))
    with pytest.raises(FileNotFoundError, match="run the part wheel first"):
        wheel.wheel_of(run)
    run.out.mkdir()
    found = wheel.measure(run)
    assert (found["name"], found["bytes"], found["unpacked_bytes"]) == (
        given.name,
        given.stat().st_size,
        50_001,
    )
    assert list(found["largest"]) == ["zeros", "small"]
    assert wheel.wheel_of(run).read_bytes() == given.read_bytes()
    run.options.wheel = wheel.wheel_of(run)
    assert wheel.measure(run) == found, "the one that was kept is given"
    assert not (run.out / "wheel.new").exists()


#: Lines as plot.py of ann-benchmarks prints them.
SAID = """writing output to results/set.png
  0:                                   indexmill({'max_degree': 32}, L=64)        0.998     4321.123
  2:                                  indexmill({'max_degree': 32}, L=256)        0.998      321.120
  1:                                                     BruteForceBLAS()        1.000      900.000
Found cached result
 12:                                   indexmill({'max_degree': 32}, L=10)        0.912     9321.500
"""


def test_rows_of_our_algorithm_are_read_and_shown() -> None:
    found = ann_benchmarks.rows(SAID)
    told = [(row["recall"], row["qps"]) for row in found]
    assert told == [(0.912, 9321.5), (0.998, 4321.123), (0.998, 321.12)]
    part = {"dataset": "set", "modes": {"one by one": found}}
    text = ann_benchmarks.BENCHMARK.render(record("ann_benchmarks", {"set": part}), "r.json")
    last = text.splitlines()[-1]
    assert last.startswith(
        "| set | one by one | 3 | 0.912, `indexmill({'max_degree': 32}, L=10)` | 9,322 | 0.998,"
    )
    assert last.endswith("L=64)` | 4,321 |"), "of settings with the same recall the fastest is shown"


def checkout(folder: Path) -> Path:
    """Make a repository like ann-benchmarks."""
    (folder / "ann_benchmarks" / "algorithms").mkdir(parents=True)
    (folder / "requirements.txt").write_text("numpy\n")
    committed(folder)
    return folder


def committed(folder: Path) -> None:
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], [*names, "commit", "-q", "--allow-empty", "-m", "a"]):
        output_of(["git", *words], folder)


def test_another_wheel_or_commit_of_ann_benchmarks_is_measured_in_a_fresh_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def environment(folder: Path, packages: list[str]) -> Path:
        folder.mkdir(exist_ok=True)
        return folder / "python"

    monkeypatch.setattr(ann_benchmarks, "make_environment", environment)
    given = Namespace(checkout=checkout(tmp_path / "checkout"), wheel=tmp_path / "a.whl")
    run = Run("ann_benchmarks", {}, tmp_path / "out", None, given)
    run.out.mkdir()
    left = [run.out / name / "left" for name in ("ann-benchmarks", "environment")]

    def kept() -> list[bool]:
        """Prepare a measurement; tell what of the one before was kept."""
        ann_benchmarks.copied(run, ann_benchmarks.origin_of(run))
        found = [one.exists() for one in left]
        for one in left:
            one.touch()
        return found

    given.wheel.write_bytes(b"one")
    assert [kept(), kept()] == [[False, False], [True, True]]
    given.wheel.write_bytes(b"two")
    assert [kept(), kept()] == [[False, False], [True, True]]
    committed(given.checkout)
    assert [kept(), kept()] == [[False, False], [True, True]]
    (given.checkout / "changed").touch()
    assert [kept(), kept()] == [[False, False], [False, False]], "changes have no name"
    given.wheel = None
    with pytest.raises(ValueError, match="both are needed"):
        ann_benchmarks.origin_of(run)
