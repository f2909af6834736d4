"""A set of vectors with others after them, and its truth, which is merged from those of both."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path

import numpy as np

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.lists.scan import Nearest, united
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


def appended_set(data: Dataset, added: Path, folder: Path) -> Dataset:
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
    old_ids, old_distances = read_truth(data.truth)
    k = max(old_ids.shape[1], ids.shape[1])
    parts = [(old_distances, old_ids), (distances, ids + np.uint32(len(base)))]
    near = united([Nearest(keys.astype(np.float64), found) for keys, found in parts], k)
    write_neighbours(both.truth, near.ids, near.keys)
    return both
