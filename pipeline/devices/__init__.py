"""Device profiles that come with the package, known by name: those of Nakanishi et al. (EDBT 2023), and ``s3``.

``hdd``, ``cssd``, ``cssd4`` (four of them), ``essd``, ``xlfdd``, ``xlfdd12`` (twelve) are those of the paper's Tables 2
and 3. The latency is one over the IOPS at queue depth 1, the limit the IOPS at depth 128, and a request takes the
processor time of the interface: io_uring, and of XLFDD its own.

``s3`` is object storage in the same region: the first byte comes after 15 to 40 ms, a prefix takes 5,500 requests a
second, and a million of them cost 0.40 dollars. The processor time of a request was measured without encryption.
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
