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
from tests.support.indexes.builds import build, clustered, data_files

from indexmill.pipeline import build as builds
from indexmill.reader import native

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
        arrays = {name: array.tobytes() for name, array in np.load(out / "kernels.npz").items()}
        written[unit] = arrays | data_files(out / "index")
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


def test_a_build_warns_of_a_wider_unit_that_the_system_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {**native.unit(), "note": "this CPU has AMX, but the system does not save its registers"}
    monkeypatch.setattr(builds, "unit", lambda: refused)
    with pytest.warns(UserWarning, match="does not save its registers; products are computed by"):
        build(tmp_path / "ix", clustered(300, 8, "uint8"))


@pytest.mark.parametrize("level", ["avx2", "avx512", "neon"])
def test_kernels_that_the_compiler_makes_for_a_level_fuse_products_and_sums(level: str) -> None:
    # Without it, `mul_add` is a call for each component: a prune of long float rows took five times as long.
    text = (Path(__file__).parents[3] / f"reader/core/src/distance/{level}.rs").read_text()
    (features,) = re.findall(r'portable_kernels!\(#\[target_feature\(enable = "([\w,]+)"\)\]\);', text)
    assert {"fma", "avx512f", "neon"} & set(features.split(","))
