"""Machine, software and commit of a measurement."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
_LIBRARIES = ("indexmill", "numpy", "numba", "pyarrow")
#: Pathspecs that leave out what `--keep` of a benchmark writes: pages and records.
_WITHOUT_KEPT = (".", ":!docs", ":!README.md", ":!jobs/bench/records")


def machine_facts() -> dict[str, Any]:
    """Return CPU model, cores this process may use, memory and kernel."""
    return {
        "cpu": _first_value("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(_first_value("/proc/meminfo", "MemTotal").split()[0]) * 1024,
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def software_versions() -> dict[str, str]:
    """Return versions of Python, indexmill and the libraries whose speed matters."""
    return {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}


def commit(folder: Path = REPOSITORY) -> str:
    """Return the commit that is checked out, with ``+changes`` if tracked or new files differ from it.

    Pages and records do not count: a benchmark writes them, and nothing that is measured reads them. A folder that is
    no checkout, such as that of an installation, has no commit: ``"release"``.
    """
    if not (folder / ".git").exists():
        return "release"
    head = _git(folder, "rev-parse", "HEAD")
    return head + ("+changes" if _git(folder, "status", "--porcelain", "--", *_WITHOUT_KEPT) else "")


def load_average() -> float:
    """Return the load of the last minute: what else was running when a part began."""
    return round(os.getloadavg()[0], 2)


def filesystem_of(path: Path) -> str:
    """Return the type of the file system of `path` and the number of its device, such as ``"ext4 on 254:0"``."""
    device = path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except FileNotFoundError:  # no Linux
        return number
    types = [line.partition(" - ")[2].split()[0] for line in mounts if line.split()[2] == number]
    return f"{types[0] if types else 'unknown'} on {number}"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _first_value(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"
