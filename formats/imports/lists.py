"""What an index of inverted lists of another program is to us."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.ivf.centroids import Centroids


@dataclass(frozen=True)
class ImportedLists:
    """Inverted lists as another program left them.

    Attributes
    ----------
    kind : str
        What the manifest calls it: ``faiss-ivf-flat``, ``faiss-ivf-sq`` or ``faiss-ivf-pq``.
    files : tuple of Path
        All that was read.
    shared : Centroids
        In our terms, as one batch; `max_norm` is not known yet, nor whether vectors stand in several lists:
        `n_vectors` counts rows.
    sizes : int64 array, shape (n_lists,)
        Rows of each list.
    names : callable
        ``names(number)``: what the program calls the vectors of a list, int64 (size,), mapped.
    rows : callable
        ``rows(number, chosen)``: some rows of a list, by their places, as our lists keep them: uint8 (m, row_bytes).
    """

    kind: str
    files: tuple[Path, ...]
    shared: Centroids
    sizes: NDArray[np.int64]
    names: Callable[[int], NDArray[np.int64]]
    rows: Callable[[int, NDArray[Any]], NDArray[np.uint8]]
