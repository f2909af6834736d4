"""Orders of another engine's inverted lists: lists that a query probes together lie side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.formats.reordered.faiss_ivf import FaissIvf
from indexmill.layout.order import Adjacency
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.reorder.arrangement import Arrangement
from indexmill.pipeline.reorder.outcome import ReorderedLists

#: Orders that need no edges, which lists have not; the first one by default.
ORDERS_OF_LISTS = ("kmeans-pages", "identity", "random")
#: Lists differ in length, so no number of them fills a page. An order is made down to the single list, and near groups
#: of any number lie side by side.
_GROUP = 1


class ListArrangement(Arrangement):
    """An order of lists, made of their centroids.

    Equal centroids keep the order of their numbers in the default order, so that faiss decides between them as before.
    """

    def __init__(self, file: FaissIvf, name: str | None) -> None:
        super().__init__(file, name or ORDERS_OF_LISTS[0], _GROUP, 0)

    def lists(self, scratch: Path, progress: Progress) -> Adjacency:
        """Return no neighbours."""
        n = self._file.n
        return Adjacency(np.zeros((n, 0), np.uint32), create_npy(scratch / "degrees.npy", np.int32, (n,)))

    def outcome(self, order: NDArray[np.uint32]) -> ReorderedLists:
        """See `Arrangement`."""
        found = super().outcome(order)
        return ReorderedLists(**vars(found), lists=order.tolist())

    def _check(self) -> None:
        if self.name not in ORDERS_OF_LISTS:
            raise ConfigError(
                f"order: {self.name} is made of edges, and {self._file.path} ({self._file.kind}) has none; choose one "
                f"of {', '.join(ORDERS_OF_LISTS)}"
            )
