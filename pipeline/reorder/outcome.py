"""What `layout` of another engine's file tells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reordered:
    """Outcome of a run.

    Attributes
    ----------
    kind : str
        What the file holds.
    order : str
        A key of `layout.portfolio.ORDERS`, or ``"file"``.
    n_vectors : int
    group : int
        Vertices, or lists, that the order placed side by side; those of a page or more.
    bytes : int
        Size of the new file.
    ids : str
        How results name vectors.
    """

    kind: str
    order: str
    n_vectors: int
    group: int
    bytes: int
    ids: str

    @property
    def content(self) -> str:
        """What was put in order, in words."""
        return f"{self.n_vectors:,} vectors"


@dataclass(frozen=True)
class ReorderedLists(Reordered):
    """Outcome of a run on inverted lists.

    Attributes
    ----------
    lists : list of int
        The list of the original in each place, which is its new number: as an order file has it.
    """

    lists: list[int]

    @property
    def content(self) -> str:
        """See `Reordered`."""
        return f"{len(self.lists):,} lists of {self.n_vectors:,} vectors"
