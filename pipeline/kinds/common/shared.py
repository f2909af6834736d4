"""Codes in common of the parts of a set: the range of components, a codebook, and the choice of a format.

Stage *ingest* of a part puts it beside the vectors. Stages that would train a codebook there take the one that they
find, and scales are fitted to the range that is common to all parts.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

#: A codebook, in the directory of any stage that has one.
CODEBOOK_NAME = "codebook.npz"


class Range(NamedTuple):
    """The vectors of a set as *ingest* stores them.

    Attributes
    ----------
    minimum, maximum : list of float
        Of each stored component.
    squared_norm : float
        The largest (metric ip; else 0), before a component is added.
    """

    minimum: list[float]
    maximum: list[float]
    squared_norm: float


class Shared(NamedTuple):
    """What the parts of a set have in common.

    Attributes
    ----------
    range : Range
    files : tuple of Path
        Those that stage *ingest* of a part puts beside the vectors, perhaps a codebook.
    """

    range: Range
    files: tuple[Path, ...] = ()

    @property
    def digest(self) -> str:
        """64 hex digits: the SHA-256 of the range, of the arrays of the codebook, and of other files as they are."""
        found = hashlib.sha256(json.dumps(self.range).encode())
        for file in self.files:
            if file.name != CODEBOOK_NAME:
                found.update(f"{file.name}\n".encode() + file.read_bytes())
                continue
            with np.load(file) as arrays:
                for name in sorted(arrays.files):
                    found.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}\n".encode())
                    found.update(arrays[name].tobytes())
        return found.hexdigest()
