"""The reader compiled from this repository with the names of its functions: for profiles, and for C programs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.process import output_of
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.jobs.devices.machine import REPOSITORY

READER = REPOSITORY / "reader"
_RELEASE = READER / "target" / "release"
#: Option of the C programs that skips what a big-ann file has before its vectors; a later one replaces it.
SKIP = "skip=8"
_FIGURE = re.compile(r"(\w+)=([\d.]+)")
_PEAK = re.compile(r"^peak memory: ([\d.]+) MiB; the index holds ([\d.]+) MiB$", re.MULTILINE)


def skip_to(queries: Path, first: int) -> str:
    """Return the option of the C programs that also skips the queries before `first`."""
    vectors = read_bin(queries)
    return f"skip={vectors.offset + first * vectors.strides[0]}"


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
    return _c_program(space, READER / "capi" / "examples" / "search.c")


def rates_of_callers(
    space: Workspace, index: Path, queries: Path, options: Sequence[str]
) -> list[dict[str, float]]:
    """Search with 64 threads and with one call of 64 queries, in turns; see ``callers.c``.

    Returns
    -------
    list of dict
        Of each round, ``batch`` and ``callers``: queries a second; ``batch_cpu_us`` and ``callers_cpu_us``: processor
        time a query.

    Raises
    ------
    RuntimeError
        If the program does not compile, fails or tells nothing.
    """
    return _told(space, "callers.c", [index, queries, SKIP, *options])["round"]


def memory_of_search(
    program: Path, index: Path, queries: Path, options: Sequence[str]
) -> tuple[float, float]:
    """Search all queries of a big-ann file with the C example, unless an option skips some.

    Returns
    -------
    peak, held : float
        Bytes of its high-water mark of resident memory (VmHWM) at its end, and those of them that the index holds.

    Raises
    ------
    RuntimeError
        If the program fails or does not tell.
    """
    text = output_of([program, index, queries, SKIP, *options])
    told = _PEAK.search(text)
    if told is None:
        raise RuntimeError(f"{program}: told no peak memory: {text[-500:]}")
    peak, held = (float(value) * 2**20 for value in told.groups())
    return peak, held


def cost_of_opening(
    space: Workspace, index: Path, queries: Path, options: Sequence[str]
) -> tuple[list[float], dict[str, float]]:
    """Open an index to search all queries twice, then many times more; see ``opening.c``.

    Returns
    -------
    rounds : list of float
        Milliseconds that each opening took.
    resident : dict
        Bytes: ``before``, ``opened``, ``searched`` and ``again`` (searched twice), VmRSS of the program;
        ``memory_bytes``, what the index says.

    Raises
    ------
    RuntimeError
        If the program does not compile, fails or tells nothing.
    """
    told = _told(space, "opening.c", [index, queries, SKIP, *options])
    return [found["open_ms"] for found in told["round"]], told["bytes"][0]


def _told(space: Workspace, source: str, arguments: Sequence[object]) -> dict[str, list[dict[str, float]]]:
    """Run a C program of this folder; return the figures of its lines, ``round 1: a=1.5 b=2``, by their first word.

    Raises
    ------
    RuntimeError
        If the program does not compile, fails or tells nothing.
    """
    program = _c_program(space, Path(__file__).with_name(source))
    text = output_of([program, *arguments])
    told: dict[str, list[dict[str, float]]] = {}
    for line in text.splitlines():
        if found := _FIGURE.findall(line):
            figures = {name: float(value) for name, value in found}
            told.setdefault(line.partition(" ")[0].rstrip(":"), []).append(figures)
    if not told:
        raise RuntimeError(f"{program}: told nothing: {text[-500:]}")
    return told


def _c_program(space: Workspace, source: Path) -> Path:
    _cargo("indexmill-capi")
    include = READER / "capi" / "include"
    version = re.search(r"#define IM_ABI_VERSION (\d+)", (include / "indexmill.h").read_text())
    assert version is not None
    out = space.out / "c-programs" / source.stem
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    library = f"libindexmill.so.{version[1]}"
    shutil.copy(_RELEASE / "libindexmill.so", out / library)
    (out / "libindexmill.so").symlink_to(library)
    paths = [f"-I{include}", f"-L{out}", f"-Wl,-rpath,{out}"]
    program = out / source.stem
    compiler = os.environ.get("CC", "cc")
    output_of([compiler, "-std=c11", "-O2", source, *paths, "-lindexmill", "-pthread", "-o", program], READER)
    return program


def _cargo(package: str) -> None:
    output_of(["cargo", "build", "--quiet", "--release", "--locked", "-p", package], READER)
