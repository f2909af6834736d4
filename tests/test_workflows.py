"""GitHub's workflows run every check of the Makefile, on every Python that the package says it runs on."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Targets of the Makefile that workflows run: what contributors run before a commit.
CHECKS = {"check", "docs", "ecosystem", "test", "test-engines"}
#: What those make on their way, what needs tools of its own, and what checks nothing.
PARTS = {
    "lint",
    "quick",
    "unit",
    "rust",
    "cargo",
    "chromium",
    "engine-tools",
    "lucene-jar",
    "install-library",
}
OTHERS = {"test-aarch64", "sanitize", "fuzz", "miri", "demo", "clean"}


def jobs_of(name: str) -> dict[str, Any]:
    """The jobs of a workflow."""
    jobs: dict[str, Any] = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())["jobs"]
    return jobs


def commands() -> str:
    """What all workflows run."""
    names = [path.stem for path in (ROOT / ".github/workflows").glob("*.yml")]
    steps = [step for name in names for job in jobs_of(name).values() for step in job.get("steps", [])]
    return "\n".join(step["run"] for step in steps if "run" in step)


def made(text: str) -> set[str]:
    """The targets that commands make."""
    return {target for line in re.findall(r"^make (.+)$", text, re.MULTILINE) for target in line.split()}


def test_workflows_run_every_check() -> None:
    assert made(commands()) == CHECKS
    assert "actionlint" in commands()


def test_every_target_of_the_makefile_is_known() -> None:
    targets = re.search(r"^\.PHONY:((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(targets[1].replace("\\\n", " ").split()) == CHECKS | PARTS | OTHERS


def test_contributors_are_told_every_check() -> None:
    told = (ROOT / "CONTRIBUTING.md").read_text().partition("\n* ")[0]
    assert set(re.findall(r"^    make (\S+)", told, re.MULTILINE)) >= CHECKS
    assert "tests of Lance" in told


def test_every_python_that_the_package_allows_is_named_tested_and_tried() -> None:
    least, beyond = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"]).groups()
    versions = [f"3.{minor}" for minor in range(int(least), int(beyond))]
    named = [
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one) for one in PROJECT["classifiers"]
    ]
    assert [one[1] for one in named if one] == versions
    jobs = jobs_of("ci")
    (setup,) = (step["with"] for step in jobs["test"]["steps"] if "setup-python" in step.get("uses", ""))
    assert [setup["python-version"], *jobs["quick"]["strategy"]["matrix"]["python"]] == versions
    assert jobs_of("wheels")["try"]["strategy"]["matrix"]["python"] == versions


def test_the_crate_for_crates_io_has_what_it_and_docs_rs_ask_for() -> None:
    crates = {
        path.parent.name: tomllib.loads(path.read_text())["package"]
        for path in ROOT.glob("reader/*/Cargo.toml")
    }
    assert [name for name, crate in crates.items() if crate.get("publish") is True] == ["core"]
    core = crates["core"]
    assert (ROOT / "reader/core" / core["readme"]).is_file()
    assert core["documentation"] == f"https://docs.rs/{core['name']}"
    assert core["description"]
    assert 0 < len(core["keywords"]) <= 5
    assert all(len(word) <= 20 for word in core["keywords"])
    docs = core["metadata"]["docs"]["rs"]  # it builds Linux by default, and no other system is needed
    assert {docs["default-target"], *docs["targets"]} == {
        "x86_64-unknown-linux-gnu",
        "aarch64-unknown-linux-gnu",
    }
    assert "--locked" in (command := next(one for one in commands().splitlines() if "cargo package" in one))
    assert "--no-verify" not in command
