"""Choices of flags are those of the reader, and help pages show them without loading it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.oracles.files.small_index import write_small_index
from tests.support.cli import run

from indexmill.formats.errors import ConfigError
from indexmill.jobs.search.engines import check_engine, simulated_profile
from indexmill.reader.choices import ENTRIES, POLICIES
from indexmill.reader.index import Index

HELP = """
import sys
from indexmill.jobs.cli.main import app
try:
    app(["score", "--help"])
except SystemExit:
    pass
loaded = {"numpy", "pyarrow", "matplotlib", "indexmill.reader._native"} & sys.modules.keys()
sys.exit(f"loaded {loaded}" if loaded else 0)
"""


def test_the_reader_takes_every_word_that_is_listed(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, n=60, dim=8)
    index = Index(tmp_path)
    for policy in POLICIES:
        for entry in ENTRIES:
            inflight = 1 if entry == "previous" else 4
            found = index.search(written.vectors[:2], 1, L=60, policy=policy, entry=entry, inflight=inflight)
            assert found.vector_ids.shape == (2, 1)
    for word in ({"policy": "none"}, {"entry": "none"}):
        with pytest.raises(ConfigError, match='expected one of "'):
            index.search(written.vectors[:2], 1, **word)


@pytest.mark.parametrize("command", ["search", "score", "compare"])
def test_help_names_every_policy_and_engine(command: str) -> None:
    shown = " ".join(run(command, "--help").stdout.replace("│", " ").split())
    for word in (*POLICIES, "io_uring", "sqpoll", "mmap", "simulated:FILE"):
        assert word in shown


def test_help_loads_nothing_heavy() -> None:
    found = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "--policy" in found.stdout


def test_engines_are_checked_by_name_and_profiles_left_to_the_reader() -> None:
    for name in ("auto", "sqpoll", "simulated:no such file.json"):
        assert check_engine(name) == name
    for name in ("simulated:", "uring", "simulated"):
        with pytest.raises(ConfigError, match="--engine: expected one of auto"):
            check_engine(name)
    assert simulated_profile("pread") is None
    assert str(simulated_profile("simulated:a:b.json")) == "a:b.json"
