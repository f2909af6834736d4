"""INDEXMILL_ISA: each unit that this machine has gives the same bytes, and any other is refused by name."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.builds import data_files
from tests.support.units import INDEXES

IMPORT = ("-c", "import indexmill.reader.native")


def run(unit: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "INDEXMILL_ISA": unit},
        capture_output=True,
        text=True,
        check=False,
    )


def offered() -> list[str]:
    """The units of this machine, as a refusal lists them."""
    listed = re.search(r"has \((.*?)\)", run("none", *IMPORT).stderr)
    assert listed is not None
    return listed[1].split(", ")


def test_every_unit_gives_the_same_bytes(tmp_path: Path) -> None:
    written: dict[str, dict[str, Any]] = {}
    for unit in offered():
        out = tmp_path / unit
        out.mkdir()
        done = run(unit, "-m", "tests.support.units", out)
        assert done.returncode == 0, done.stderr
        told = json.loads((out / "unit.json").read_text())
        assert told["name"] == unit
        record = json.loads((out / "index/run.json").read_text())
        assert record["host"]["unit"] == {key: value for key, value in told.items() if value is not None}
        written[unit] = {name: array.tobytes() for name, array in np.load(out / "kernels.npz").items()}
        for index in INDEXES:
            written[unit] |= {f"{index}/{name}": data for name, data in data_files(out / index).items()}
    assert "scalar" in written
    assert len(written) > 1 or platform.machine() not in ("x86_64", "aarch64")
    for unit, files in written.items():
        assert files == written["scalar"], unit


@pytest.mark.parametrize("unit", ["sse9", "AVX2", "neon" if platform.machine() == "x86_64" else "avx2"])
def test_a_unit_that_is_not_there_is_refused_by_name(unit: str) -> None:
    done = run(unit, *IMPORT)
    error = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert error.startswith("indexmill.formats.errors.ConfigError: INDEXMILL_ISA: expected a unit that host ")
    for part in (socket.gethostname(), f'got "{unit}"', "(scalar"):
        assert part in error


def test_the_widest_unit_is_used_unless_one_is_named() -> None:
    code = "from indexmill.reader import native; print(native.unit()['name'])"
    assert run("", "-c", code).stdout.strip() == offered()[-1]


REFUSED = """
import sys
from importlib import import_module
from indexmill.reader import _native
refused = {**_native.unit(), "note": "this CPU has AMX, but the system does not save its registers"}
_native.unit = lambda: refused
for module in sys.argv[1:]:
    import_module(f"indexmill.{module}")
"""


@pytest.mark.parametrize(
    "module",
    ["pipeline.append.run", "pipeline.merge.run", "pipeline.join.tasks", "pipeline.join.truth",
     "pipeline.kinds.graph.size", "pipeline.kinds.ivf.size"],
)  # fmt: skip
def test_every_process_that_computes_warns_once_of_a_wider_unit_that_the_system_refuses(module: str) -> None:
    done = run("", "-c", REFUSED, module, "builders.quantize.pq")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "UserWarning" in line]
    assert f"{socket.gethostname()}: this CPU has AMX, but the system does not save its registers" in line
    assert "; products are computed by " in line


def test_a_wider_unit_that_the_system_refuses_ends_no_run_where_warnings_are_errors() -> None:
    done = run("", "-W", "error::UserWarning", "-c", REFUSED, "builders.quantize.pq")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("level", ["avx2", "avx512", "neon"])
def test_kernels_that_the_compiler_makes_for_a_level_fuse_products_and_sums(level: str) -> None:
    # Without it, `mul_add` is a call for each component: a prune of long float rows took five times as long.
    text = (Path(__file__).parents[3] / f"reader/core/src/distance/{level}.rs").read_text()
    (features,) = re.findall(r'portable_kernels!\(#\[target_feature\(enable = "([\w,]+)"\)\]\);', text)
    assert {"fma", "avx512f", "neon"} & set(features.split(","))
