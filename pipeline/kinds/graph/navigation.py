"""Stage *navigation*: a sample of the vectors and a small graph over it, in vector ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.vamana.navigation import (
    build_navigation,
    in_slot_order,
    navigation_sample,
    with_asked,
)
from indexmill.formats.graph.navigation import Navigation
from indexmill.pipeline.kinds.graph.tasks import load_graph, save_graph

VERSION = 4


def navigation_task(
    vectors: str, fraction: float, seed: int, nearest: str | None, out: str, threads: int
) -> None:
    """Write ``sample.npy``, ascending vector ids, and the graph whose vertices are its rows.

    Parameters
    ----------
    nearest : str, optional
        File of the vectors nearest to the queries of a sample, from which half of the vertices are drawn.
    """
    rows = np.load(vectors, mmap_mode="r")
    sample = navigation_sample(fraction, len(rows), seed)
    if nearest is not None:
        sample = with_asked(sample, np.load(nearest, mmap_mode="r")[:, 0], seed)
    np.save(Path(out) / "sample.npy", sample)
    save_graph(build_navigation(rows[sample], seed=seed, threads=threads), Path(out))


def load_navigation(directory: Path, slots: NDArray[np.uint32]) -> Navigation:
    """Return what `navigation_task` wrote, in slots; ``slots[vector_id]`` is the slot of a vector."""
    return in_slot_order(load_graph(directory), slots[np.load(directory / "sample.npy")])
