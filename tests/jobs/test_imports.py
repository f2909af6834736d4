"""Modules loaded by importing the package, by opening and searching an index, and by the commands that do so.

Each case runs in a process of its own, whose modules tell.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

GOLDEN = Path(__file__).parent.parent / "golden"
#: Packages that a search needs no part of, each slow to import or large.
HEAVY = {"asyncio", "h5py", "llvmlite", "matplotlib", "numba", "pandas", "ray", "scipy", "sklearn"}
#: A graph, hash tables, and lists with and without codes.
INDEXES = ("v1_3", "v1_3_lsh", "v1_3_ivf", "v1_3_ivf_pq")


def loaded_by(code: str) -> set[str]:
    """Top-level packages that a process has loaded after it ran `code`."""
    told = "\nimport json, sys\nprint(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code + told], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def command(*arguments: str | Path) -> str:
    """Code that runs the command line, which ends with exit code 0."""
    words = [str(argument) for argument in arguments]
    return f"""
from indexmill.jobs.cli.main import app
try:
    app({words})
except SystemExit as ended:
    assert not ended.code, ended.code
"""


def test_importing_the_package_loads_nothing_of_others() -> None:
    assert (
        loaded_by("import indexmill") & (HEAVY | {"numpy", "pyarrow", "pydantic", "typer", "rich"}) == set()
    )


def test_a_package_that_is_loaded_is_seen() -> None:
    assert loaded_by("import indexmill.formats.kernel") & HEAVY >= {"numba", "llvmlite"}


@pytest.mark.parametrize("name", INDEXES)
def test_opening_and_searching_load_nothing_heavy(name: str) -> None:
    code = f"""
import indexmill, numpy
index = indexmill.open({str(GOLDEN / name)!r})
found = index.search(numpy.ones((2, index.dim), index.native.query_dtype), k=3)
assert found.vector_ids.shape == (2, 3)
"""
    loaded = loaded_by(code)
    assert "numpy" in loaded
    assert loaded & (HEAVY | {"pyarrow", "pydantic", "rich", "shellingham", "typer"}) == set()


@pytest.mark.parametrize("arguments", [("--help",), ("search", "--help")])
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert loaded_by(command(*arguments)) & (HEAVY - {"asyncio"}) == set()


def test_the_search_command_loads_nothing_heavy(tmp_path: Path) -> None:
    queries, found = tmp_path / "queries.npy", tmp_path / "found.parquet"
    np.save(queries, np.ones((2, 5), np.float32))
    loaded = loaded_by(command("search", GOLDEN / "v1_3", "--queries", queries, "--out", found))
    assert found.exists()
    assert "pyarrow" in loaded
    # pyarrow itself loads pandas, where it is installed, to convert arrays.
    assert loaded & (HEAVY - {"asyncio", "pandas"}) == set()
