"""The common form of imported indexes of inverted lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.ivf.centroids import Centroids


@dataclass(frozen=True)
class ImportedLists:
    """Inverted lists of another program.

    Attributes
    ----------
    kind : str
        Name in the manifest: ``faiss-ivf-flat``, ``faiss-ivf-sq``, ``faiss-ivf-pq`` or ``faiss-ivf-rabitq``.
    files : tuple of Path
        All files read.
    shared : Centroids
        Centroids and codec of an index with one batch. `max_norm` is still unknown, as is whether vectors are in
        several lists: `n_vectors` counts rows.
    sizes : int64 array, shape (n_lists,)
        Number of rows of each list.
    names : callable
        ``names(number)``: the program's ids of the vectors of a list, int64 (size,), mapped.
    rows : callable
        ``rows(number, chosen)``: the rows at the chosen places of a list, in our encoding: uint8 (m, row_bytes).
    """

    #: Kind of the index that it becomes.
    becomes: ClassVar = "ivf"

    kind: str
    files: tuple[Path, ...]
    shared: Centroids
    sizes: NDArray[np.int64]
    names: Callable[[int], NDArray[np.int64]]
    rows: Callable[[int, NDArray[Any]], NDArray[np.uint8]]
