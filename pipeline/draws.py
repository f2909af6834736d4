"""Streams of random numbers: with one seed, draws for different purposes are kept apart by their stream."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Queries of the certificate of a graph or LSH index, and of an IVF index.
CERTIFICATE, LISTS_CERTIFICATE = 0xCE57, 0x1F5E
#: Vectors whose nearest distances say where the radii of an LSH index begin.
NEAREST = 0x7AD1
#: Vectors whose distances from these stand for those of all.
BULK = 0xB01C
#: Vertices that an append adds to the navigation graph.
NAVIGATION = 0x7A72
#: Region of an index that orders are tried on, and queries in it.
REGION, REGION_QUERIES = 0x4E61, 0x7E57
#: Samples and queries of a tuning.
TUNING = 0x7C4E
#: The rotation of vectors before they are coded by RaBitQ.
ROTATION = 0x20A7
#: Vectors and queries by which the format of a graph index is chosen.
FORMAT = 0xF0A7
#: Vectors that foretell how a graph is cut into regions.
CUT = 0xC077


def generator(seed: int, stream: int, *more: int) -> np.random.Generator:
    """Return the generator of a stream, or of a part of it that `more` numbers."""
    return np.random.default_rng([seed, stream, *more])


def drawn_rows(seed: int, stream: int, n: int, wanted: int) -> NDArray[Any]:
    """Return `wanted` of `n` rows, or all if there are fewer, ascending: int64."""
    return np.sort(generator(seed, stream).choice(n, min(wanted, n), replace=False))
