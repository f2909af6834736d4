"""Orders of the vertices of another engine's graph."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.formats.reordered.graph_file import GraphFile
from indexmill.layout.order import Adjacency
from indexmill.layout.portfolio import NEEDS_POINTS
from indexmill.pipeline.mill.progress import Progress, stage_progress
from indexmill.pipeline.reorder.arrangement import Arrangement

#: The order by default, and where a file does not tell what its vectors mean.
DEFAULT_ORDER, WITHOUT_POINTS = "kmeans-pages", "star"
#: Least vertices that an order places side by side. Rows straddle the pages of a file, so neighbours share pages even
#: where a row is longer than a page; and a page holds the lists of more vertices than vectors.
LEAST_GROUP = 8


class GraphArrangement(Arrangement):
    """An order of vertices, made of the lists of level 0, of vectors, or of both."""

    least: ClassVar = WITHOUT_POINTS

    def __init__(self, file: GraphFile, name: str | None) -> None:
        self._graph = file
        default = WITHOUT_POINTS if file.points is None else DEFAULT_ORDER
        group = max(PAGE_BYTES // file.row_bytes, LEAST_GROUP)
        super().__init__(file, name or default, group, file.lists.width)

    def lists(self, scratch: Path, progress: Progress) -> Adjacency:
        """Copy the lists of level 0, checked, into mapped files."""
        file = self._graph
        neighbours = create_npy(scratch / "neighbours.npy", np.uint32, (file.n, self.width))
        degrees = create_npy(scratch / "degrees.npy", np.int32, (file.n,))
        with stage_progress(progress, "read", file.n, file.unit):
            for first, lists, lengths in file.lists.blocks():
                last = first + len(lists)
                # What stands behind the end of a list means nothing.
                neighbours[first:last] = np.where(lists < file.n, lists, 0)
                degrees[first:last] = lengths
                progress.advance(len(lists))
        return Adjacency(neighbours, degrees)

    def settled(self, order: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """See `Arrangement`."""
        return np.roll(order, rows_before_page(self._graph))

    def _check(self) -> None:
        if self.name in NEEDS_POINTS and self._graph.points is None:
            raise ConfigError(
                f"order: {self.name} compares vectors, and {self._graph.path} ({self._graph.kind}) does not say how; "
                f"choose one made of edges alone, such as {WITHOUT_POINTS}"
            )


def rows_before_page(file: GraphFile) -> int:
    """Return how many rows end before the first page boundary behind the first row.

    The last rows of an order go there, so that its groups begin where pages do, as nearly as rows let them.
    """
    return min(-file.rows_begin % PAGE_BYTES // file.row_bytes, file.n - 1)
