"""The result of a layout of another engine's file, which the command `layout` prints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reordered:
    """A file that was written with its vertices, or inverted lists, in a new order.

    Attributes
    ----------
    kind : str
        Engine and kind of index, such as ``faiss IndexHNSWFlat``.
    order : str
        Name of the order: a key of `layout.portfolio.ORDERS`, or ``"file"`` for one that a file of the user gave.
    n_vectors : int
        Number of vectors in the file.
    group : int
        Number of items that the order tried to place side by side: vertices of at least a page, or 1 for lists.
    bytes : int
        Size of the new file.
    ids : str
        How a search of the new file names vectors, in words.
    """

    kind: str
    order: str
    n_vectors: int
    group: int
    bytes: int
    ids: str

    @property
    def content(self) -> str:
        """The items that were put in order and their number, in words."""
        return f"{self.n_vectors:,} vectors"


@dataclass(frozen=True)
class ReorderedLists(Reordered):
    """A file that was written with its inverted lists in a new order.

    Attributes
    ----------
    lists : list of int
        New numbers of lists: ``lists[new]`` is the old number of list `new`. An order file has the same content.
    """

    lists: list[int]

    @property
    def content(self) -> str:
        """See `Reordered.content`."""
        return f"{len(self.lists):,} lists of {self.n_vectors:,} vectors"
