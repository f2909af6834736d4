"""A set of vectors with others after them, and its truth, which is merged from those of both."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.jobs.bench.common.dataset import (
    TRUTH_K,
    Dataset,
    read_bin,
    read_truth,
    write_blocks,
    write_neighbours,
)
from indexmill.jobs.bench.common.parameters import THREADS

#: Rows copied at a time.
_ROWS = 1 << 16


def grown(data: Dataset, added: Path, folder: Path) -> Dataset:
    """Write the vectors of `data` and those of `added` after them into `folder`, with the queries and the truth."""
    both, more = Dataset(folder), read_bin(added)
    folder.mkdir(parents=True, exist_ok=True)
    base = read_bin(data.base)
    write_blocks(
        folder / data.base.name,
        (len(base) + len(more), base.shape[1]),
        chain.from_iterable(
            (one[first : first + _ROWS] for first in range(0, len(one), _ROWS)) for one in (base, more)
        ),
    )
    (folder / data.query.name).unlink(missing_ok=True)
    os.link(data.query, folder / data.query.name)
    queries = np.asarray(read_bin(data.query))
    ids, distances = exact_neighbours(more, queries, min(TRUTH_K, len(more)), THREADS)
    write_neighbours(both.truth, *merged(read_truth(data.truth), (ids + np.uint32(len(base)), distances)))
    return both


def merged(first: tuple[Any, Any], second: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the nearest of two lists of neighbours for each query, as many as the longer has; of equal ones the first.

    Both are ids and distances, shape (n_queries, any), nearest first.
    """
    k = max(first[0].shape[1], second[0].shape[1])
    ids, distances = (np.concatenate([a, b], axis=1) for a, b in zip(first, second, strict=True))
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(ids, nearest, 1), np.take_along_axis(distances, nearest, 1)
