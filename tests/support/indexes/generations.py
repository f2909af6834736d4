"""The generations of an index, by number and by folder."""

from __future__ import annotations

import os
from pathlib import Path

from indexmill.pipeline.generations.history import history


def numbers(index: Path) -> list[int]:
    """The generations of an index, oldest first; none may be damaged."""
    found, damaged = history(index)
    assert damaged == []
    return [one.manifest.generation for one in found]


def folders(index: Path) -> list[str]:
    """The names of the folders of earlier generations."""
    place = index / "generations"
    return sorted(os.listdir(place)) if place.exists() else []
