"""What probing inverted lists reads and computes: bytes by the directories of all batches, time by a scan of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cells import nearest_cells
from indexmill.formats.errors import ConfigError
from indexmill.formats.frame import PAGE_BYTES
from indexmill.formats.ivf_batch import list_pages
from indexmill.formats.ivf_index import IvfFiles
from indexmill.pipeline.join_batches import Unread, load_batches
from indexmill.pipeline.join_search import Search, stored_queries


class ListSearch:
    """A sample of queries over an IVF index, of which the first batch is in memory.

    The scan is that of a join: a list that several queries of the sample probe is scanned once for them, so that one
    query alone takes more of the processor than its share.

    Attributes
    ----------
    reads, bytes : float
        Lists that a query reads in all batches, the empty ones left out, and bytes of their pages.
    scale : float
        Vectors of all batches over those of the first.

    Raises
    ------
    ConfigError
        If there are not so many lists.
    InputError, FormatError
        If the queries do not suit the index, or it cannot be read.
    """

    def __init__(self, path: Path, queries: NDArray[Any], k: int, nprobe: int) -> None:
        files = IvfFiles(path)
        shared = files.centroids
        if not 1 <= nprobe <= shared.n_lists:
            raise ConfigError(
                f"--nprobe: expected 1..{shared.n_lists}, the lists of {path}, got {nprobe}; probe fewer"
            )
        self._shared, self._queries, self._k, self._nprobe = shared, queries, k, nprobe
        (first,) = load_batches(files, [0])
        if isinstance(first, Unread):
            raise first.error
        self._lists = first.lists
        self.scale = shared.n_vectors / int(first.lists.sizes.sum())
        stored = np.asarray(stored_queries(shared, queries))
        self._count(files, nearest_cells(stored, shared.centroids, nprobe))
        self._search = Search(shared, queries, k, nprobe, 1)

    def _count(self, files: IvfFiles, probed: NDArray[np.uint32]) -> None:
        reads, pages = np.zeros(len(probed)), np.zeros(len(probed))
        for number in range(len(files.batches)):
            with files.open_batch(number) as batch:
                sizes = np.zeros(self._shared.n_lists, np.int64)
                sizes[batch.directory["list"]] = batch.directory["size"]
            reads += np.count_nonzero(sizes[probed], axis=1)
            pages += list_pages(sizes, self._shared.row_bytes)[probed].sum(axis=1)
        self.reads, self.bytes = float(reads.mean()), float(pages.mean()) * PAGE_BYTES

    def choose(self) -> None:
        """Find the lists that each query probes."""
        Search(self._shared, self._queries, self._k, self._nprobe, 1)

    def scan(self) -> None:
        """Scan those of the first batch."""
        self._search.run(self._lists)
