"""Product codes of inverted lists decoded row by row, and the search that measures what they stand for."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.oracles.files.lists import read_list
from tests.oracles.ivf import nearest_cells

from indexmill.formats.ivf.centroids import Centroids
from indexmill.formats.ivf.index import IvfFiles


def decoded(shared: Centroids, cell: int, row: NDArray[np.uint8]) -> NDArray[np.float64]:
    """The vector that a row of a list stands for, rotated as centroids are."""
    assert shared.codebook is not None
    vector = shared.centroids[cell].astype(np.float64)
    for chunk, (first, last) in enumerate(pairwise(shared.codebook.offsets.tolist())):
        vector[first:last] += shared.codebook.pivots[row[chunk], first:last]
    return vector


def rows_of(index: Path) -> NDArray[np.float64]:
    """What the last row of each vector stands for, turned back: (n_vectors, dim as stored)."""
    files = IvfFiles(index)
    shared = files.centroids
    rows = np.empty((shared.n_vectors, shared.dim))
    for number in range(len(files.batches)):
        with files.open_batch(number) as batch:
            for place in np.flatnonzero(batch.directory["size"]).tolist():
                cell = int(batch.directory["list"][place])
                for vector, row in zip(*read_list(batch, place), strict=True):
                    rows[vector] = decoded(shared, cell, row)
    return rows if shared.rotation is None else rows @ shared.rotation.T.astype(np.float64)


def search(
    index: Path, queries: NDArray[np.float32], nprobe: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Vector ids and scores of the k nearest in the nearest lists, (n_queries, k), ties by id."""
    files = IvfFiles(index)
    shared = files.centroids
    asked = queries.astype(np.float64)
    if shared.metric == "cosine":
        asked /= np.linalg.norm(asked, axis=1)[:, None]
    if shared.metric == "ip":
        asked = np.column_stack([asked, np.zeros(len(asked))])
    if shared.rotation is not None:
        asked = asked @ shared.rotation
    probed = nearest_cells(asked, shared.centroids, nprobe)
    keys = np.full((len(asked), shared.n_vectors), np.inf)
    for number in range(len(files.batches)):
        with files.open_batch(number) as batch:
            for place in np.flatnonzero(batch.directory["size"]).tolist():
                cell = int(batch.directory["list"][place])
                probing = (probed == cell).any(axis=1)
                for vector, row in zip(*read_list(batch, place), strict=True):
                    value = decoded(shared, cell, row)
                    found = -(asked @ value) if shared.metric == "ip" else ((asked - value) ** 2).sum(axis=1)
                    keys[probing, vector] = np.minimum(keys[probing, vector], found[probing])
    order = np.argsort(keys, axis=1, kind="stable")[:, :k]
    least = np.take_along_axis(keys, order, 1)
    scores = {"l2": least, "cosine": 1 - least / 2, "ip": -least}[shared.metric]
    return np.where(np.isinf(least), -1, order), np.where(np.isinf(least), np.nan, scores)
