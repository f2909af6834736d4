"""The new order of the items of another engine's file: its choice by name, what it needs, and its computation.

Items are vertices (`graphs`) or inverted lists (`lists`). Nothing is written here except scratch files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.pagefile.mapped import create_npy, scratch_array
from indexmill.formats.reordered.engine_file import EngineFile
from indexmill.layout.order import Adjacency, InputShape
from indexmill.layout.portfolio import ORDERS, USES_POINTS
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, check_need
from indexmill.pipeline.kinds.graph.order import order_bytes, order_threads
from indexmill.pipeline.mill.progress import Progress, stage_progress
from indexmill.pipeline.relayout.fitting import FROM_FILE
from indexmill.pipeline.reorder.outcome import Reordered

#: Memory of writing a file: bytes an item, and buffers.
_WRITE_BYTES, _WRITE_BUFFERS = 32, 128 << 20
#: Rows copied at a time.
_STEP = 8192
_SEED = 0


class Arrangement(ABC):
    """The order that was chosen for the items of one file.

    Parameters
    ----------
    file : EngineFile
    name : str
        A key of `layout.portfolio.ORDERS`, or ``"file"`` for an order that a file of the user gives.
    group : int
        Number of items that the order tries to place side by side: vertices of at least a page, or 1 for lists.
    width : int
        Most neighbours of an item; 0 if items have none.

    Raises
    ------
    ConfigError
        If the file lacks what the order is computed from.

    Attributes
    ----------
    name, group, width
        As given.
    """

    #: Name of the order that needs the least memory, which errors recommend; empty if there is no such order.
    least: ClassVar = ""

    def __init__(self, file: EngineFile, name: str, group: int, width: int) -> None:
        self.name, self.group, self.width = name, group, width
        self._file = file
        if name != FROM_FILE:
            self._check()

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch files: neighbour lists, vectors if the order compares them, and arrays of the order."""
        file, points = self._file, self._file.points
        dim, dtype = (0, np.dtype(np.uint8)) if points is None else (points.shape[1], points.dtype)
        shape = InputShape(file.n, self.width, dim, dtype)
        mapped = 0 if self.name == FROM_FILE else ORDERS[self.name].scratch_bytes(shape)
        vectors = dim * dtype.itemsize if self.name in USES_POINTS else 0
        return file.n * (4 + 4 * self.width + vectors) + mapped

    def threads_within(self, workers: int, memory: int) -> int:
        """Return the number of threads, at most `workers`, with which the layout stays within `memory` bytes.

        Both the computation of the order and the writing of the new file count; they do not overlap.

        Raises
        ------
        BudgetError
            If one thread needs more.
        """
        file = self._file
        writing, held = file.n * _WRITE_BYTES + _WRITE_BUFFERS, FIXED_BYTES + file.held_bytes
        if self.name == FROM_FILE:
            check_need(f"writing {file.n:,} {file.unit} takes", held + writing, memory)
            return 1
        shape = (self.name, file.n, self.group, self.width)
        need = held + max(order_bytes(*shape, 1, divided=False), writing)
        hint = f", or take --order {self.least}" if self.least not in ("", self.name) else ""
        check_need(f"the order {self.name} of {file.n:,} {file.unit} takes", need, memory, hint)
        return order_threads(*shape, workers, memory - held, divided=False)

    def fit(self, lists: Adjacency, scratch: Path, threads: int, progress: Progress) -> NDArray[np.uint32]:
        """Compute the order.

        Parameters
        ----------
        lists : Adjacency
            Neighbours of all items, as `lists` returns them.
        scratch : Path
            Directory of scratch files.
        threads : int
            They do not change the order.

        Returns
        -------
        uint32 array, shape (n,)
            The item in each place of the new file.
        """
        has_points = self.name in USES_POINTS and self._file.points is not None
        points = _points(self._file, scratch) if has_points else None
        with stage_progress(progress, "order", 1, "tasks"):
            given = partial(scratch_array, scratch)
            order = ORDERS[self.name].fit(lists, points, self.group, _SEED, threads=threads, scratch=given)
            progress.advance(1)
        return self.settled(order)

    def settled(self, order: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return a computed order as it is to be written, uint32 (n,): unchanged, unless a kind of items shifts it."""
        return order

    def outcome(self, order: NDArray[np.uint32]) -> Reordered:
        """Describe the file that was written in `order`, uint32 (n,)."""
        file = self._file
        return Reordered(file.kind, self.name, file.n_vectors, self.group, file.size, file.ids)

    @abstractmethod
    def lists(self, scratch: Path, progress: Progress) -> Adjacency:
        """Copy the neighbour lists of all items from the file to mapped scratch files.

        Raises
        ------
        CorruptFile
            If a list is damaged.
        """

    @abstractmethod
    def _check(self) -> None:
        """Check that the file has what the order is computed from.

        Raises
        ------
        ConfigError
            If it has not.
        """


def _points(file: EngineFile, scratch: Path) -> NDArray[Any]:
    """Copy the vectors of a file to a mapped scratch file, (n, dim), in which each component is aligned."""
    points = file.points
    assert points is not None
    mapped = create_npy(scratch / "points.npy", points.dtype, points.shape)
    for first in range(0, file.n, _STEP):
        mapped[first : first + _STEP] = points[first : first + _STEP]
    return mapped
