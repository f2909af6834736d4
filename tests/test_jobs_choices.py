"""The words that flags take are the reader's, and help pages show them without loading it."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest
from tests.cli_support import run

from indexmill.formats.errors import ConfigError
from indexmill.jobs.choices import ENTRIES, POLICIES, check_engine, reader_choices, simulated_profile
from indexmill.reader import index as reader

HELP = """
import sys
from indexmill.jobs.cli import app
try:
    app(["score", "--help"])
except SystemExit:
    pass
loaded = {"numpy", "pyarrow", "matplotlib", "indexmill.reader._native"} & sys.modules.keys()
sys.exit(f"loaded {loaded}" if loaded else 0)
"""


def test_commands_take_the_words_that_the_reader_lists() -> None:
    assert POLICIES == reader.POLICIES == get_args(reader.Policy)
    assert ENTRIES == reader.ENTRIES == get_args(reader.Entry)
    with pytest.raises(LookupError, match="no annotated tuple NONE"):
        reader_choices("NONE")


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
