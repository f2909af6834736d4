"""The reader compiled from this repository with the names of its functions: for profiles, and for C programs."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from indexmill.jobs.bench.common.process import output_of
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
    output_of([compiler, "-std=c11", "-O2", source, *paths, "-lindexmill", "-o", program], READER)
    return program


def _cargo(package: str) -> None:
    output_of(["cargo", "build", "--quiet", "--release", "--locked", "-p", package], READER)
