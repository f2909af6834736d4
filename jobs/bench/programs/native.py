"""The reader compiled from this repository with the names of its functions: for profiles, and for C programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.jobs.devices.machine import REPOSITORY

READER = REPOSITORY / "reader"
_RELEASE = READER / "target" / "release"


def python_module() -> Path:
    """Compile and return ``indexmill.reader._native``; what pip installs has its symbols stripped.

    Raises
    ------
    RuntimeError
        If it does not compile.
    """
    _cargo("indexmill-py")
    return _RELEASE / "lib_native.so"


def c_example(space: Workspace) -> Path:
    """Compile ``reader/capi/examples/search.c`` against the optimised library; return the program.

    Raises
    ------
    RuntimeError
        If either does not compile.
    """
    _cargo("indexmill-capi")
    include = READER / "capi" / "include"
    version = re.search(r"#define IM_ABI_VERSION (\d+)", (include / "indexmill.h").read_text())
    assert version is not None
    out = space.out / "c-example"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    library = f"libindexmill.so.{version[1]}"
    shutil.copy(_RELEASE / "libindexmill.so", out / library)
    (out / "libindexmill.so").symlink_to(library)
    paths = [f"-I{include}", f"-L{out}", f"-Wl,-rpath,{out}"]
    program, source = out / "search", READER / "capi" / "examples" / "search.c"
    compiler = os.environ.get("CC", "cc")
    _run([compiler, "-std=c11", "-O2", source, *paths, "-lindexmill", "-o", program], READER)
    return program


def _cargo(package: str) -> None:
    _run(["cargo", "build", "--quiet", "--release", "--locked", "-p", package], READER)


def _run(command: list[object], folder: Path) -> None:
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        shown = " ".join(map(str, command))
        raise RuntimeError(f"exit code {done.returncode} of: {shown}\n{done.stderr[-3000:]}")
