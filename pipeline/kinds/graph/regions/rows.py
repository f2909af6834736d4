"""The vectors of a region in memory, joined for a while by others that its vertices name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.partition.leaf_lists import NOBODY
from indexmill.formats.chunks.reader import Records
from indexmill.pipeline.mill.external_sort import fill


class RegionRows:
    """Vectors by id, as far as they are in memory.

    Memory: a vector and 4 bytes for each of them, 4 bytes for every vector of the graph, and the buffers of an external
    sort while the object is made.

    Parameters
    ----------
    vectors : path-like
        Of all rows, as the builder takes them; those that a region does not have are read from there in the order of
        their ids.
    chunks : sequence of path-like
        Of stage *assign*.
    region, members : int
        And how many vectors it has.
    spare : int
        How many others are in memory at a time, unless a single vertex names more.

    Attributes
    ----------
    vectors : array, shape (any, dim)
    names : uint32 array, shape (any,)
        Ids of the rows.
    rows : uint32 array, shape (n_vectors,)
        Row of each id, or `NOBODY`.
    """

    def __init__(
        self, vectors: str, chunks: Sequence[str], region: int, members: int, spare: int, buffer_bytes: int
    ) -> None:
        self._all = np.load(vectors, mmap_mode="r")
        self._members, self.spare = members, spare
        self.vectors = np.empty((members + spare, self._all.shape[1]), self._all.dtype)
        self.names = np.empty(members + spare, np.uint32)
        regions = np.empty(members, np.uint32)
        own = Records(regions, self.names[:members], self.vectors[:members])
        fill(chunks, region, region + 1, own, buffer_bytes=buffer_bytes)
        del regions, own
        self.rows = np.full(len(self._all), NOBODY, np.uint32)
        self.rows[self.names[:members]] = np.arange(members, dtype=np.uint32)

    @contextmanager
    def holding(self, ids: NDArray[np.uint32]) -> Iterator[None]:
        """Hold the vectors of `ids` in memory, too: ids of others than members, ascending, once each."""
        end, usual = self._members + len(ids), len(self.vectors)
        if end > usual:  # a single vertex that very many name
            self._resize(end)
        np.take(self._all, ids, axis=0, out=self.vectors[self._members : end], mode="clip")  # no copy between
        self.names[self._members : end] = ids
        self.rows[ids] = np.arange(self._members, end, dtype=np.uint32)
        try:
            yield
        finally:
            self.rows[ids] = NOBODY
            if end > usual:
                self._resize(usual)

    def _resize(self, rows: int) -> None:
        """Make room for as many vectors where they lie: a larger array beside them would take their room once more.

        No view of them exists between one block of vertices and the next, so references need not be counted.
        """
        self.vectors.resize((rows, self.vectors.shape[1]), refcheck=False)
        self.names.resize(rows, refcheck=False)


def spans(starts: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Cut vertices into spans that have at most `most` items together, unless one vertex has more.

    Parameters
    ----------
    starts : int64 array, shape (m + 1,)
        Items of all vertices before each.
    """
    first, m = 0, len(starts) - 1
    while first < m:
        last = int(np.searchsorted(starts, starts[first] + most, side="right")) - 1
        last = min(max(last, first + 1), m)
        yield first, last
        first = last
