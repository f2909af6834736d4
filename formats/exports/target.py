"""What every target of an export is to the pipeline, and what a graph is to every target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError
from indexmill.formats.exports.rows import EXPORT_NAME, ID_MAP_NAME, ExportedRows, Ids
from indexmill.formats.graph.codes import CodesFile
from indexmill.formats.graph.entries import EntryVertices
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.graph.nodes import NodeBlock

__all__ = [
    "EXPORT_NAME",
    "ID_MAP_NAME",
    "PARTS",
    "ExportedIndex",
    "ExportedRows",
    "Ids",
    "Target",
    "cannot_hold",
]

#: Parts of an index that a target keeps or not, in the order in which they are listed.
PARTS = ("graph", "codes", "clusters", "order", "pages", "entries", "ids", "metadata")

Exported = TypeVar("Exported", bound=ExportedRows)


@dataclass(frozen=True, kw_only=True)
class ExportedIndex(ExportedRows):
    """A graph as targets see it: everything by slot, nothing of its size held but the ids.

    Attributes
    ----------
    graph : GraphFile
    codes : CodesFile
    entries : EntryVertices
    """

    graph: GraphFile
    codes: CodesFile
    entries: EntryVertices

    @property
    def dim(self) -> int:
        """Components of the user's vectors; inner product stores one more."""
        return self.graph.node_format.dim - (self.graph.metric == "ip")

    @property
    def metric(self) -> str:
        """``l2``, ``ip`` or ``cosine``."""
        return self.graph.metric

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of `vectors`: that of the nodes, float32 where nodes are sq8 or sq16."""
        node = self.graph.node_format
        return np.dtype(np.float32) if node.quantized else node.element_dtype

    @cached_property
    def _scale(self) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        return self.graph.scale()

    def vectors(self, block: NodeBlock) -> NDArray[Any]:
        """Return a block's vectors, (m, dim), as the user knows them.

        Of unit length under cosine, without the component that inner product adds, sq8 and sq16 decoded.
        """
        values: NDArray[Any] = block.vectors
        if self._scale is not None:
            low, step = self._scale
            values = low + step * values.astype(np.float32)
        return values[:, : self.dim]

    def blocks(self) -> Iterator[tuple[int, NodeBlock]]:
        """Yield the first slot and the nodes of blocks of about 1 MiB, every page checked."""
        first = 0
        for block in self.graph.blocks():
            yield first, block
            first += len(block)


@dataclass(frozen=True)
class Target(Generic[Exported]):
    """One kind of file or directory that an engine opens.

    Attributes
    ----------
    name : str
        As ``--to`` takes it.
    kinds : tuple of {"graph", "lsh", "ivf"}
        Kinds of index that it holds.
    engine : str
        Who opens it, with the versions it was tried with.
    keeps : mapping
        What becomes of each of `PARTS`: ``"yes"``, ``"no"``, or a word or two.
    rebuilds : str
        What the engine makes itself.
    passes : int
        Times all rows are gone through.
    check : callable
        ``check(index)`` raises ConfigError, before anything is written, if the target cannot hold the index.
    write : callable
        ``write(index, folder, advance)`` writes the files, saying how many rows are done of one pass.
    snippet : callable
        ``snippet(index, folder)``: code that opens the result in the engine and searches it.
    arrange : callable
        ``arrange(index)``: what `write`, `snippet` and the id map see of an index that passed `check`.
    """

    name: str
    kinds: tuple[str, ...]
    engine: str
    keeps: Mapping[str, str]
    rebuilds: str
    passes: int
    check: Callable[[Exported], None]
    write: Callable[[Exported, Path, Callable[[int], None]], None]
    snippet: Callable[[Exported, Path], str]
    arrange: Callable[[ExportedRows], ExportedRows] = lambda index: index

    def to_dict(self) -> dict[str, Any]:
        """Return what `--list` says."""
        return {
            "target": self.name,
            "kinds": list(self.kinds),
            "engine": self.engine,
            "keeps": {part: self.keeps[part] for part in PARTS},
            "rebuilds": self.rebuilds,
        }


def cannot_hold(target: str, what: str, got: object, holds: str, action: str) -> ConfigError:
    """Return the error for an index that a target cannot hold."""
    return ConfigError(f"to: {target}: {what} {got}, but {target} holds {holds}; {action}")
