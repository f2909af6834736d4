"""The vectors that are added to inverted lists: ingested, checked, and assigned to the lists that there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.cells import Cells
from indexmill.builders.cluster.closure import closure_cells
from indexmill.builders.quantize.scalar import Scale
from indexmill.formats.ivf.centroids import Centroids
from indexmill.formats.sources.source import VectorBatch, VectorSource
from indexmill.pipeline.append.checked import check_range
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.append.vectors import NewVectors, StoredForm, read_vectors
from indexmill.pipeline.generations.node_space import SCALE_SLACK
from indexmill.pipeline.mill.progress import Progress

#: Rows whose lists are found at a time.
_BLOCK = 8192


def read_new(
    index: OpenedLists, source: VectorSource, scratch: Path, progress: Progress, replace: bool
) -> tuple[NewVectors, int]:
    """Read `source` as `read_vectors`; return also how many vectors an sq8 scale cuts off at its ends.

    Raises
    ------
    InputError
        As `read_vectors`, and on a component far beyond the range of sq8.
    """
    shared, clipped = index.files.centroids, 0
    scale = None if shared.scale is None else Scale(shared.scale[0], shared.scale[1], 8)

    def check_scale(batch: VectorBatch, rows: NDArray[Any]) -> None:
        nonlocal clipped
        assert scale is not None
        beyond = outside(scale, rows, SCALE_SLACK)
        check_range(batch, rows, beyond, index.name, lambda j: range_of(scale, j), "sq8 lists")
        clipped += int(outside(scale, rows).any(axis=1).sum())

    form = StoredForm(shared.metric, shared.max_norm, shared.dim)
    check = None if scale is None else check_scale
    return read_vectors(index, form, source, scratch, progress, replace, check), clipped


def outside(scale: Scale, rows: NDArray[Any], slack: float = 0.0) -> NDArray[np.bool_]:
    """Return which components (m, dim) lie outside of the range of `scale`, with `slack` of it allowed."""
    reach = scale.step * np.float32(2**scale.bits - 1)
    # Rounding of the step can leave the build's own maximum a little beyond the last code.
    low, high = scale.minimum - (slack + 1e-6) * reach, scale.minimum + (1 + slack + 1e-6) * reach
    beyond: NDArray[np.bool_] = (rows < low) | (rows > high)
    return beyond


def range_of(scale: Scale, component: int) -> str:
    """Describe the values that lists of sq8 hold in `component`."""
    low, step = float(scale.minimum[component]), float(scale.step[component])
    return f"{low:g} to {low + step * (2**scale.bits - 1):g} (sq8), give or take {SCALE_SLACK:.0%} of that"


def assigned(
    shared: Centroids, closure: float, stored: NDArray[Any], threads: int, advance: Callable[[int], None]
) -> NDArray[np.uint32]:
    """Return the lists of each vector, uint32 (m, copies): see `closure_cells`, whose slack is `closure`."""
    dtype = stored.dtype if shared.rotation is None else np.dtype(np.float32)
    cells = Cells(shared.centroids, dtype)
    labels = np.empty((len(stored), shared.copies), np.uint32)
    for at in range(0, len(stored), _BLOCK):
        some = shared.compared(np.asarray(stored[at : at + _BLOCK]))
        if shared.copies == 1:
            labels[at : at + _BLOCK, 0] = cells.nearest(some, threads)
        else:
            labels[at : at + _BLOCK] = closure_cells(some, shared.centroids, shared.copies, closure)
        advance(len(some))
    return labels
