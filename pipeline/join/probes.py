"""The number of lists to probe for a wanted recall, learnt from where true neighbours lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.cells import nearest_cells
from indexmill.builders.lists.scan import Nearest, nothing, united
from indexmill.builders.nearest.panels import NOTHING
from indexmill.formats.errors import InputError
from indexmill.formats.ivf.index import IvfFiles
from indexmill.pipeline.join.batches import Loaded, every_batch
from indexmill.pipeline.join.queries import Queries
from indexmill.pipeline.join.search import Search
from indexmill.pipeline.kinds.common.recall import mean_recall
from indexmill.pipeline.kinds.ivf.certify import list_recalls, ranks_of
from indexmill.pipeline.mill.progress import Progress

#: Queries that teach.
SAMPLE = 200


@dataclass(frozen=True)
class Learnt:
    """A number of lists to probe, and the recall of the queries it was learnt from, with the 95% interval."""

    nprobe: int
    recall: float
    recall_low: float
    recall_high: float
    learnt_from: int


def learn_nprobe(
    files: IvfFiles, queries: Queries, k: int, recall: float, threads: int, progress: Progress
) -> Learnt:
    """Return the fewest lists with which the mean recall of at most 200 evenly spaced queries is at least `recall`.

    One pass over all batches finds their true neighbours, by the distances of the lists' codec, and with them the
    lists they lie in.

    Raises
    ------
    CorruptFile
        If batches cannot be read; it names all.
    InputError
        If all vectors were deleted.
    """
    if files.manifest.n_deleted == files.centroids.n_vectors:
        raise InputError(f"recall: all vectors of {files.path} were deleted; there is nothing to learn from")
    chosen = np.unique(np.linspace(0, len(queries) - 1, min(SAMPLE, len(queries))).astype(np.int64))
    sample = np.concatenate([queries.block(row, row + 1) for row in chosen.tolist()])
    search = Search(files.centroids, k, files.centroids.n_lists, threads)
    best = nothing(len(chosen), k)
    ids = cells = np.empty(0, np.uint32)

    def refused(unread: int) -> tuple[str, str]:
        return (
            f"recall: cannot be learnt while batches of {files.path} cannot be read:",
            "restore these files and run again, or say --nprobe in place of --recall to search the others now",
        )

    for batch in every_batch(files, progress, "learn", refused):
        nearest = search.run(batch.lists, sample, None)
        best = united([best, nearest], k)
        more = _homes(batch, nearest.ids[np.isin(nearest.ids, best.ids)])
        ids, cells = np.concatenate([ids, more[0]]), np.concatenate([cells, more[1]])
        kept = np.isin(ids, best.ids)
        ids, cells = ids[kept], cells[kept]
    order = np.argsort(ids, kind="stable")
    return _fewest(files, sample, best, ids[order], cells[order], recall, threads)


def _fewest(
    files: IvfFiles, sample: NDArray[Any], best: Nearest, ids: NDArray[np.uint32], cells: NDArray[np.uint32],
    recall: float, threads: int,
) -> Learnt:  # fmt: skip
    """Return the fewest lists that hold enough of the neighbours, given their ids, ascending, and the list of each."""
    there = best.ids != NOTHING
    wanted = np.where(there, best.ids, ids[0])
    known = np.searchsorted(ids, wanted)
    n_lists = files.centroids.n_lists
    places = nearest_cells(sample, files.centroids.centroids, n_lists, threads)
    ranks = np.full(wanted.shape, n_lists)
    for copy in range(files.centroids.copies):
        at = np.minimum(known + copy, len(ids) - 1)
        ranks = np.where(ids[at] == wanted, np.minimum(ranks, ranks_of(cells[at], places)), ranks)
    ranks = np.where(there, ranks, -1)
    recalls = list_recalls(ranks, n_lists)
    nprobe = min(int(np.searchsorted(recalls.mean(axis=0), recall - 1e-9)) + 1, n_lists)
    measured = mean_recall(recalls[:, nprobe - 1])
    return Learnt(nprobe, measured.mean, measured.low, measured.high, len(sample))


def _homes(batch: Loaded, ids: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return some vector ids of a batch, each for every list it lies in, and these lists."""
    found = np.isin(batch.lists.ids, ids[ids != NOTHING])
    return batch.lists.ids[found], np.repeat(batch.lists.names, batch.lists.sizes)[found]
