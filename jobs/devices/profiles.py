"""The device that a path lies on, and the file that keeps its profile."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indexmill.formats.device import DeviceProfile

#: Every mount of this process, one a line; proc(5) has its fields. Linux only.
MOUNTS = Path("/proc/self/mountinfo")


def device_of(path: str | Path, mounts: Path = MOUNTS) -> str:
    """Name what `path` lies on: the source of its mount, such as ``"/dev/nvme0n1p2"`` or ``"server:/export"``.

    A mount with a mere word as its source is named with its place too (``"overlay at /"``); without a mount table, or
    without `path` in it, the system's device number stands for the name. A block device is its own name.
    """
    real = Path(os.path.realpath(path))
    if real.is_block_device():
        return str(real)
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        lines = []
    best, depth = "", -1
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, source = left.split(), right.split()
        if len(fields) < 5 or len(source) < 2:
            continue
        point = Path(_unescaped(fields[4]))
        if real.is_relative_to(point) and len(point.parts) >= depth:  # a later mount hides an earlier one
            name, depth = _unescaped(source[1]), len(point.parts)
            best = name if "/" in name or ":" in name else f"{name} at {point}"
    return best or f"device {os.stat(real).st_dev}"


def _unescaped(field: str) -> str:
    """Undo the mount table's escapes of blanks and backslashes, three octal digits each."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def host_name() -> str:
    """Name of this machine."""
    return platform.node() or "unknown host"


def kept_profile_path(path: str | Path) -> Path:
    """Path of this user's profile of the device under `path`, whether there is one or not."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    key = f"{host_name()} {device_of(path)}"
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", key).strip("-.")
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return cache / "indexmill" / "devices" / f"{readable}-{digest}.json"


def find_profile(path: str | Path) -> DeviceProfile | None:
    """Read the kept profile of the device under `path`; None if there is none.

    Raises
    ------
    FormatError, ConfigError
        If there is one that cannot be used.
    """
    kept = kept_profile_path(path)
    if not kept.exists():
        return None
    from indexmill.formats.device import read_profile

    return read_profile(kept)


def device_profile(index: Path, given: Path | None, engine: str) -> tuple[DeviceProfile | None, str | None]:
    """Find the profile of the device that an index is read from, or say how to get one.

    A profile that is named counts first, then that of a simulated engine, then the one kept for the device under
    the index; if that one cannot be used, a hint says so.

    Raises
    ------
    InputError, FormatError, ConfigError
        If a named profile cannot be read.
    """
    from indexmill.formats.device import read_profile
    from indexmill.formats.errors import IndexmillError
    from indexmill.jobs.search.engines import simulated_profile
    from indexmill.pipeline.devices import profile_path

    if given is not None:
        return read_profile(profile_path(given)), None
    simulated = simulated_profile(engine)
    if simulated is not None:  # what was measured for it is of another device
        return read_profile(simulated).model_copy(update={"measured": None}), None
    try:
        found = find_profile(index)
    except IndexmillError as error:
        return None, f"device: {error}"
    hint = f"device: not measured yet; run: indexmill device {index}" if found is None else None
    return found, hint
