"""The interface of orders of vertices, and the two orders that need no graph: identity and random.

An order is a uint32 array, shape (n,): ``order[slot]`` is the vertex in `slot`. It is a bijection on [0, n). Slot s is
on page ``s // nodes_per_page``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from indexmill.formats.errors import ConfigError

#: Separates this draw from others with the same seed, such as the order of insertion into the graph.
_STREAM = 0x0FDE


class Adjacency(NamedTuple):
    """A finished graph.

    Attributes
    ----------
    neighbours : uint32 array, shape (n, R)
        The first ``degrees[v]`` of a row are the neighbours of v, nearest first.
    degrees : int32 array, shape (n,)
    """

    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.int32]


class InputShape(NamedTuple):
    """What decides the size of lists and vectors: vertices, `R`, components of a vector, and their type."""

    n: int
    max_degree: int
    dim: int
    dtype: DTypeLike


class Work:
    """Budget of an order, in units of work instead of seconds, so that results are the same on any machine.

    Parameters
    ----------
    limit : int, optional
        Units of work; a unit is one edge followed, or 16 components of a distance. None: no limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.spent = 0

    @property
    def left(self) -> int:
        """Remaining units; a very large number without a limit."""
        return np.iinfo(np.int64).max if self.limit is None else max(0, self.limit - self.spent)

    def spend(self, units: int) -> bool:
        """Count `units`; return false once the limit is exceeded."""
        self.spent += units
        return self.limit is None or self.spent <= self.limit


#: Gives an array of a type and a shape, with any contents, until its context ends.
Scratch = Callable[[DTypeLike, tuple[int, ...]], AbstractContextManager[NDArray[Any]]]


def in_memory(dtype: DTypeLike, shape: tuple[int, ...]) -> AbstractContextManager[NDArray[Any]]:
    """Give an array in memory; a `Scratch`."""
    return nullcontext(np.empty(shape, dtype))


class Given(NamedTuple):
    """Input of an order, see `Order.fit`."""

    graph: Adjacency
    points: NDArray[Any] | None
    nodes_per_page: int
    seed: int
    threads: int
    work: Work
    scratch: Scratch


class OrderMemory(NamedTuple):
    """Bytes that an order takes, its result and the inverse of that included: a sum of products."""

    a_vertex: int
    an_edge: int = 0
    an_edge_of_a_part: int = 0  # of each part that is packed at a time, one on each thread
    a_vertex_at_once: int = 0  # that a thread packs at a time, where it packs districts


class Order(ABC):
    """A method to order the vertices of a graph. Its parameters are the fields of a frozen dataclass.

    Attributes
    ----------
    uses_points : bool
        Whether it uses the vectors besides the graph, where there are some.
    needs_points : bool
        Whether it cannot be made without them.
    memory : OrderMemory
    """

    @property
    def uses_points(self) -> bool:
        """Whether it uses the vectors besides the graph, where there are some."""
        return False

    @property
    def needs_points(self) -> bool:
        """Whether it cannot be made without vectors."""
        return False

    @property
    def memory(self) -> OrderMemory:
        """Memory of the order."""
        return OrderMemory(12)

    def scratch_bytes(self, graph: InputShape) -> int:
        """Return the most bytes that the order takes of scratch space at once; by default none."""
        return 0

    def expected_scratch_bytes(self, graph: InputShape) -> int:
        """Return about how many of `scratch_bytes` the order takes; by default all."""
        return self.scratch_bytes(graph)

    def fit(
        self, graph: Adjacency, points: NDArray[Any] | None, nodes_per_page: int, seed: int,
        *, threads: int = 1, work: Work | None = None, scratch: Scratch = in_memory,
    ) -> NDArray[np.uint32]:  # fmt: skip
        """Return an order, uint32 (n,).

        Parameters
        ----------
        graph : Adjacency
        points : uint8 or float32 array, shape (n, dim), optional
            Vectors of the vertices, or their decoded codes; None where the order does not need them.
        nodes_per_page : int
            At least 1.
        seed : int
            Decides random draws; the same seed gives the same order for any number of threads.
        work : Work, optional
            Budget; an order that exceeds it returns its best result so far.
        scratch : Scratch
            Gives arrays as large as the lists or the vectors.

        Raises
        ------
        ConfigError
            Without `points`, if the order needs them.
        """
        return self.arrange(Given(graph, points, nodes_per_page, seed, threads, work or Work(), scratch))

    @abstractmethod
    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """Return the order of what `fit` was given."""


@dataclass(frozen=True)
class IdentityOrder(Order):
    """Vertices in input order, DiskANN's layout."""

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `Order`."""
        return np.arange(len(given.graph.degrees), dtype=np.uint32)


@dataclass(frozen=True)
class RandomOrder(Order):
    """Vertices in random order: a baseline that is independent of the input order."""

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `Order`."""
        generator = np.random.default_rng([given.seed, _STREAM])
        return generator.permutation(len(given.graph.degrees)).astype(np.uint32)


def need_points(points: NDArray[Any] | None, name: str) -> NDArray[Any]:
    """Return `points`, which the order called `name` needs.

    Raises
    ------
    ConfigError
        If there are none.
    """
    if points is None:
        raise ConfigError(
            f"order {name}: it is made of vectors, and none were given; give them, or choose one made of edges alone,"
            " such as star"
        )
    return points


def invert(order: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return ``slots`` with ``slots[order[s]] = s``; both have shape (n,)."""
    slots = np.empty(len(order), np.uint32)
    slots[order] = np.arange(len(order), dtype=np.uint32)
    return slots
