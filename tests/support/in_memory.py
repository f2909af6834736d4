"""Whether files of tests may lie in memory."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

_MEMINFO, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def has_room(folder: Path, n_bytes: int) -> bool:
    """Return whether a file system in memory has `n_bytes` free, the machine too, and programs may run from there."""
    if not folder.is_dir() or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return min(shutil.disk_usage(folder).free, _available(), _left_to_group()) >= n_bytes


def _available() -> float:
    found = re.search(r"^MemAvailable: +(\d+) kB$", _MEMINFO.read_text(), re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def _left_to_group() -> float:
    """Return what the control group of a container may still take."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        return float("inf") if limit == "max" else int(limit) - int((_CGROUP / "memory.current").read_text())
    except FileNotFoundError:  # no container, or one of the first version of groups
        return float("inf")
