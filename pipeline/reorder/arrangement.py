"""How the items of another engine's file are put in order: with which order, in which memory."""

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
from indexmill.pipeline.generations.run import check_need
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
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
    """An order by name, and what it is made of.

    Attributes
    ----------
    name : str
        A key of `layout.portfolio.ORDERS`, or ``"file"`` for an order that is given.
    group : int
        Items that the order places side by side; those of a page or more.
    width : int
        Most neighbours of an item.
    """

    #: The order that takes the least memory, where another one takes too much; none if empty.
    least: ClassVar = ""

    def __init__(self, file: EngineFile, name: str, group: int, width: int) -> None:
        self.name, self.group, self.width = name, group, width
        self._file = file
        if name != FROM_FILE:
            self._check()

    @property
    def scratch_bytes(self) -> int:
        """Return the size of the lists, of the vectors if the order uses them, and of what the order maps."""
        file, points = self._file, self._file.points
        dim, dtype = (0, np.dtype(np.uint8)) if points is None else (points.shape[1], points.dtype)
        shape = InputShape(file.n, self.width, dim, dtype)
        mapped = 0 if self.name == FROM_FILE else ORDERS[self.name].scratch_bytes(shape)
        vectors = dim * dtype.itemsize if self.name in USES_POINTS else 0
        return file.n * (4 + 4 * self.width + vectors) + mapped

    def threads_within(self, workers: int, memory: int) -> int:
        """Return on how many threads, up to `workers`, the order and writing the file fit `memory`.

        Raises
        ------
        BudgetError
            If they do not fit on one.
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
        """Return the order of items with these `lists`, uint32 (n,)."""
        points = _points(self._file, scratch) if self.name in USES_POINTS else None
        with stage_progress(progress, "order", 1, "tasks"):
            given = partial(scratch_array, scratch)
            order = ORDERS[self.name].fit(lists, points, self.group, _SEED, threads=threads, scratch=given)
            progress.advance(1)
        return self.settled(order)

    def settled(self, order: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the order as it is written."""
        return order

    def outcome(self, order: NDArray[np.uint32]) -> Reordered:
        """Return what to tell of the file in this order, uint32 (n,)."""
        file = self._file
        return Reordered(file.kind, self.name, file.n_vectors, self.group, file.size, file.ids)

    @abstractmethod
    def lists(self, scratch: Path, progress: Progress) -> Adjacency:
        """Return the neighbours of all items, checked and mapped."""

    @abstractmethod
    def _check(self) -> None:
        """Check that the order can be made.

        Raises
        ------
        ConfigError
            If the file has not what it is made of.
        """


def _points(file: EngineFile, scratch: Path) -> NDArray[Any]:
    """Copy the vectors into a mapped file, where they are aligned."""
    points = file.points
    assert points is not None
    mapped = create_npy(scratch / "points.npy", points.dtype, points.shape)
    for first in range(0, file.n, _STEP):
        mapped[first : first + _STEP] = points[first : first + _STEP]
    return mapped
