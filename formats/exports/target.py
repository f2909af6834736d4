"""What every target of an export is to the pipeline, and what an index is to every target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.codes import CodesFile
from indexmill.formats.entries import EntryVertices
from indexmill.formats.errors import ConfigError
from indexmill.formats.graph import GraphFile, NodeBlock

#: Table of every export: slot, vector id, user id, metadata.
ID_MAP_NAME = "ids.parquet"
#: What an export is, written last: a directory without it is none of ours.
EXPORT_NAME = "export.json"
#: Parts of an index that a target keeps or not, in the order in which they are listed.
PARTS = ("graph", "codes", "clusters", "order", "pages", "entries", "ids", "metadata")

Ids = Literal["user", "slot"]


@dataclass(frozen=True)
class ExportedIndex:
    """An index as targets see it: everything by slot, nothing of its size held but the ids.

    Attributes
    ----------
    graph : GraphFile
    codes : CodesFile
    entries : EntryVertices
    vector_ids : uint32 array, shape (n,)
        Vector id of each slot.
    user_ids : pyarrow.Array or None
        User id of each slot; None where vector ids are user ids.
    metadata : callable
        ``metadata(first, last)``: the metadata of slots [first, last), a table without columns if there is none.
    build_id : str
        Of the index, 64 hex digits.
    ids : {"user", "slot"}
        What the engine is to call the vectors.
    """

    graph: GraphFile
    codes: CodesFile
    entries: EntryVertices
    vector_ids: NDArray[np.uint32]
    user_ids: pa.Array | None
    metadata: Callable[[int, int], pa.Table]
    build_id: str
    ids: Ids = "user"

    @property
    def n(self) -> int:
        """Vectors."""
        return self.graph.n_vertices

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

    def names(self, first: int, last: int) -> pa.Array:
        """Return the user ids of slots [first, last), vector ids as int64 where there are none."""
        if self.user_ids is None:
            return pa.array(self.vector_ids[first:last].astype(np.int64))
        return self.user_ids.slice(first, last - first)

    def whole_ids(self, target: str, bits: int) -> NDArray[np.int64]:
        """Return what the engine is to call each slot, int64 (n,).

        Raises
        ------
        ConfigError
            If user ids are no integers from 0 on that fit `bits` bits.
        """
        if self.ids == "slot":
            return np.arange(self.n, dtype=np.int64)
        if self.user_ids is None:
            return self.vector_ids.astype(np.int64)
        most = 2**bits - 1
        holds = f"{target} holds ids from 0 to {most:,}"
        way_out = (
            f"give --ids slot: its answers are then slots, and {ID_MAP_NAME} says which user id a slot has"
        )
        kind = str(self.user_ids.type).removeprefix("large_")
        if not pa.types.is_integer(self.user_ids.type):
            raise ConfigError(f"ids: {kind} ids, but {holds}; {way_out}")
        found = self.user_ids.to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero((found < 0) | (found > most))
        if len(wrong):
            slot = int(wrong[0])
            raise ConfigError(
                f"ids: {found[slot]:,} of vector {self.vector_ids[slot]:,}, but {holds}; {way_out}"
            )
        ids: NDArray[np.int64] = found.astype(np.int64)
        return ids


@dataclass(frozen=True)
class Target:
    """One kind of file or directory that an engine opens.

    Attributes
    ----------
    name : str
        As ``--to`` takes it.
    engine : str
        Who opens it, with the versions it was tried with.
    keeps : mapping
        What becomes of each of `PARTS`: ``"yes"``, ``"no"``, or a word or two.
    rebuilds : str
        What the engine makes itself.
    passes : int
        Times all vectors are gone through.
    check : callable
        ``check(index)`` raises ConfigError, before anything is written, if the target cannot hold the index.
    write : callable
        ``write(index, folder, advance)`` writes the files, saying how many vectors are done of one pass.
    snippet : callable
        ``snippet(index, folder)``: code that opens the result in the engine and searches it.
    """

    name: str
    engine: str
    keeps: Mapping[str, str]
    rebuilds: str
    passes: int
    check: Callable[[ExportedIndex], None]
    write: Callable[[ExportedIndex, Path, Callable[[int], None]], None]
    snippet: Callable[[ExportedIndex, Path], str]

    def to_dict(self) -> dict[str, Any]:
        """Return what `--list` says."""
        kept = {part: self.keeps[part] for part in PARTS}
        return {"target": self.name, "engine": self.engine, "keeps": kept, "rebuilds": self.rebuilds}


def cannot_hold(target: str, what: str, got: object, holds: str, action: str) -> ConfigError:
    """Return the error for an index that a target cannot hold."""
    return ConfigError(f"to: {target}: {what} {got}, but {target} holds {holds}; {action}")
