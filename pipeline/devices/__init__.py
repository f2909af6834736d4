"""Device profiles that come with the package, known by name: those of Nakanishi et al. (EDBT 2023), Tables 2 and 3.

``hdd``, ``cssd``, ``cssd4`` (four of them), ``essd``, ``xlfdd``, ``xlfdd12`` (twelve). The latency is one over the
IOPS at queue depth 1, the limit the IOPS at depth 128, and a request takes the processor time of the interface:
io_uring, and of XLFDD its own.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent


def profile_names() -> list[str]:
    """Names of the profiles, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def profile_path(name: str | Path) -> Path:
    """Return the file of the profile called `name`; any other name is taken for a path."""
    return _FOLDER / f"{name}.json" if str(name) in profile_names() else Path(name)
