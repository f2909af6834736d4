"""The wheel for 64-bit ARM, built on another processor, and one search with it in an emulator.

The standard library of Rust for ``aarch64-unknown-linux-gnu`` has to be there (CONTRIBUTING.md); the variable ``RUSTC``
names another compiler than that on the path, if that one has it. ``--arm-root`` is a Debian for that processor whose
packages were unpacked and not configured::

    debootstrap --arch=arm64 --foreign --variant=minbase --include=python3,libpython3-stdlib trixie DIR
    for one in DIR/var/cache/apt/archives/*.deb; do dpkg -x $one DIR; done
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.process import allocated_bytes, output_of, told
from indexmill.jobs.bench.install import wheel

MACHINE = "aarch64"
#: Vectors and queries of the search.
ROWS, DIM, QUERIES = 5_000, 64, 100
#: Opens an index and searches it; prints the ids and what it ran on.
_SEARCH = """
import json, platform, sys, numpy, indexmill
index = indexmill.open(sys.argv[1])
found = index.search(numpy.load(sys.argv[2]), k=10, L=64)
print(json.dumps({"machine": platform.machine(), "python": platform.python_version(), "ids": found.ids.tolist()}))
"""
_BUILD = """
import sys, numpy, indexmill
indexmill.build(numpy.load(sys.argv[1]), sys.argv[2], force=True)
"""


def measure(run: Run) -> dict[str, Any]:
    """Build the wheel, install it with what it needs, and search with it in the emulator and without it here.

    Raises
    ------
    ValueError
        If no root is given, or it has no Python.
    FileNotFoundError
        If there is no emulator.
    """
    root: Path | None = run.options.arm_root
    if root is None:
        raise ValueError("--arm-root: none given; name a folder as the head of arm.py says")
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        raise FileNotFoundError("qemu-aarch64: not on the path; install qemu-user or qemu-user-static")
    version = _python_of(root)
    given: Path | None = run.options.arm_wheel
    about = wheel.kept(run, MACHINE, given)
    folder = run.out / "arm"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    _install(run, version, folder / "packages")
    random = np.random.default_rng(0)
    for name, rows in (("vectors", ROWS), ("queries", QUERIES)):
        np.save(folder / f"{name}.npy", random.normal(size=(rows, DIM)).astype(np.float32))
    output_of([sys.executable, "-c", _BUILD, folder / "vectors.npy", folder / "index"])
    search = ["-c", _SEARCH, str(folder / "index"), str(folder / "queries.npy")]
    here = told([sys.executable, *search])
    emulated = [
        emulator,
        "-L",
        root,
        "-E",
        f"PYTHONPATH={folder / 'packages'}",
        root / f"usr/bin/python{version}",
    ]
    began = time.perf_counter()
    there = told([*map(str, emulated), *search])
    seconds = time.perf_counter() - began
    same = [a == b for a, b in zip(here.pop("ids"), there.pop("ids"), strict=True)]
    return {
        **about,
        "installed_bytes": allocated_bytes(folder / "packages"),
        "emulator": output_of([emulator, "--version"]).splitlines()[0],
        "here": here,
        "there": there,
        "search_s": seconds,
        "queries": len(same),
        "same": sum(same),
    }


def _python_of(root: Path) -> str:
    """Return the version of the Python of a root, such as ``3.13``."""
    found = sorted(root.glob("usr/bin/python3.*[0-9]"))
    if not found:
        raise ValueError(
            f"--arm-root: {root} has no usr/bin/python3.N; unpack its packages, as the head of arm.py says"
        )
    return found[0].name.removeprefix("python")


def _install(run: Run, version: str, folder: Path) -> None:
    """Install the wheel and what it needs, as wheels for the other processor, into a folder."""
    minors = range(int(wheel.GLIBC.partition(".")[2]), 16, -1)
    platforms = [f"--platform=manylinux_2_{minor}_{MACHINE}" for minor in minors]
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-compile", "--only-binary=:all:",
        "--implementation=cp", f"--python-version={version}", *platforms, f"--platform=manylinux2014_{MACHINE}",
        "--target", folder, wheel.wheel_of(run, MACHINE),
    ]  # fmt: skip
    output_of(command)
